// Buffers: allocation, free, and the blocking copies that go through a buffer's table.
#include "delays.h"
#include "graph_set.hpp"
#include "hooks.h"
#include "host.h"
#include "record.h"
#include "wrap.hpp"

namespace td {

namespace {

buffer_info & info(ggml_backend_buffer_t b) { return *buffers.find(b); }

// The host side of a set or get: a known host buffer, or anonymous.
place host_place(const void * p, uint64_t bytes) {
    host_spot at = host_at(p, bytes);
    return {at.buffer, at.offset};
}

uint64_t hull(size_t size, size_t n, size_t stride) { return n ? (n - 1) * stride + size : 0; }

// What such a call is for a plan.
op_kind kind_of(kind_t kind) {
    return kind == K_BUFFER_FREE ? OP_FREE : kind == K_MEMSET || kind == K_CLEAR ? OP_MEMSET : OP_COPY;
}

// A blocking call: recorded, made, held up where a plan says so.
template <class F>
void run(kind_t kind, const place & from, const place & to, uint64_t bytes, const char * text, uint8_t flags, F call) {
    const uint32_t name = text ? name_id(text) : NONE;
    delayed op(kind_of(kind), nullptr, nullptr, name);
    entry e = take(kind, NO_QUEUE, static_cast<uint8_t>(F_HOST | flags));
    if (e) {
        put(e, from.offset, to.offset, bytes, from.buffer, to.buffer, name);
        commit(e);
    }
    op.issued(e);
    { inside in(e); call(); }
    finish(e);
    op.returned();
}

void w_set(ggml_backend_buffer_t b, ggml_tensor * t, const void * data, size_t offset, size_t size) {
    auto f = info(b).iface.set_tensor;
    if (internal) return f(b, t, data, offset, size);
    place to = place_of(t);
    to.offset += offset;
    run(K_SET, host_place(data, size), to, size, t->name, 0, [&] { f(b, t, data, offset, size); });
}

void w_get(ggml_backend_buffer_t b, const ggml_tensor * t, void * data, size_t offset, size_t size) {
    auto f = info(b).iface.get_tensor;
    if (internal) return f(b, t, data, offset, size);
    place from = place_of(t);
    from.offset += offset;
    run(K_GET, from, host_place(data, size), size, t->name, 0, [&] { f(b, t, data, offset, size); });
}

void w_set_2d(ggml_backend_buffer_t b, ggml_tensor * t, const void * data, size_t offset, size_t size, size_t n, size_t st, size_t sd) {
    auto f = info(b).iface.set_tensor_2d;
    if (internal) return f(b, t, data, offset, size, n, st, sd);
    place to = place_of(t);
    to.offset += offset;
    uint64_t bytes = hull(size, n, st);
    run(K_SET, host_place(data, hull(size, n, sd)), to, bytes, t->name, st == size && sd == size ? 0 : F_SPAN, [&] { f(b, t, data, offset, size, n, st, sd); });
}

void w_get_2d(ggml_backend_buffer_t b, const ggml_tensor * t, void * data, size_t offset, size_t size, size_t n, size_t st, size_t sd) {
    auto f = info(b).iface.get_tensor_2d;
    if (internal) return f(b, t, data, offset, size, n, st, sd);
    place from = place_of(t);
    from.offset += offset;
    uint64_t bytes = hull(size, n, st);
    run(K_GET, from, host_place(data, hull(size, n, sd)), bytes, t->name, st == size && sd == size ? 0 : F_SPAN, [&] { f(b, t, data, offset, size, n, st, sd); });
}

void w_memset(ggml_backend_buffer_t b, ggml_tensor * t, uint8_t value, size_t offset, size_t size) {
    auto f = info(b).iface.memset_tensor;
    if (internal) return f(b, t, value, offset, size);
    place to = place_of(t);
    to.offset += offset;
    run(K_MEMSET, {}, to, size, t->name, 0, [&] { f(b, t, value, offset, size); });
}

bool w_cpy(ggml_backend_buffer_t b, const ggml_tensor * src, ggml_tensor * dst) {
    auto f = info(b).iface.cpy_tensor;
    if (internal) return f(b, src, dst);
    bool gaps = false, ok;
    uint64_t bytes = tensor_span(src, gaps);
    place from = place_of(src), to = place_of(dst);
    uint32_t name = name_id(src->name);
    delayed op;   // whether the call is declined has to be known before it
    ggml_backend_buffer_t src_buffer = tensor_buffer(src);
    const copy_route route{nullptr, nullptr, src_buffer ? src_buffer->buft : nullptr, b->buft};
    if (delays_on && copy_expected(route)) op.begin(OP_COPY, nullptr, nullptr, name);
    entry e = take(K_COPY, NO_QUEUE, static_cast<uint8_t>(F_HOST | (gaps ? F_SPAN : 0)));
    op.reserved(e);
    { inside in(e); ok = f(b, src, dst); }
    if (delays_on) copy_met(route, ok);
    if (!ok) { op.declined(); cancel(e); return false; }   // declined: the engine copies in another way, which is recorded there
    if (e) {
        put(e, from.offset, to.offset, bytes, from.buffer, to.buffer, name);
        e.r->end_ns = now_ns();
        commit(e);
    }
    op.accepted();
    if (delays_on && !op.active()) delays_skip(OP_COPY, nullptr, name);
    return true;
}

void w_clear(ggml_backend_buffer_t b, uint8_t value) {
    buffer_info & i = info(b);
    if (internal) return i.iface.clear(b, value);
    run(K_CLEAR, {}, {i.id, 0}, i.bytes, nullptr, 0, [&] { i.iface.clear(b, value); });
}

void w_free(ggml_backend_buffer_t b) {
    buffer_info & i = info(b);
    // Forgotten first: the address may be used again before the function returns.
    buffer_gone(b);
    if (internal) return i.iface.free_buffer(b);
    run(K_BUFFER_FREE, {}, {i.id, 0}, i.bytes, nullptr, 0, [&] { i.iface.free_buffer(b); });
}

// Whether a table has a function of ours: the buffer was wrapped, and is still the same one.
bool wrapped(const ggml_backend_buffer_i & i) {
    return i.set_tensor == w_set || i.clear == w_clear || i.free_buffer == w_free || i.get_tensor == w_get || i.memset_tensor == w_memset;
}

template <class F>
void wrap(F & slot, F & original, F ours) {
    if (slot == ours) return;   // wrapped before, `original` is kept
    original = slot;
    if (slot) slot = ours;
}

ggml_backend_buffer_t w_alloc(ggml_backend_buffer_type_t buft, size_t size) {
    auto f = reinterpret_cast<ggml_backend_buffer_t (*)(ggml_backend_buffer_type_t, size_t)>(bufts.find(buft)->alloc);
    if (internal) return f(buft, size);
    wrap_new_devices();
    uint64_t start_ns = now_ns();
    ggml_backend_buffer_t b = f(buft, size);
    if (!b) return b;
    // Some types take a buffer of another type, recorded in there, and replace part of its functions (repacked weights).
    bool known = buffers.find(b) && wrapped(b->iface);
    if (!known) buffer_gone(b);   // one at the same address whose free was not seen
    buffer_info * i = wrap_buffer(b, false);
    if (!i || i->id == NONE) return b;
    if (known) {
        define_buffer(*i, b, i->late);   // its type is another one now
        return b;
    }
    if (delays_on) delays_skip(OP_ALLOC, nullptr, NONE);
    entry e = take(K_BUFFER_ALLOC, NO_QUEUE, F_HOST);
    if (e) {
        put(e, 0, 0, i->bytes, NONE, i->id, NONE);
        e.r->end_ns = e.r->issue_ns;
        e.r->issue_ns = start_ns;
        commit(e);
    }
    return b;
}

}  // namespace

buffer_info * wrap_buffer(ggml_backend_buffer_t buffer, bool late) {
    if (!buffer) return nullptr;
    std::lock_guard<std::recursive_mutex> guard(slow_path());
    buffer_info * b = buffer_of(buffer, late);
    if (!b || b->anonymous) return b;
    ggml_backend_buffer_i & i = buffer->iface;
    device_info * d = buffer->buft ? device_of(buft_device(buffer->buft)) : nullptr;
    // A buffer type without a device is the CPU's; host memory is told by its type everywhere.
    if (!d || d->frees_seen || b->host) {
        if (!i.free_buffer) i.free_buffer = [](ggml_backend_buffer_t) {};   // nothing to do, yet an end to see
        wrap(i.free_buffer, b->iface.free_buffer, w_free);
    }
    wrap(i.memset_tensor, b->iface.memset_tensor, w_memset);
    wrap(i.set_tensor,    b->iface.set_tensor,    w_set);
    wrap(i.get_tensor,    b->iface.get_tensor,    w_get);
    wrap(i.set_tensor_2d, b->iface.set_tensor_2d, w_set_2d);
    wrap(i.get_tensor_2d, b->iface.get_tensor_2d, w_get_2d);
    wrap(i.cpy_tensor,    b->iface.cpy_tensor,    w_cpy);
    wrap(i.clear,         b->iface.clear,         w_clear);
    return b;
}

void wrap_buffer_type(ggml_backend_buffer_type_t buft) {
    if (!buft || bufts.find(buft)) return;
    std::lock_guard<std::recursive_mutex> guard(slow_path());
    if (bufts.find(buft)) return;
    if (spool_over()) return;
    auto * b = new (std::nothrow) buft_info{};
    if (!b) return;
    b->alloc = reinterpret_cast<void *>(buft_v2(buft)->alloc_buffer);
    if (b->alloc == reinterpret_cast<void *>(w_alloc)) {
        // Copied from a table that was wrapped before: the CPU's.
        ggml_backend_dev_t cpu = host_cpu();
        buft_info * original = cpu ? bufts.find(cpu->iface.get_buffer_type(cpu)) : nullptr;
        if (!original) { delete b; return; }
        b->alloc = original->alloc;
    }
    if (!bufts.add(buft, b)) { delete b; return; }
    buft_v2(buft)->alloc_buffer = w_alloc;
}

}  // namespace td
