// Backends (queues): computes, asynchronous copies, events, synchronisation.
#include "delays.h"
#include "filler.h"
#include "graph_set.hpp"
#include "hooks.h"
#include "host.h"
#include "record.h"
#include "wrap.hpp"

namespace td {

namespace {

// Set by split_copy while a cpy_tensor_async runs on this thread.
__thread ggml_backend_t copy_source, copy_destination;

queue_info & info(ggml_backend_t b) { return *queues.find(b); }

// A call on a meta device: what its simple backends do meanwhile carries F_CHILD.
class meta_scope {
public:
    explicit meta_scope(bool on) : on_(on) { tl_lane.meta += on_; }
    ~meta_scope() { tl_lane.meta -= on_; }
    meta_scope(const meta_scope &) = delete;
    meta_scope & operator=(const meta_scope &) = delete;
private:
    uint32_t on_;
};

uint8_t flags_of(const queue_info & q) {
    return static_cast<uint8_t>((q.async ? 0 : F_HOST) | (q.device->meta ? F_META : 0));
}

uint64_t hull(size_t size, size_t n, size_t stride) { return n ? (n - 1) * stride + size : 0; }

const void * buffer_type(const ggml_tensor * t) {
    ggml_backend_buffer_t b = tensor_buffer(t);
    return b ? b->buft : nullptr;
}

place host_place(const void * p, uint64_t bytes) {
    host_spot at = host_at(p, bytes);
    return {at.buffer, at.offset};
}

// Runs `call` under a committed record; end_ns where the call works on the host or waits.
template <class F>
void under(const queue_info & q, const entry & e, bool blocks, delayed & op, F call) {
    op.issued(e);
    {
        inside in(e);
        meta_scope meta(q.device->meta);
        call();
    }
    if (blocks || !q.async) finish(e);
    op.returned();
}

// Whether an asynchronous set has read its source when it returns. Known of test devices, and of CUDA's.
bool reads_now(const queue_info & q, const host_spot & from, const void * data, uint64_t bytes) {
    return q.device->test ? set_reads_now(data, bytes) : q.device->stages && from.pageable;
}

// An asynchronous set from `bytes` at `data`. Where its source is known and read at once there are two records: the
// reading by this thread, and what the queue does later.
template <class F>
void set_async(const queue_info & q, ggml_backend_t b, const void * data, uint64_t bytes, const place & to, uint64_t to_bytes, uint8_t span, uint32_t name, F call) {
    host_spot from = host_at(data, bytes);
    if (q.device->meta) from = {};   // its children name what they read of it
    entry read;
    const bool now = from.buffer != NONE && q.async && reads_now(q, from, data, bytes);
    delayed reading;
    if (now) {
        if (delays_on) reading.begin(OP_COPY, nullptr, nullptr, name, NONE);
        read = emit(K_SET, q.id, static_cast<uint8_t>(F_HOST | span), from.offset, 0, bytes, from.buffer, NONE, name);
        reading.issued(read);
        from = {};
    }
    delayed op(OP_COPY, &q, b, name);
    entry e = emit(K_SET, q.id, static_cast<uint8_t>(flags_of(q) | span), from.offset, to.offset, to_bytes, from.buffer, to.buffer, name);
    under(q, e, false, op, call);
    finish(read);
    reading.returned();
}

ggml_status compute(queue_info & q, ggml_backend_t b, const graph_set & s, uint64_t uid, uint32_t nodes, ggml_status (*call)(void *, void *), void * x, void * y) {
    delayed op(OP_COMPUTE, &q, b, s.name, s.set);
    uint64_t n = q.computes.fetch_add(1, std::memory_order_relaxed);
    entry e = take(K_COMPUTE, q.id, flags_of(q));
    if (e) {
        put(e, uid, n, 0, s.set, nodes, s.name);
        commit(e);
    }
    ggml_status status = GGML_STATUS_SUCCESS;
    under(q, e, false, op, [&] { status = call(x, y); });
    if (e && status != GGML_STATUS_SUCCESS) e.r->flags |= F_FAILED;
    return status;
}

ggml_status w_compute(ggml_backend_t b, ggml_cgraph * g) {
    queue_info & q = info(b);
    if (internal) return q.iface.graph_compute(b, g);
    graph_set s;
    if (!q.device->meta) s = set_of(q, g);
    struct pack { ggml_backend_t b; queue_info * q; } p{b, &q};
    return compute(q, b, s, g->uid, static_cast<uint32_t>(g->n_nodes),
                   [](void * x, void * y) { auto * k = static_cast<pack *>(x); return k->q->iface.graph_compute(k->b, static_cast<ggml_cgraph *>(y)); }, &p, g);
}

void plan_known(queue_info & q, ggml_backend_graph_plan_t plan, const ggml_cgraph * g) {
    if (!plan) return;
    graph_set s = set_of(q, g);
    std::lock_guard<std::recursive_mutex> guard(slow_path());
    plans.remove(plan);   // an earlier one at the same address
    auto * known = new (std::nothrow) plan_info{s.set, static_cast<uint32_t>(g->n_nodes), s.name, g->uid};
    if (known && !plans.add(plan, known)) delete known;
}

ggml_backend_graph_plan_t w_plan_create(ggml_backend_t b, const ggml_cgraph * g) {
    queue_info & q = info(b);
    ggml_backend_graph_plan_t plan = q.iface.graph_plan_create(b, g);
    if (!internal) plan_known(q, plan, g);
    return plan;
}

void w_plan_update(ggml_backend_t b, ggml_backend_graph_plan_t plan, const ggml_cgraph * g) {
    queue_info & q = info(b);
    q.iface.graph_plan_update(b, plan, g);
    if (!internal) plan_known(q, plan, g);
}

ggml_status w_plan_compute(ggml_backend_t b, ggml_backend_graph_plan_t plan) {
    queue_info & q = info(b);
    if (internal) return q.iface.graph_plan_compute(b, plan);
    plan_info * k = plans.find(plan);
    struct pack { ggml_backend_t b; queue_info * q; } p{b, &q};
    return compute(q, b, k ? graph_set{k->set, k->name} : graph_set{}, k ? k->uid : 0, k ? k->nodes : 0,
                   [](void * x, void * y) { auto * c = static_cast<pack *>(x); return c->q->iface.graph_plan_compute(c->b, y); }, &p, plan);
}

void w_set(ggml_backend_t b, ggml_tensor * t, const void * data, size_t offset, size_t size) {
    queue_info & q = info(b);
    if (internal) return q.iface.set_tensor_async(b, t, data, offset, size);
    place to = place_of(t);
    to.offset += offset;
    set_async(q, b, data, size, to, size, 0, name_id(t->name), [&] { q.iface.set_tensor_async(b, t, data, offset, size); });
}

void w_get(ggml_backend_t b, const ggml_tensor * t, void * data, size_t offset, size_t size) {
    queue_info & q = info(b);
    if (internal) return q.iface.get_tensor_async(b, t, data, offset, size);
    place from = place_of(t), to = host_place(data, size);
    uint32_t name = name_id(t->name);
    delayed op(OP_COPY, &q, b, name);
    entry e = emit(K_GET, q.id, flags_of(q), from.offset + offset, to.offset, size, from.buffer, to.buffer, name);
    under(q, e, false, op, [&] { q.iface.get_tensor_async(b, t, data, offset, size); });
}

void w_set_2d(ggml_backend_t b, ggml_tensor * t, const void * data, size_t offset, size_t size, size_t n, size_t st, size_t sd) {
    queue_info & q = info(b);
    if (internal) return q.iface.set_tensor_2d_async(b, t, data, offset, size, n, st, sd);
    place to = place_of(t);
    to.offset += offset;
    set_async(q, b, data, hull(size, n, sd), to, hull(size, n, st), st == size && sd == size ? 0 : F_SPAN, name_id(t->name),
              [&] { q.iface.set_tensor_2d_async(b, t, data, offset, size, n, st, sd); });
}

void w_get_2d(ggml_backend_t b, const ggml_tensor * t, void * data, size_t offset, size_t size, size_t n, size_t st, size_t sd) {
    queue_info & q = info(b);
    if (internal) return q.iface.get_tensor_2d_async(b, t, data, offset, size, n, st, sd);
    place from = place_of(t), to = host_place(data, hull(size, n, sd));
    auto flags = static_cast<uint8_t>(flags_of(q) | (st == size && sd == size ? 0 : F_SPAN));
    uint32_t name = name_id(t->name);
    delayed op(OP_COPY, &q, b, name);
    entry e = emit(K_GET, q.id, flags, from.offset + offset, to.offset, hull(size, n, st), from.buffer, to.buffer, name);
    under(q, e, false, op, [&] { q.iface.get_tensor_2d_async(b, t, data, offset, size, n, st, sd); });
}

bool w_cpy(ggml_backend_t src, ggml_backend_t dst, const ggml_tensor * s, ggml_tensor * d) {
    queue_info & q = info(dst);
    if (internal) return q.iface.cpy_tensor_async(src, dst, s, d);
    bool gaps = false, ok = false;
    uint64_t bytes = tensor_span(s, gaps);
    place from = place_of(s), to = place_of(d);
    uint32_t name = name_id(s->name);
    // Delays have to know before the call whether it is declined, and where the copy runs.
    delayed op;
    const copy_route route{src->device, dst->device, buffer_type(s), buffer_type(d)};
    if (delays_on && (q.device->test ? test_copy_accepted(src, dst, s, d) : copy_expected(route))) {
        ggml_backend_t at = q.device->cuda || test_copy_runs_on_source(src, dst, s) ? src : dst;
        queue_info * on = queues.find(at);
        op.begin(OP_COPY, on ? on : &q, on ? at : dst, name);
    }
    entry e = take(K_COPY, q.id, static_cast<uint8_t>(flags_of(q) | (gaps ? F_SPAN : 0)));
    op.reserved(e);
    ggml_backend_t outer_source = copy_source, outer_destination = copy_destination;
    copy_source = copy_destination = nullptr;
    delayed none;   // `op` goes on when it is known whether the copy was accepted
    under(q, e, false, none, [&] { ok = q.iface.cpy_tensor_async(src, dst, s, d); });
    if (delays_on) copy_met(route, ok);
    ggml_backend_t on = copy_source, waits = copy_destination;
    copy_source = outer_source;
    copy_destination = outer_destination;
    if (!ok) { op.declined(); cancel(e); return false; }   // declined: the engine synchronises and copies in another way
    if (!on && q.device->cuda && src != dst) { on = src; waits = dst; }
    queue_info * runs = on ? queues.find(on) : nullptr;
    if (e) {
        if (runs) e.r->queue = runs->id;
        put(e, from.offset, to.offset, bytes, from.buffer, to.buffer, name);
        commit(e);
        if (queue_info * w = waits ? queues.find(waits) : nullptr)
            emit(K_SPLIT_COPY_WAIT, w->id, flags_of(*w), e.slot, 0, 0, NONE, NONE, name);
    }
    op.accepted();
    if (delays_on) {
        if (!op.active()) delays_skip(OP_COPY, runs ? runs : &q, name);
        // A recording shows how the other queue waits for the copy: an event that nobody recorded.
        if (runs && waits) delays_skip(OP_RECORD, runs, NONE);
        if (queue_info * w = waits ? queues.find(waits) : nullptr) delays_skip(OP_WAIT, w, name);
    }
    return true;
}

void w_synchronize(ggml_backend_t b) {
    queue_info & q = info(b);
    if (internal) return q.iface.synchronize(b);
    delayed op;
    if (delays_on && q.async) op.begin(OP_SYNC, nullptr, nullptr, NONE);
    entry e = emit(K_SYNC, q.id, q.device->meta ? F_META : 0);
    under(q, e, true, op, [&] { q.iface.synchronize(b); });
}

void w_event_record(ggml_backend_t b, ggml_backend_event_t event) {
    queue_info & q = info(b);
    if (internal) return q.iface.event_record(b, event);
    event_info * i = event_of(event, true);
    delayed op;
    if (delays_on && i) op.begin(OP_RECORD, &q, b, NONE, NONE);
    entry e;
    if (i) e = emit(K_EVENT_RECORD, q.id, flags_of(q), i->generation.fetch_add(1) + 1, 0, 0, i->id);
    under(q, e, false, op, [&] { q.iface.event_record(b, event); });
}

void w_event_wait(ggml_backend_t b, ggml_backend_event_t event) {
    queue_info & q = info(b);
    if (internal) return q.iface.event_wait(b, event);
    event_info * i = event_of(event, true);
    // Backends of different kinds do not understand each other's events.
    bool foreign = event && event->device && event->device->reg != q.device->reg;
    delayed op;
    if (delays_on && i) op.begin(OP_WAIT, &q, b, NONE, NONE);
    entry e;
    if (i) e = emit(K_EVENT_WAIT, q.id, static_cast<uint8_t>(flags_of(q) | (foreign ? F_FOREIGN : 0)), i->generation.load(), 0, 0, i->id);
    under(q, e, false, op, [&] { q.iface.event_wait(b, event); });
}

void w_free(ggml_backend_t b) {
    queue_info & q = info(b);
    auto f = q.iface.free;
    {
        std::lock_guard<std::recursive_mutex> guard(slow_path());
        queues.remove(b);   // the address may be used again at once
    }
    entry e;
    if (delays_on && !internal) delays_skip(OP_MARK, nullptr, NONE);
    if (!internal) e = emit(K_QUEUE_FREE, q.id, q.device->meta ? F_META : 0);
    inside in(e);
    meta_scope meta(q.device->meta);
    filler_release(b);
    f(b);
}

}  // namespace

void wrap_backend(ggml_backend_t backend, const device_info * d) {
    static uint32_t n_queues;
    std::lock_guard<std::recursive_mutex> guard(slow_path());
    ggml_backend_i & i = backend->iface;
    if (queues.find(backend) || i.graph_compute == w_compute) return;
    if (n_queues == NO_QUEUE) return;
    if (spool_over()) return;
    auto * q = new (std::nothrow) queue_info{};
    if (!q) return;
    q->id = static_cast<uint16_t>(n_queues);
    q->device = d;
    q->async = d->test || i.synchronize;
    q->iface = i;
    const std::string name = shown_name(i.get_name ? i.get_name(backend) : "");
    if (!define(D_QUEUE, blob().u32(q->id).u32(d->id).u32(q->async).str(name.c_str()))) { delete q; return; }
    delays_queue(q->id, q->async, name.c_str(), backend->device);
    n_queues++;
    if (!queues.add(backend, q)) { delete q; return; }
    if (i.graph_compute)       i.graph_compute       = w_compute;
    if (i.free)                i.free                = w_free;
    if (i.set_tensor_async)    i.set_tensor_async    = w_set;
    if (i.get_tensor_async)    i.get_tensor_async    = w_get;
    if (i.set_tensor_2d_async) i.set_tensor_2d_async = w_set_2d;
    if (i.get_tensor_2d_async) i.get_tensor_2d_async = w_get_2d;
    if (i.cpy_tensor_async)    i.cpy_tensor_async    = w_cpy;
    if (i.synchronize)         i.synchronize         = w_synchronize;
    if (i.event_record)        i.event_record        = w_event_record;
    if (i.event_wait)          i.event_wait          = w_event_wait;
    if (i.graph_plan_create && i.graph_plan_compute) {
        i.graph_plan_create  = w_plan_create;
        i.graph_plan_compute = w_plan_compute;
        if (i.graph_plan_update) i.graph_plan_update = w_plan_update;
    }
    emit(K_QUEUE_INIT, q->id, d->meta ? F_META : 0);
}

void split_copy(ggml_backend_t src, ggml_backend_t dst) {
    copy_source = src;
    copy_destination = dst;
}

}  // namespace td
