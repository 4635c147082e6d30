// A delay on the device's side of an asynchronous backend that is not ours: work of known length, put on the backend's
// own queue right before (or after) a command. Where the build has an op that sleeps it is that one, else a chain of
// matrix products whose lengths were measured. It goes through the backend's original functions: nothing of it is
// recorded, and nothing waits for it.
#pragma once
#include "ggml_abi.h"

namespace td {

// Measures, and takes the device memory that the products need (up to 68 MiB; a device that is slow needs less).
// Waits for the backend: call it when the backend is made, before the engine has given it anything. Lengths are
// measured once per device. False: said why, once per device; see filler_refusal.
bool filler_prepare(ggml_backend_t backend);

// Enqueues work of about `ns`; `true_ns` is its length as measured. Calls on one backend must not run at once, as for
// its own functions. False: nothing was enqueued, filler_refusal says why.
bool filler_enqueue(ggml_backend_t backend, uint64_t ns, uint64_t & true_ns);

// Why there is no filler on this backend; null if there is one.
const char * filler_refusal(ggml_backend_t backend);

// Before the backend is freed: waits for it if something was enqueued, and gives the memory back.
void filler_release(ggml_backend_t backend);

}  // namespace td
