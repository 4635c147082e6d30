// Start of the recorder, and what the test devices ask of it.
#include "record.h"

#include <cstdlib>
#include <cstring>
#include <string>

#include "delays.h"
#include "hooks.h"
#include "host.h"
#include "sched_calls.h"
#include "switches.h"
#include "wrap.hpp"

namespace td {

namespace {

constexpr uint32_t PLUGIN_VERSION = 0;

// The state of each switch that is set.
void define_switches() {
    for (int i = 0; i < n_known_switches; i++) {
        const char * value = getenv(known_switches[i].name);
        if (!value) continue;
        char word[SWITCH_WORD_MAX];
        define(D_SWITCH, blob().str(known_switches[i].name).str(switch_word(known_switches[i], value, word)));
    }
}

}  // namespace

bool recorder_start(ggml_backend_reg_t own) {
    const char * directory = getenv("TAPEDELAY_SPOOL");
    if (!directory || !*directory) return false;
    if (!spool_start(directory)) return false;
    internal_scope scope;
    auto version = reinterpret_cast<const char * (*)()>(host_symbol("ggml_version"));
    auto commit_of = reinterpret_cast<const char * (*)()>(host_symbol("ggml_commit"));
    std::string build = version ? version() : "";
    if (commit_of && strcmp(commit_of(), "unknown") != 0) build += std::string("-") + commit_of();
    define(D_PROCESS, blob().u32(static_cast<uint32_t>(host_api)).str("ggml").str(build.c_str()).u32(PLUGIN_VERSION));
    define_switches();
    delays_start();
    // Our own first: their host memory's table is a copy of the CPU's, taken before that one is wrapped.
    for (size_t i = 0, n = own ? own->iface.get_device_count(own) : 0; i < n; i++) wrap_device(own->iface.get_device(own, i));
    wrap_new_devices();
    sched_start();
    return true;
}

uint64_t current_slot() {
    uint64_t c = tl_lane.current;
    return c ? c - 1 : NO_SLOT;
}

void record_exec(uint64_t slot, uint64_t start_ns, uint64_t end_ns) {
    if (slot == NO_SLOT) return;
    entry e = take(K_EXEC, NO_QUEUE, 0);
    if (!e) return;
    put(e, slot, 0, 0, NONE, NONE, NONE);
    e.r->issue_ns = start_ns;
    e.r->end_ns = end_ns;
    commit(e);
}

}  // namespace td

extern "C" __attribute__((visibility("default"))) int tapedelay_stop(void) {
    td::delays_stop();
    td::spool_stop();
    return 0;
}
