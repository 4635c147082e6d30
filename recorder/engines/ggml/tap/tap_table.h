// What the tap (LD_PRELOAD) and the plugin say to each other. The plugin, once it records, looks for the tap's one
// symbol of its own and hands it a table of functions; until then, and in every process without the plugin, the tap
// passes calls on and does nothing else.
#pragma once
#include <cstdint>

extern "C" {

enum : uint32_t { TAPEDELAY_TAP_VERSION = 1 };

enum tapedelay_tap_kind : uint32_t {
    TAPEDELAY_TAP_NEW,
    TAPEDELAY_TAP_FREE,
    TAPEDELAY_TAP_COMPUTE,         // and waits for the end
    TAPEDELAY_TAP_COMPUTE_ASYNC,
    TAPEDELAY_TAP_ALLOC,
    TAPEDELAY_TAP_RESET,
    TAPEDELAY_TAP_PIN,             // ggml_backend_sched_set_tensor_backend
    TAPEDELAY_TAP_KINDS,
};

// Room for the plugin on the caller's stack, from `begin` to `end` of one call.
struct tapedelay_tap_call {
    uint64_t words[6];
};

struct tapedelay_tap_table {
    uint32_t version;     // TAPEDELAY_TAP_VERSION
    uint32_t bytes;       // sizeof
    const void * ggml;    // base address of the object with the ggml that is recorded; calls to another copy pass by
    bool (*knows)(void * sched);   // whether it is a scheduler of that ggml
    // A scheduler was made (after the call) ...
    void (*made)(void * sched, void ** backends, void ** buffer_types, int n_backends, uint64_t graph_size, bool parallel, bool op_offload);
    void (*gone)(void * sched);   // ... and is about to be freed
    // Around COMPUTE, COMPUTE_ASYNC, ALLOC, RESET. `end` is not called if an exception passes through the call.
    void (*begin)(tapedelay_tap_call * call, uint32_t kind, void * sched, void * graph);
    void (*end)(tapedelay_tap_call * call, bool done);
    void (*pinned)(void * sched, void * tensor, void * backend);
};

// Exported by the tap. Returns its version; 0 = it does not understand the table and does nothing.
uint32_t tapedelay_tap_attach(const tapedelay_tap_table * table);

}  // extern "C"
