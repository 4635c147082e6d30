// What the test devices and the recorder know of each other. The recorder (record.cpp, wrap*.cpp, spool.cpp) wraps
// function tables; the devices (device.cpp, queue.cpp) never write a record by themselves but report through this.
#pragma once
#include <cstdint>

#include "ggml_abi.h"

namespace td {

// --- offered by the recorder -------------------------------------------------------------------------------------

constexpr uint64_t NO_SLOT = ~0ull;

// Starts recording if TAPEDELAY_SPOOL asks for it and wraps every registered device, `own`'s first. Called once, from
// ggml_backend_init, after the host was bound. `own` may have no devices. False = off (nothing is wrapped).
bool recorder_start(ggml_backend_reg_t own);

// Slot of the issue record of the innermost wrapped call this thread is in; NO_SLOT = none or recording is off.
// Devices read it inside their table functions, on the issuing thread, and keep it with the command.
uint64_t current_slot();

// When a worker ran the command whose issue record is `slot`. No-op for NO_SLOT or when off. Any thread.
void record_exec(uint64_t slot, uint64_t start_ns, uint64_t end_ns);

// Inside cpy_tensor_async, on the issuing thread: the copy runs on `src`'s queue and `dst`'s queue waits for it.
// Not called: the copy runs on the queue of the backend whose function was called (the destination).
void split_copy(ggml_backend_t src, ggml_backend_t dst);

// --- offered by the test devices ---------------------------------------------------------------------------------

// Set while the plugin itself calls the host on this thread; wrappers then pass through without a record.
extern thread_local bool internal;

struct internal_scope {
    bool before = internal;
    internal_scope() { internal = true; }
    ~internal_scope() { internal = before; }
    internal_scope(const internal_scope &) = delete;
    internal_scope & operator=(const internal_scope &) = delete;
};

bool is_test_device(ggml_backend_dev_t dev);
const char * device_profile(ggml_backend_dev_t dev);   // profile name of a test device, "" for any other
// What cpy_tensor_async of a test device will answer, and where the copy then runs.
bool test_copy_accepted(ggml_backend_t src, ggml_backend_t dst, const ggml_tensor * from, const ggml_tensor * to);
bool test_copy_runs_on_source(ggml_backend_t src, ggml_backend_t dst, const ggml_tensor * from);
bool set_reads_now(const void * data, size_t bytes);   // an asynchronous set on a test device has read this source when it returns

}  // namespace td

// --- exported to Python (ctypes, plain C names) -------------------------------------------------------------------
//
// int tapedelay_stop(void);    Ends this process's recording as a clean exit would (the header says HDR_ENDED); the
//                              process goes on, and nothing it does later is recorded or counted. Always 0.
//
// TAPEDELAY_DEVICES unset or "auto": no test device where a device of type GPU or IGPU is registered at load, else 1.
// ggml_backend_init called again by the same ggml (GGML_BACKEND_PATH and the import hook both load us): return null
// without a word, so that devices are not registered twice.
