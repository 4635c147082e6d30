#include "sched_calls.h"

#include <atomic>
#include <new>

#include "../tap/tap_table.h"
#include "hooks.h"
#include "host.h"
#include "mixer.hpp"
#include "platform_linux.h"
#include "record.h"
#include "sched_graph.hpp"
#include "wrap.hpp"

namespace td {

namespace {

enum : uint32_t { PARALLEL = 1, OFFLOADS = 2, LATE = 4 };

// ggml's rules serialise the calls on one scheduler.
struct sched_info {
    uint32_t id = NONE;
    bool late = false;
    uint64_t config = 0;
    array<pin> pins;                        // since the last reset
    tensor_index index;
    // The graph that it holds, as it was received: what it makes of it (copies as sources) came later.
    const ggml_cgraph * graph = nullptr;
    ggml_tensor ** nodes = nullptr;
    int n_nodes = 0;
    uint64_t uid = 0;
    uint32_t graph_id = NONE;
};

// One call in the making; lies in the tap's tapedelay_tap_call.
struct frame {
    sched_info * s;
    void * sched;
    ggml_cgraph * graph;
    record * r;
    uint64_t slot;
    uint32_t kind;
    bool inner;          // the asynchronous part of a call that is being recorded
};
static_assert(sizeof(frame) <= sizeof(tapedelay_tap_call), "room on the caller's stack");

// The calls that a thread is in. By value: an exception that passes through a call leaves its frame behind.
struct level {
    const void * at;     // where its frame lies; outer ones lie higher
    sched_info * s;
    record * r;          // of this call, null = none
    uint64_t slot;
    uint32_t kind;
    bool done;
};
constexpr uint32_t MAX_LEVELS = 8;
constexpr size_t MAX_PINS = 1 << 16;
__thread level levels[MAX_LEVELS];
__thread uint32_t n_levels;

pointer_map<sched_info> scheds;
uint32_t n_scheds;
std::atomic<uint64_t> n_steps{0};

// Of the bound ggml; null where it has none.
int (*sched_splits)(void *);
int (*sched_copies)(void *);
int (*sched_backends)(void *);
ggml_backend_t (*sched_backend)(void *, int);
ggml_backend_buffer_type_t (*sched_buffer_type)(void *, ggml_backend_t);

template <class F>
void find(F & function, const char * name) { function = reinterpret_cast<F>(host_symbol(name)); }

bool is_compute(uint32_t kind) { return kind == TAPEDELAY_TAP_COMPUTE || kind == TAPEDELAY_TAP_COMPUTE_ASYNC; }

void mix_text(mixer & m, const char * text) {
    for (; text && *text; text++) m.add(static_cast<unsigned char>(*text), 1);
}

// Null: recording has ended, or there is no memory.
sched_info * define_sched(void * sched, uint32_t flags) {
    internal_scope quiet;
    std::lock_guard<std::recursive_mutex> guard(slow_path());
    if (spool_over()) return nullptr;
    auto * s = new (std::nothrow) sched_info{};
    if (!s) return nullptr;
    const int n = sched_backends && sched_backend ? sched_backends(sched) : 0;
    const auto copies = static_cast<uint32_t>(sched_copies ? sched_copies(sched) : 0);
    blob b;
    b.u32(n_scheds).u32(flags).u32(copies).u32(static_cast<uint32_t>(n));
    mixer m;
    m.add(flags, copies);
    for (int i = 0; i < n; i++) {
        ggml_backend_t backend = sched_backend(sched, i);
        queue_info * q = queues.find(backend);
        device_info * d = backend ? device_of(backend->device) : nullptr;
        ggml_backend_buffer_type_t type = sched_buffer_type ? sched_buffer_type(sched, backend) : nullptr;
        const char * text = type ? buft_name(type) : "";
        b.u32(q ? q->id : NONE).u32(d ? d->id : NONE).str(text);
        m.add(d ? d->id : NONE, 2);
        mix_text(m, text);
    }
    s->late = flags & LATE;
    s->config = m.a ^ m.b;
    if (!define(D_SCHED, b)) { delete s; return nullptr; }
    s->id = n_scheds++;
    scheds.add(sched, s);
    return s;
}

sched_info * sched_of(void * sched) {
    if (sched_info * s = scheds.find(sched)) return s;
    return sched ? define_sched(sched, LATE) : nullptr;
}

void forget_graph(sched_info & s) {
    s.graph = nullptr;
    s.graph_id = NONE;
}

bool holds(const sched_info & s, const ggml_cgraph * g) {
    return s.graph == g && s.nodes == g->nodes && s.n_nodes == g->n_nodes && s.uid == g->uid;
}

void receive(sched_info & s, const ggml_cgraph * g) {
    internal_scope quiet;
    s.graph = g;
    s.nodes = g->nodes;
    s.n_nodes = g->n_nodes;
    s.uid = g->uid;
    s.graph_id = graph_id({g, s.id, s.config, &s.pins, &s.index});
}

// Calls that an exception ended: their frames are gone.
void drop_dead(const void * here) {
    while (n_levels && levels[n_levels - 1].at <= here) {
        const level & l = levels[--n_levels];
        if (l.r && !l.done) {
            l.r->flags = static_cast<uint8_t>(l.r->flags | F_FAILED);
            finish({l.r, l.slot});
        }
    }
}

const level * computing(const sched_info * s) {
    for (uint32_t i = n_levels; i--;) if (levels[i].s == s && is_compute(levels[i].kind)) return &levels[i];
    return nullptr;
}

// --- the table ---------------------------------------------------------------------------------------------------

bool knows(void * sched) { return scheds.find(sched) != nullptr; }

void made(void * sched, void **, void **, int, uint64_t, bool parallel, bool op_offload) {
    if (internal) return;
    define_sched(sched, (parallel ? PARALLEL : 0u) | (op_offload ? OFFLOADS : 0u));
}

void gone(void * sched) {
    std::lock_guard<std::recursive_mutex> guard(slow_path());
    if (scheds.find(sched)) scheds.remove(sched);
}

void pinned(void * sched, void * tensor, void * backend) {
    sched_info * s = internal ? nullptr : sched_of(sched);
    if (!s) return;
    auto * b = static_cast<ggml_backend_t>(backend);
    device_info * d = b ? device_of(b->device) : nullptr;
    if (s->pins.size() < MAX_PINS) s->pins.push_back({static_cast<const ggml_tensor *>(tensor), d ? d->id : NONE});
}

void begin(tapedelay_tap_call * call, uint32_t kind, void * sched, void * graph) {
    drop_dead(call);
    auto & f = *reinterpret_cast<frame *>(call);
    f = {};
    if (internal) return;
    sched_info * s = sched_of(sched);
    if (!s) return;
    f.s = s;
    f.sched = sched;
    f.kind = kind;
    f.graph = static_cast<ggml_cgraph *>(graph);
    const level * outer = computing(s);
    entry e;
    if (is_compute(kind) && f.graph) {
        f.inner = outer != nullptr;
        if (!f.inner) {
            // Not allocated yet, so it is as the program built it; what a scheduler that was seen late holds is not.
            if (!holds(*s, f.graph) && !s->late) receive(*s, f.graph);
            e = emit(K_SCHED_COMPUTE, NO_QUEUE, 0, f.graph->uid, n_steps.fetch_add(1, std::memory_order_relaxed), 0,
                     holds(*s, f.graph) ? s->graph_id : NONE, s->id);
        }
    } else if (kind == TAPEDELAY_TAP_ALLOC && f.graph) {
        if (!outer || !holds(*s, f.graph)) receive(*s, f.graph);
        e = emit(K_SCHED_ALLOC, NO_QUEUE, 0, f.graph->uid, 0, 0, s->graph_id, s->id);
    } else if (kind == TAPEDELAY_TAP_RESET) {
        forget_graph(*s);
        s->pins.clear();
        e = emit(K_SCHED_RESET, NO_QUEUE, 0, 0, 0, 0, NONE, s->id);
    }
    f.r = e.r;
    f.slot = e.slot;
    if (n_levels < MAX_LEVELS) levels[n_levels++] = {call, s, e.r, e.slot, kind, false};
}

void end(tapedelay_tap_call * call, bool done) {
    auto & f = *reinterpret_cast<frame *>(call);
    sched_info * s = f.s;
    if (!s) return;
    drop_dead(reinterpret_cast<const char *>(call) - 1);
    bool written = false;
    if (n_levels && levels[n_levels - 1].at == call) written = levels[--n_levels].done;
    if (f.kind == TAPEDELAY_TAP_ALLOC) {
        if (!done) forget_graph(*s);
        else if (s->graph == f.graph) s->uid = f.graph->uid;   // given by the call
    }
    entry e = {f.r, f.slot};
    if (f.inner) {   // the rest of the outer call is waiting
        for (uint32_t i = n_levels; i--;) {
            level & l = levels[i];
            if (l.s != s || !is_compute(l.kind)) continue;
            e = {l.r, l.slot};
            written = l.done;
            l.done = true;
            break;
        }
    }
    if (is_compute(f.kind) && f.graph) {
        if (s->graph == f.graph) s->uid = f.graph->uid;
        if (e && !written) {
            e.r->a = f.graph->uid;
            e.r->c = static_cast<uint64_t>(sched_splits ? sched_splits(f.sched) : 0);
            if (s->graph == f.graph) e.r->d = s->graph_id;
        }
    }
    if (!e || written) return;
    if (!done) e.r->flags = static_cast<uint8_t>(e.r->flags | F_FAILED);
    finish(e);
}

const tapedelay_tap_table * table() {
    static tapedelay_tap_table t;
    t = {TAPEDELAY_TAP_VERSION, sizeof t, platform::object_of(reinterpret_cast<const void *>(host.ggml_backend_buffer_init)),
         knows, made, gone, begin, end, pinned};
    return &t;
}

}  // namespace

void sched_start() {
    auto attach = reinterpret_cast<uint32_t (*)(const tapedelay_tap_table *)>(platform::symbol_in(nullptr, "tapedelay_tap_attach"));
    if (!attach) return;
    find(sched_splits, "ggml_backend_sched_get_n_splits");
    find(sched_copies, "ggml_backend_sched_get_n_copies");
    find(sched_backends, "ggml_backend_sched_get_n_backends");
    find(sched_backend, "ggml_backend_sched_get_backend");
    find(sched_buffer_type, "ggml_backend_sched_get_buffer_type");
    const uint32_t version = attach(table());
    if (version) define(D_TAP, blob().u32(version));
}

}  // namespace td
