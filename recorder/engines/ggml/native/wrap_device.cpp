// Devices: what they make (backends, buffers, events) is wrapped when it is made.
#include "delays.h"
#include "filler.h"
#include "graph_set.hpp"
#include "hooks.h"
#include "host.h"
#include "record.h"
#include "wrap.hpp"

namespace td {

namespace {

device_info & info(ggml_backend_dev_t d) { return *devices.find(d); }

ggml_backend_t w_init(ggml_backend_dev_t dev, const char * params) {
    device_info & d = info(dev);
    if (internal) return d.iface.init_backend(dev, params);
    wrap_new_devices();
    ggml_backend_t b;
    {
        // A meta device makes its simple backends meanwhile.
        tl_lane.meta += d.meta;
        b = d.iface.init_backend(dev, params);
        tl_lane.meta -= d.meta;
    }
    if (b) wrap_backend(b, &d);
    if (delays_on && b) {
        // Nothing is pending on it yet.
        queue_info * q = queues.find(b);
        if (q && q->async && !d.test && delays_aim_at(q->id)) filler_prepare(b);
    }
    return b;
}

ggml_backend_buffer_t w_from_ptr(ggml_backend_dev_t dev, void * p, size_t size, size_t largest) {
    device_info & d = info(dev);
    if (!internal) wrap_new_devices();
    ggml_backend_buffer_t b = d.iface.buffer_from_host_ptr(dev, p, size, largest);
    if (internal || !b) return b;
    buffer_gone(b);
    buffer_info * i = wrap_buffer(b, false);
    if (i && i->id != NONE) {
        if (delays_on) delays_skip(OP_ALLOC, nullptr, NONE);
        emit(K_BUFFER_ALLOC, NO_QUEUE, F_HOST, 0, 0, i->bytes, NONE, i->id);
    }
    return b;
}

ggml_backend_event_t w_event_new(ggml_backend_dev_t dev) {
    device_info & d = info(dev);
    ggml_backend_event_t e = d.iface.event_new(dev);
    if (internal || !e) return e;
    std::lock_guard<std::recursive_mutex> guard(slow_path());
    events.remove(e);   // one at the same address, freed where it was not seen
    event_of(e, false);
    return e;
}

void w_event_free(ggml_backend_dev_t dev, ggml_backend_event_t event) {
    device_info & d = info(dev);
    if (event_info * i = internal ? nullptr : events.find(event)) {
        std::lock_guard<std::recursive_mutex> guard(slow_path());
        events.remove(event);
        if (delays_on) delays_skip(OP_DESTROY, nullptr, NONE);
        emit(K_EVENT_FREE, NO_QUEUE, F_HOST, 0, 0, 0, i->id);
    }
    d.iface.event_free(dev, event);
}

void w_event_sync(ggml_backend_dev_t dev, ggml_backend_event_t event) {
    device_info & d = info(dev);
    if (internal) return d.iface.event_synchronize(dev, event);
    event_info * i = event_of(event, true);
    delayed op;
    if (delays_on && i) op.begin(OP_WAIT, nullptr, nullptr, NONE);
    entry e;
    if (i) e = emit(K_EVENT_SYNC, NO_QUEUE, 0, i->generation.load(), 0, 0, i->id);
    op.issued(e);
    { inside in(e); d.iface.event_synchronize(dev, event); }
    finish(e);
    op.returned();
}

// A meta device is in no registry: it shows as the device of a tensor's buffer type in a question to one of its
// simple devices, while a model is loaded.
void look_for_meta(const ggml_tensor * op) {
    for (int j = 0; j < GGML_MAX_SRC; j++) {
        const ggml_tensor * s = op->src[j];
        if (!s) return;
        if (!s->buffer || !s->buffer->buft) continue;
        ggml_backend_dev_t dev = buft_device(s->buffer->buft);
        wrap_device(dev);
    }
}

bool w_supports_op(ggml_backend_dev_t dev, const ggml_tensor * op) {
    device_info & d = info(dev);
    if (!internal) wrap_new_devices();   // asked while a model is loaded: before a device that came late is used
    if (!internal && op) look_for_meta(op);
    return d.iface.supports_op(dev, op);
}

bool w_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft) {
    device_info & d = info(dev);
    if (!internal && buft) wrap_device(buft_device(buft));
    return d.iface.supports_buft(dev, buft);
}

}  // namespace

void wrap_device(ggml_backend_dev_t dev) {
    if (!dev) return;
    device_info * d = devices.find(dev);
    if (d && d->wrapped) return;
    std::lock_guard<std::recursive_mutex> guard(slow_path());
    d = device_of(dev);
    if (!d || d->wrapped) return;
    d->wrapped = true;
    ggml_backend_device_i & i = dev->iface;
    if (i.init_backend) i.init_backend = w_init;
    // A meta device's buffers are collections: their parts belong to the simple devices.
    if (d->meta) return;
    if (i.buffer_from_host_ptr) i.buffer_from_host_ptr = w_from_ptr;
    if (i.event_new && i.event_free && i.event_synchronize) {
        i.event_new = w_event_new;
        i.event_free = w_event_free;
        i.event_synchronize = w_event_sync;
    }
    if (i.supports_op) i.supports_op = w_supports_op;
    if (i.supports_buft) i.supports_buft = w_supports_buft;
    wrap_buffer_type(i.get_buffer_type(dev));
    if (i.get_host_buffer_type) wrap_buffer_type(i.get_host_buffer_type(dev));
    if (dev->reg && dev->reg->iface.get_proc_address) {
        // Buffer types beside the default one (repacked weights); a list that ends with null.
        using extra_t = ggml_backend_buffer_type_t * (*)(ggml_backend_dev_t);
        if (auto extra = reinterpret_cast<extra_t>(dev->reg->iface.get_proc_address(dev->reg, "ggml_backend_dev_get_extra_bufts")))
            for (ggml_backend_buffer_type_t * list = extra(dev); list && *list; list++) wrap_buffer_type(*list);
    }
}

void wrap_new_devices() {
    static std::atomic<size_t> seen{0};
    size_t n = host.ggml_backend_dev_count();
    if (n == seen.load(std::memory_order_relaxed)) return;
    for (size_t i = 0; i < n; i++) wrap_device(host.ggml_backend_dev_get(i));
    seen.store(n);
}

}  // namespace td
