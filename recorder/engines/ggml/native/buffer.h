// Memory of the test devices: the device's own, which the host may not touch, and pinned host memory.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ggml_abi.h"

namespace td {

// Storage of a buffer type in the layout of the host's API version.
union buffer_type_storage {
    ggml_backend_buffer_type_v2 v2;
    ggml_backend_buffer_type_v3 v3;
    ggml_backend_buffer_type_t get() { return reinterpret_cast<ggml_backend_buffer_type_t>(this); }
};

struct memory_pool {   // context of a buffer type
    const char * name;
    bool pinned;       // host memory
    uint64_t limit_bytes;
    std::atomic<uint64_t> used_bytes{0};
};

void buffer_type_init(buffer_type_storage & out, ggml_backend_dev_t device, memory_pool * pool);

bool is_device_buffer(ggml_backend_buffer_t b);   // of any test device
bool is_pinned_buffer(ggml_backend_buffer_t b);
bool is_pinned(const void * at, size_t bytes);    // lies wholly in one live pinned buffer

}  // namespace td
