// A program with a ggml in it that stays for STAY_MS. HOST: "load" GGML_BACKEND_PATH, "compute" also on its device,
// "leave" it. Linked as a library it is one of several copies of ggml in a process.
#include <cstdlib>
#include <cstring>

#include <unistd.h>

#include "fake_host.h"

extern "C" __attribute__((visibility("default"))) bool host_load() {
    const char * plugin = getenv("GGML_BACKEND_PATH");
    return plugin && fake::load(plugin);
}

static void compute() {
    ggml_backend_dev_t dev = fake::devices.at(1);
    ggml_backend_t backend = dev->iface.init_backend(dev, nullptr);
    ggml_backend_buffer_t memory = fake::allocate(dev->iface.get_buffer_type(dev), 4096);
    memory->iface.clear(memory, 0);
    ggml_tensor a = fake::tensor(memory, 0, 4), b = fake::tensor(memory, 128, 4), sum = fake::add(&a, &a, &b);
    fake::graph g({&sum});
    backend->iface.graph_compute(backend, &g.g);
    backend->iface.synchronize(backend);
    fake::release(memory);
    backend->iface.free(backend);
}

int main() {
    const char * what = getenv("HOST");
    if (what && strcmp(what, "leave") != 0 && host_load() && strcmp(what, "compute") == 0) {
        compute();
    }
    const char * stay = getenv("STAY_MS");
    usleep(1000u * unsigned(stay ? atoi(stay) : 0));
}
