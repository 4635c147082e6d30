/* Stands in for libnvidia-ml.so.1: the calls that the sampler makes, for two devices.
   What goes wrong is told by STANDIN: "unsupported" (PCIe on every device, power of device 1), "lost" (device 1 after
   three samples), "all-lost", "no-driver" (init), "hang" (no call returns after three samples), "hang-at-once", "no-device",
   "hang-in-constructor", "crash-at-init", "crash" (after three samples), "exit" (likewise), "no-utf8" (names and bus of
   device 0). STANDIN_PID names a file for the id of the process that loads it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15 };
#define MANY 3

static int devices[2] = {0, 1};
static int samples[2];

static int is(const char * what) {
    const char * chosen = getenv("STANDIN");
    return chosen && strcmp(chosen, what) == 0;
}

__attribute__((constructor)) static void loaded(void) {
    const char * path = getenv("STANDIN_PID");
    FILE * file = path ? fopen(path, "w") : NULL;
    if (file) {
        fprintf(file, "%d\n", (int) getpid());
        fclose(file);
    }
    if (is("hang-in-constructor")) for (;;) pause();
}

static int index_of(void * device) { return *(int *) device; }

static int state(void * device) {
    int i = index_of(device);
    if (samples[i] > MANY && is("hang")) for (;;) pause();
    if (samples[i] > MANY && is("crash")) raise(SIGSEGV);
    if (samples[i] > MANY && is("exit")) exit(0);
    if (samples[i] > MANY && (is("all-lost") || (is("lost") && i == 1))) return GPU_IS_LOST;
    return OK;
}

int nvmlInitWithFlags(unsigned flags) {
    (void) flags;
    if (is("hang-at-once")) for (;;) pause();
    if (is("crash-at-init")) raise(SIGSEGV);
    return is("no-driver") ? DRIVER_NOT_LOADED : OK;
}
int nvmlShutdown(void) { return OK; }
const char * nvmlErrorString(int e) { (void) e; return "an error"; }

int nvmlDeviceGetCount_v2(unsigned * n) { *n = is("no-device") ? 0 : 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void ** device) { *device = &devices[i]; return OK; }

int nvmlDeviceGetName(void * device, char * name, unsigned bytes) {
    snprintf(name, bytes, is("no-utf8") ? "Stand-in \xff %d" : "Stand-in %d", index_of(device));
    return OK;
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

int nvmlDeviceGetPciInfo_v3(void * device, struct pci * info) {
    memset(info, 0, sizeof *info);
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", 0x1a + index_of(device));
    if (is("no-utf8") && index_of(device) == 0) info->bus_id[0] = (char) 0xff;
    return OK;
}

/* the first call of every sample */
int nvmlDeviceGetClockInfo(void * device, int kind, unsigned * mhz) {
    int i = index_of(device);
    if (kind == 1) samples[i]++;
    *mhz = (kind == 1 ? 1000 : 2000) + 10 * i;
    return state(device);
}

int nvmlDeviceGetPowerUsage(void * device, unsigned * milliwatts) {
    if (is("unsupported") && index_of(device) == 1) return NOT_SUPPORTED;
    *milliwatts = 250500 + 1000 * samples[index_of(device)];
    return state(device);
}

int nvmlDeviceGetTemperature(void * device, int sensor, unsigned * celsius) {
    *celsius = 60 + sensor;
    return state(device);
}

int nvmlDeviceGetMemoryInfo(void * device, unsigned long long * total_free_used) {
    total_free_used[2] = 3ull << 33;
    return state(device);
}

int nvmlDeviceGetUtilizationRates(void * device, unsigned * gpu_memory) {
    gpu_memory[0] = 97;
    gpu_memory[1] = 41;
    return state(device);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void * device, unsigned long long * mask) {
    *mask = 4;
    return state(device);
}

int nvmlDeviceGetPcieThroughput(void * device, int counter, unsigned * kilobytes) {
    if (is("unsupported")) return NOT_SUPPORTED;
    *kilobytes = counter == 0 ? 5000 : 7000;
    return state(device);
}

/* What identifies one board must not be asked for. */
int nvmlDeviceGetSerial(void) { abort(); }
int nvmlDeviceGetUUID(void) { abort(); }
