#include "filler.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "hooks.h"
#include "host.h"
#include "memory.h"
#include "objects.hpp"
#include "platform_linux.h"

namespace td {

namespace {

// Not every host that can be served has these: without them there is no filler, all else works.
#define TD_FILLER_FUNCTIONS(X)                                                                                   \
    X(ggml_tensor *, ggml_new_tensor_2d, (ggml_context *, int, int64_t, int64_t))                                \
    X(ggml_tensor *, ggml_mul_mat, (ggml_context *, ggml_tensor *, ggml_tensor *))                               \
    X(void, ggml_build_forward_expand, (ggml_cgraph *, ggml_tensor *))                                           \
    X(ggml_backend_buffer_t, ggml_backend_buft_alloc_buffer, (ggml_backend_buffer_type_t, size_t))               \
    X(size_t, ggml_backend_buft_get_alignment, (ggml_backend_buffer_type_t))                                     \
    X(size_t, ggml_backend_buft_get_alloc_size, (ggml_backend_buffer_type_t, const ggml_tensor *))               \
    X(void *, ggml_backend_buffer_get_base, (ggml_backend_buffer_t))                                             \
    X(void, ggml_backend_buffer_clear, (ggml_backend_buffer_t, uint8_t))                                         \
    X(void, ggml_backend_buffer_free, (ggml_backend_buffer_t))                                                   \
    X(ggml_status, ggml_backend_tensor_alloc, (ggml_backend_buffer_t, ggml_tensor *, void *))                    \
    X(void, ggml_backend_tensor_get, (const ggml_tensor *, void *, size_t, size_t))

struct filler_functions {
#define TD_DECLARE(result, name, args) result(*name) args;
    TD_FILLER_FUNCTIONS(TD_DECLARE)
#undef TD_DECLARE
    // An op that keeps the queue busy for so many microseconds; proposed upstream, in no release so far.
    ggml_tensor * (*ggml_sleep)(ggml_context *, ggml_tensor *, int32_t us);
};
filler_functions ggml;

const char * find_functions() {
#define TD_FIND(result, name, args)                                                                              \
    ggml.name = reinterpret_cast<result(*) args>(host_symbol(#name));                                            \
    if (!ggml.name) return "this ggml does not export " #name;
    TD_FILLER_FUNCTIONS(TD_FIND)
#undef TD_FIND
    ggml.ggml_sleep = reinterpret_cast<ggml_tensor * (*)(ggml_context *, ggml_tensor *, int32_t)>(host_symbol("ggml_sleep"));
    return nullptr;
}

// Products, each about eight times the work of the one before. Vectors first: one kernel that every engine uses, and
// a short one. What only fast devices need comes last. A device gets as many as it takes for one of LONG_NS.
struct shape { int64_t rows, columns, depth; };
constexpr shape SHAPES[] = {{1, 1, 512}, {8, 1, 512}, {32, 1, 1024}, {256, 1, 1024}, {2048, 1, 1024},
                            {512, 64, 512}, {512, 512, 512}, {1024, 1024, 1024}, {1024, 1024, 8192}};
constexpr int MAX_STEPS = sizeof SHAPES / sizeof SHAPES[0];
constexpr int MAX_NODES = 512;            // of one graph
constexpr uint64_t LONG_NS = 250000;      // 100 ms are 400 of them at most
constexpr uint64_t KERNEL_NS = 1000;      // no device starts and ends one sooner
constexpr uint64_t TRIAL_NS = 5000000;

// What was measured of a device, by its first backend.
struct calibration {
    const char * refusal = nullptr;
    bool refusal_told = false;            // of the device, or of a later backend of it
    bool sleeps = false;                  // by the build's own op
    int steps = 0;
    uint64_t ns[MAX_STEPS] = {};          // of one product
    uint64_t trial_ns = 0;                // what a filler of TRIAL_NS took
};
pointer_map<calibration> calibrations;    // by device

struct filler {
    ggml_backend_t backend;
    ggml_backend_i iface;                 // as it was
    ggml_backend_dev_t device;
    calibration * measured;
    ggml_backend_buffer_t buffer = nullptr;
    ggml_context * leaves = nullptr;      // what the products read, and where they write
    struct operand { ggml_tensor * left, * right, * product; } operands[MAX_STEPS] = {};
    void * room = nullptr;                // of the graph
    size_t room_bytes = 0;
    ggml_context * context = nullptr;     // in `room`
    ggml_cgraph * graph = nullptr;
    uint16_t built[MAX_STEPS] = {};       // products in `graph`
    uint32_t built_us = 0;                // or its sleep
    bool used = false;                    // something may be pending
};
pointer_map<filler> fillers;              // by backend

std::mutex & preparing() {
    static std::mutex * m = new std::mutex;
    return *m;
}

uint64_t now() { return platform::mono_ns(); }

size_t up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// A synchronize that does nothing is enough where each read waits for what was sent before it (RPC): read, too.
void wait(filler & f) {
    float value;
    f.iface.synchronize(f.backend);
    ggml.ggml_backend_tensor_get(f.operands[0].product, &value, 0, sizeof value);
    f.used = false;
}

void drop_memory(filler & f) {
    if (f.buffer && f.used) wait(f);
    if (f.context) host.ggml_free(f.context);
    if (f.leaves) host.ggml_free(f.leaves);
    if (f.buffer) ggml.ggml_backend_buffer_free(f.buffer);
    f.context = f.leaves = nullptr;
    f.graph = nullptr;
    f.buffer = nullptr;
    memset(f.built, 0, sizeof f.built);
    f.built_us = 0;
}

// Tensors for the first `steps` products in one buffer, all zero: all steps share their bytes. Null = done, else why not.
const char * take_memory(filler & f, const device_info & d, int steps) {
    ggml_backend_buffer_type_t type = d.iface.get_buffer_type ? d.iface.get_buffer_type(f.device) : nullptr;
    if (!type) return "the device has no memory of its own";
    drop_memory(f);
    f.leaves = host.ggml_init({(3 * MAX_STEPS + 1) * host.ggml_tensor_overhead(), nullptr, true});
    if (!f.leaves) return "out of memory";
    const size_t alignment = std::max<size_t>(ggml.ggml_backend_buft_get_alignment(type), 16);
    size_t left_bytes = 0, right_bytes = 0, product_bytes = 0;
    auto size_of = [&](const ggml_tensor * t) { return up(ggml.ggml_backend_buft_get_alloc_size(type, t), alignment); };
    for (int i = 0; i < steps; i++) {
        const shape & s = SHAPES[i];
        filler::operand & o = f.operands[i];
        o.left = ggml.ggml_new_tensor_2d(f.leaves, GGML_TYPE_F32, s.depth, s.rows);
        o.right = ggml.ggml_new_tensor_2d(f.leaves, GGML_TYPE_F32, s.depth, s.columns);
        o.product = ggml.ggml_mul_mat(f.leaves, o.left, o.right);
        left_bytes = std::max(left_bytes, size_of(o.left));
        right_bytes = std::max(right_bytes, size_of(o.right));
        product_bytes = std::max(product_bytes, size_of(o.product));
    }
    if (d.iface.supports_op && !d.iface.supports_op(f.device, f.operands[steps - 1].product)) {
        return "the device computes no matrix product of 32-bit floats";
    }
    f.buffer = ggml.ggml_backend_buft_alloc_buffer(type, left_bytes + right_bytes + product_bytes + alignment);
    if (!f.buffer) return "the device gave no memory for it";
    auto base = up(reinterpret_cast<size_t>(ggml.ggml_backend_buffer_get_base(f.buffer)), alignment);
    for (int i = 0; i < steps; i++) {
        ggml_tensor * const tensors[] = {f.operands[i].left, f.operands[i].right, f.operands[i].product};
        const size_t at[] = {base, base + left_bytes, base + left_bytes + right_bytes};
        for (int k = 0; k < 3; k++) {
            if (ggml.ggml_backend_tensor_alloc(f.buffer, tensors[k], reinterpret_cast<void *>(at[k])) != GGML_STATUS_SUCCESS) {
                return "the device gave no memory for it";
            }
        }
    }
    ggml.ggml_backend_buffer_clear(f.buffer, 0);
    return nullptr;
}

// An empty graph in place of the old one; what is still pending was copied when it was enqueued.
bool new_graph(filler & f) {
    memset(f.built, 0, sizeof f.built);
    f.built_us = 0;
    if (f.context) host.ggml_free(f.context);
    f.context = host.ggml_init({f.room_bytes, f.room, true});
    f.graph = f.context ? host.ggml_new_graph_custom(f.context, 2 * MAX_NODES, false) : nullptr;
    return f.graph != nullptr;
}

// A node that writes where `like` lies. ggml_build_forward_expand marks it as to be computed, which adding it does not.
void append(filler & f, ggml_tensor * node, const ggml_tensor * like) {
    node->buffer = like->buffer;
    node->data = like->data;
    node->extra = like->extra;
    ggml.ggml_build_forward_expand(f.graph, node);
}

bool enqueue_graph(filler & f) {
    f.used = true;
    return f.iface.graph_compute(f.backend, f.graph) == GGML_STATUS_SUCCESS;
}

// All products write to the same place, so that no device runs two of them at once.
bool enqueue_products(filler & f, const uint16_t * counts) {
    if (!f.graph || memcmp(f.built, counts, sizeof f.built) != 0) {
        if (!new_graph(f)) return false;
        for (int i = 0; i < MAX_STEPS; i++) {
            const filler::operand & o = f.operands[i];
            for (int k = 0; k < counts[i]; k++) append(f, ggml.ggml_mul_mat(f.context, o.left, o.right), o.product);
        }
        memcpy(f.built, counts, sizeof f.built);
    }
    return enqueue_graph(f);
}

bool enqueue_sleep(filler & f, uint32_t us) {
    if (!f.graph || f.built_us != us) {
        if (!new_graph(f)) return false;
        append(f, ggml.ggml_sleep(f.context, f.operands[0].product, static_cast<int32_t>(us)), f.operands[0].right);
        f.built_us = us;
    }
    return enqueue_graph(f);
}

// Fills `counts` with products of about `ns` together; returns their length.
uint64_t compose(const calibration & c, uint64_t ns, uint16_t * counts) {
    uint64_t total = 0;
    int left = MAX_NODES;
    for (int i = c.steps - 1; i >= 0; i--) {
        uint64_t n = (ns - total + (i ? 0 : c.ns[0] / 2)) / c.ns[i];   // the shortest one rounds
        n = std::min<uint64_t>(n, static_cast<uint64_t>(left));
        counts[i] = static_cast<uint16_t>(n);
        left -= static_cast<int>(n);
        total += n * c.ns[i];
        if (total >= ns) break;
    }
    if (!total) {
        counts[0] = 1;
        total = c.ns[0];
    }
    return total;
}

bool enqueue(filler & f, uint64_t ns, uint64_t & true_ns) {
    const calibration & c = *f.measured;
    true_ns = 0;
    if (c.sleeps) {
        const uint64_t us = std::min<uint64_t>(std::max<uint64_t>((ns + 500) / 1000, 1), INT32_MAX);
        true_ns = us * 1000;
        return enqueue_sleep(f, static_cast<uint32_t>(us));
    }
    // Longer ones than a graph holds: several graphs.
    const uint64_t most = c.ns[c.steps - 1] * (MAX_NODES / 2);
    do {
        uint16_t counts[MAX_STEPS] = {};
        const uint64_t part = compose(c, std::min(ns - true_ns, most), counts);
        if (!enqueue_products(f, counts)) return false;
        true_ns += part;
    } while (true_ns + c.ns[0] / 2 < ns);
    return true;
}

// --- measuring

// The shortest of some runs on an idle queue: what disturbs only ever adds. 0 = the device refused.
template <class F>
uint64_t shortest(filler & f, F enqueue_once) {
    constexpr int RUNS = 15;
    constexpr uint64_t ENOUGH_NS = 60000000;
    uint64_t best = UINT64_MAX;
    const uint64_t begin = now();
    for (int i = 0; i < RUNS && (i < 5 || now() - begin < ENOUGH_NS); i++) {
        const uint64_t start = now();
        if (!enqueue_once()) return 0;
        wait(f);
        best = std::min(best, now() - start);
    }
    return best;
}

// One product, as the slope over their number: what a graph costs by itself does not count.
uint64_t measure_step(filler & f, int step) {
    auto run = [&](int n) {
        uint16_t counts[MAX_STEPS] = {};
        counts[step] = static_cast<uint16_t>(n);
        return shortest(f, [&] { return enqueue_products(f, counts); });
    };
    const uint64_t one = run(1);
    if (!one) return 0;
    uint64_t many = 0;
    int n = 1;
    do {   // until their number is what takes the time, be `one` disturbed or not
        n *= 4;
        many = run(n);
        if (!many) return 0;
    } while (n < MAX_NODES / 2 && (many < 2 * LONG_NS || many < 3 * one));
    return std::max<uint64_t>(many > one ? (many - one) / static_cast<uint64_t>(n - 1) : many / static_cast<uint64_t>(n), 1);
}

const char * measure_products(filler & f, const device_info & d, calibration & c) {
    for (int i = 0; i < MAX_STEPS; i++) {
        const char * refused = take_memory(f, d, i + 1);
        const uint64_t ns = refused ? 0 : measure_step(f, i);
        if (!refused && !ns) refused = "the device failed to compute it";
        if (refused) {
            if (!i) return refused;
            return take_memory(f, d, c.steps);   // what was had before is enough, if slower to enqueue
        }
        c.ns[i] = i ? std::max(ns, c.ns[i - 1]) : ns;
        c.steps = i + 1;
        if (ns >= LONG_NS) break;
    }
    return nullptr;
}

bool has_sleep(filler & f, const device_info & d) {
    if (!ggml.ggml_sleep || !new_graph(f)) return false;
    ggml_tensor * t = ggml.ggml_sleep(f.context, f.operands[0].product, 1);
    return t && d.iface.supports_op && d.iface.supports_op(f.device, t);
}

// What a filler of TRIAL_NS takes; 0 = it failed.
uint64_t trial(filler & f) {
    uint64_t true_ns;
    return shortest(f, [&] { return enqueue(f, TRIAL_NS, true_ns); });
}

const char * calibrate(filler & f, const device_info & d, calibration & c) {
    if (const char * refused = take_memory(f, d, 1)) return refused;
    if (has_sleep(f, d)) {
        c.sleeps = true;
        c.trial_ns = trial(f);
        if (c.trial_ns >= TRIAL_NS && c.trial_ns < 2 * TRIAL_NS) return nullptr;
        c.sleeps = false;   // it is there, and does something else
    }
    if (const char * refused = measure_products(f, d, c)) return refused;
    for (int tries = 0; tries < 4; tries++) {
        c.trial_ns = trial(f);
        if (!c.trial_ns) return "the device failed to compute it";
        if (c.trial_ns >= TRIAL_NS) break;
        // Something else had the processor while the products were measured: they are shorter.
        for (int i = 0; i < c.steps; i++) c.ns[i] = std::max<uint64_t>(c.ns[i] * c.trial_ns / TRIAL_NS, 1);
    }
    return c.ns[c.steps - 1] < KERNEL_NS ? "the device does not compute what nobody reads" : nullptr;
}

// A further backend of a device that was measured: its memory, and one run of each product to load the kernels.
const char * follow(filler & f, const device_info & d) {
    const calibration & c = *f.measured;
    if (const char * refused = take_memory(f, d, std::max(c.steps, 1))) return refused;
    uint16_t counts[MAX_STEPS] = {};
    for (int i = 0; i < c.steps; i++) counts[i] = 1;
    if (!(c.sleeps ? enqueue_sleep(f, 1) : enqueue_products(f, counts))) return "the device failed to compute it";
    wait(f);
    return nullptr;
}

const char * prepare(filler & f, const device_info & d) {
    if (d.meta) return "it is made of other devices, which have queues of their own";
    if (!f.iface.synchronize || !f.iface.graph_compute) return "it has no queue: its calls work on the host";
    f.room_bytes = (MAX_NODES + 8) * host.ggml_tensor_overhead() + host.ggml_graph_overhead_custom(2 * MAX_NODES, false) + 4096;
    f.room = try_zeroed(1, f.room_bytes);
    if (!f.room) return "out of memory";
    return f.measured->steps || f.measured->sleeps ? follow(f, d) : calibrate(f, d, *f.measured);
}

void tell(const device_info & d, const calibration & c) {
    const uint64_t shortest_ns = c.sleeps ? 1000 : c.ns[0], longest_ns = c.sleeps ? 1000 : c.ns[c.steps - 1];
    define(D_FILLER, blob().u32(d.id).u32(c.sleeps).u64(shortest_ns).u64(longest_ns).u64(TRIAL_NS).u64(c.trial_ns));
}

void tell_refusal(const char * name, const char * why) {
    say("no delays on the device's side on %s: %s", name, why);
    char note[256];
    snprintf(note, sizeof note, "no delays on the device's side on %s: %s", name, why);
    define(D_NOTE, blob().str(note));
}

}  // namespace

bool filler_prepare(ggml_backend_t backend) {
    queue_info * q = queues.find(backend);
    if (!q) return false;
    internal_scope quiet;
    // Not the slow path's: other threads of the engine need not wait until this device is measured.
    std::lock_guard<std::mutex> guard(preparing());
    if (filler * known = fillers.find(backend)) return known->buffer;
    const device_info & d = *q->device;
    calibration * c = calibrations.find(backend->device);
    const bool first = !c;
    if (first) c = new calibration;
    auto * f = new filler{};
    f->backend = backend;
    f->iface = q->iface;
    f->device = backend->device;
    f->measured = c;
    static const char * const missing = find_functions();
    const char * refused = missing ? missing : c->refusal ? c->refusal : prepare(*f, d);
    if (refused) drop_memory(*f);
    if (first) c->refusal = refused;
    if (refused && !c->refusal_told) {
        c->refusal_told = true;
        tell_refusal(shown_name(d.iface.get_name(backend->device)).c_str(), refused);
    }
    if (first && !refused) tell(d, *c);
    std::lock_guard<std::recursive_mutex> objects(slow_path());
    if (first) calibrations.add(backend->device, c);
    fillers.add(backend, f);
    return !refused;
}

bool filler_enqueue(ggml_backend_t backend, uint64_t ns, uint64_t & true_ns) {
    true_ns = 0;
    filler * f = fillers.find(backend);
    if (!f || !f->buffer) return false;
    internal_scope quiet;
    return enqueue(*f, ns, true_ns);
}

const char * filler_refusal(ggml_backend_t backend) {
    filler * f = fillers.find(backend);
    if (f && f->buffer) return nullptr;
    if (f && f->measured->refusal) return f->measured->refusal;
    return f ? "the device gave no memory for it" : "it was not prepared for this backend";
}

void filler_release(ggml_backend_t backend) {
    filler * f = fillers.find(backend);
    if (!f) return;
    internal_scope quiet;
    {
        std::lock_guard<std::recursive_mutex> objects(slow_path());
        fillers.remove(backend);
    }
    drop_memory(*f);
    free(f->room);
    delete f;
}

}  // namespace td
