// What the environment asks for.
#pragma once
#include <cstdint>

namespace td {

// What a kind of device promises; data from the Python side (formats/profiles.py).
struct profile {
    char name[64] = "vulkan-like";
    bool async_h2d = true;     // cpy_tensor_async accepts pinned host sources
    bool async_d2d = false;    // cpy_tensor_async accepts another test device as source; runs on the source's queue
    bool events = true;
    bool host_buffer = true;   // offers a pinned host buffer type
    bool pinned_set = true;    // set_tensor_async reads pinned memory when the command runs, not when it is issued
};

struct config {
    unsigned devices = 1;          // TAPEDELAY_DEVICES
    bool devices_chosen = false;   // unset or "auto": none where the host has a GPU, else one
    unsigned threads = 1;          // TAPEDELAY_THREADS: CPU threads of each device
    uint64_t memory_bytes = 8192ull << 20;   // TAPEDELAY_MEM_MB, of each device
    bool synchronous = false;      // TAPEDELAY_SYNC=1: every command is complete before its call returns
    profile device_profile;        // TAPEDELAY_PROFILE, TAPEDELAY_PROFILE_DATA
};

// False: said in one line on stderr what is wrong.
bool config_read(config & out);

// "key=value;key=value" into `out`; unknown keys and values are refused. Null = fine, else what is wrong.
const char * profile_parse(const char * data, profile & out);

}  // namespace td
