// The smallest host a plugin of ggml can be loaded into: the functions that host.h asks for, one CPU device, two
// operations. GATE waits until the test opens it, so that a test decides what is pending.
// What it is: set before main by the environment. FAKE_API (2, 3, other), FAKE_TENSOR_BYTES (added to the size).
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "ggml_abi.h"

extern "C" bool ggml_backend_buffer_is_host(ggml_backend_buffer_t b);

namespace fake {

enum op : int { NONE = 0, ADD = 1, GATE = 2, FAIL = 3, UNSUPPORTED = 4, CUSTOM = 5 };

extern std::vector<ggml_backend_dev_t> devices;   // the CPU, then what the plugin registered
extern std::atomic<bool> gate[8];
extern std::atomic<int> computed;                  // nodes computed by the CPU backend so far

ggml_backend_reg_t load(const char * plugin);      // null = refused

ggml_tensor tensor(ggml_backend_buffer_t buffer, size_t offset, int64_t n);
ggml_tensor add(ggml_tensor * a, ggml_tensor * b, ggml_tensor * into);   // a view of `into`: into = a + b
ggml_tensor wait_for_gate(int number, ggml_tensor * any);

struct graph {   // nodes by pointer, as a host would hold them
    explicit graph(std::vector<ggml_tensor *> n);
    std::vector<ggml_tensor *> nodes;
    ggml_cgraph g;
};

ggml_backend_buffer_t allocate(ggml_backend_buffer_type_t type, size_t bytes);
void release(ggml_backend_buffer_t buffer);
ggml_backend_buffer_type_t pageable();             // the CPU's own memory

}  // namespace fake
