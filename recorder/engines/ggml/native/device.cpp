#include "device.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "buffer.h"
#include "hooks.h"
#include "host.h"
#include "queue.h"
#include "snapshot.h"

namespace td {

namespace {

struct device_context {
    unsigned index;
    char name[16];
    char description[48];
    memory_pool pool;
    buffer_type_storage type;
};

// Made once, never destroyed: the engine may use its devices until the very end.
config settings;
ggml_backend_reg registry;
ggml_backend_device * devices;
device_context * contexts;
memory_pool host_pool;
buffer_type_storage host_type;

device_context & context_of(ggml_backend_dev_t dev) { return *static_cast<device_context *>(dev->context); }

// --- commands --------------------------------------------------------------------------------------------------------

struct named {   // a tensor's name, kept for who looks at the queue
    char text[GGML_MAX_NAME];
    explicit named(const ggml_tensor * t) { snprintf(text, sizeof text, "%s", t->name); }
};

class move_bytes final : public command {
  public:
    move_bytes(command_kind k, const ggml_tensor * t, void * to, const void * from, size_t bytes)
        : command(k), name_(t), to_(to), from_(from), bytes_(bytes) {
        tensor = name_.text;
    }
    // The source is read now, not when the command runs.
    bool stage() {
        staged_.reset(static_cast<char *>(try_alloc(bytes_)));
        if (!staged_) {
            return false;
        }
        memcpy(staged_.get(), from_, bytes_);
        from_ = staged_.get();
        return true;
    }
    void run() override { memmove(to_, from_, bytes_); }

  private:
    struct freed {
        void operator()(char * p) const { free(p); }
    };
    named name_;
    void * to_;
    const void * from_;
    size_t bytes_;
    std::unique_ptr<char, freed> staged_;
};

class signal_fence final : public command {
  public:
    signal_fence(command_kind k, ref<fence> f) : command(k), fence_(std::move(f)) {}
    void run() override { fence_->signal(); }

  private:
    ref<fence> fence_;
};

class nothing final : public command {
  public:
    explicit nothing(command_kind k) : command(k) {}
    void run() override {}
};

class wait_fence final : public command {
  public:
    wait_fence(command_kind k, ref<fence> f) : command(k), fence_(std::move(f)) {}
    void run() override { fence_->wait(); }

  private:
    ref<fence> fence_;
};

// --- a backend: one queue ----------------------------------------------------------------------------------------------

struct stream {
    static void destroy(stream * s) {
        if (!queue::destroy(s->commands)) {
            return;
        }
        internal_scope quiet;
        s->cpu->iface.free(s->cpu);
        delete s;
    }
    stream(const stream &) = delete;
    stream & operator=(const stream &) = delete;

    void push(std::unique_ptr<command> c, bool own_record = true) {
        prepare(*c, own_record);
        commands->push(std::move(c));
    }
    void run_now(command & c) {
        prepare(c, true);
        commands->run_now(c);
    }
    // A command of this kind on the queue; where there is no memory for it, it is done before this returns.
    template <class C, class... A>
    void issue(const A &... arguments) {
        if (std::unique_ptr<command> c{new (std::nothrow) C(arguments...)}) {
            push(std::move(c));
        } else {
            C now(arguments...);
            run_now(now);
        }
    }

    // Null = it could not be made; said why.
    static stream * make(unsigned device) {
        internal_scope quiet;
        ggml_backend_dev_t dev = host_cpu();
        ggml_backend_t cpu = dev ? dev->iface.init_backend(dev, nullptr) : nullptr;
        if (!cpu) {
            say("TAPE%u: no CPU backend could be made to compute with", device);
            return nullptr;
        }
        auto set_threads = reinterpret_cast<void (*)(ggml_backend_t, int)>(host.ggml_backend_reg_get_proc_address(
            host.ggml_backend_dev_backend_reg(dev), "ggml_backend_set_n_threads"));
        if (set_threads) {
            set_threads(cpu, int(settings.threads));
        }
        return new stream(device, cpu);
    }

    queue * const commands;
    snapshot_pool snapshots;
    const ggml_backend_t cpu;   // what this queue computes with, used by its executing thread only
    std::atomic<int> status{GGML_STATUS_SUCCESS};

  private:
    static void prepare(command & c, bool own_record) {
        c.slot = own_record ? current_slot() : NO_SLOT;
        if (own_record && delays_on) {
            c.delays = delays_for_command();
        }
    }
    stream(unsigned device, ggml_backend_t c) : commands(new queue(device, settings.synchronous)), cpu(c) {}
    ~stream() = default;
};

stream & stream_of(ggml_backend_t b) { return *static_cast<stream *>(b->context); }

class compute_graph final : public command {
  public:
    // A snapshot, or the host's own graph if it is computed at once.
    compute_graph(stream * s, ref<snapshot> copy, ggml_cgraph * own)
        : command(command_kind::compute), stream_(*s), copy_(std::move(copy)), graph_(copy_ ? copy_->graph() : own) {
        tensor = graph_->n_nodes > 0 ? graph_->nodes[graph_->n_nodes - 1]->name : "";
    }
    ~compute_graph() override {
        if (copy_) {
            copy_->release();
        }
    }
    void run() override {
        const ggml_status status = stream_.cpu->iface.graph_compute(stream_.cpu, graph_);
        if (status != GGML_STATUS_SUCCESS && stream_.status.exchange(status) == GGML_STATUS_SUCCESS) {
            say("TAPE%u: computing a graph failed with status %d", stream_.commands->device(), int(status));
        }
    }

  private:
    stream & stream_;
    ref<snapshot> copy_;
    ggml_cgraph * graph_;
};

const char * backend_name(ggml_backend_t b) { return context_of(b->device).name; }

void backend_free(ggml_backend_t b) {
    stream::destroy(static_cast<stream *>(b->context));
    delete b;
}

void set_tensor_async(ggml_backend_t b, ggml_tensor * t, const void * data, size_t offset, size_t size) {
    stream & s = stream_of(b);
    char * to = static_cast<char *>(t->data) + offset;
    std::unique_ptr<move_bytes> c{new (std::nothrow) move_bytes(command_kind::set, t, to, data, size)};
    // Pageable memory is read before the call returns, as real drivers stage it.
    if (c && (!set_reads_now(data, size) || c->stage())) {
        s.push(std::move(c));
    } else {
        move_bytes now(command_kind::set, t, to, data, size);
        s.run_now(now);
    }
}

void get_tensor_async(ggml_backend_t b, const ggml_tensor * t, void * data, size_t offset, size_t size) {
    stream_of(b).issue<move_bytes>(command_kind::get, t, data, static_cast<const char *>(t->data) + offset, size);
}

bool cpy_tensor_async(ggml_backend_t from, ggml_backend_t to, const ggml_tensor * src, ggml_tensor * dst) {
    ggml_backend_buffer_t src_buffer = tensor_buffer(src);
    if (!is_device_buffer(tensor_buffer(dst))) {
        return false;
    }
    const size_t bytes = host.ggml_nbytes(dst);
    if (is_device_buffer(src_buffer) && is_test_device(from->device)) {
        if (from == to) {
            stream_of(to).issue<move_bytes>(command_kind::copy, dst, dst->data, src->data, bytes);
            return true;
        }
        if (!settings.device_profile.async_d2d) {
            return false;
        }
        ref<fence> done(new (std::nothrow) fence);
        std::unique_ptr<command> copy, signal, wait;
        if (done) {
            copy.reset(new (std::nothrow) move_bytes(command_kind::copy, dst, dst->data, src->data, bytes));
            signal.reset(new (std::nothrow) signal_fence(command_kind::work, done));
            wait.reset(new (std::nothrow) wait_fence(command_kind::work, done));
        }
        if (!copy || !signal || !wait) {
            return false;   // no memory: declined, the engine copies in another way
        }
        split_copy(from, to);
        stream_of(from).push(std::move(copy));
        stream_of(from).push(std::move(signal), false);
        stream_of(to).push(std::move(wait), false);
        return true;
    }
    if (settings.device_profile.async_h2d && is_pinned_buffer(src_buffer)) {
        stream_of(to).issue<move_bytes>(command_kind::copy, dst, dst->data, src->data, bytes);
        return true;
    }
    return false;
}

void synchronize(ggml_backend_t b) { stream_of(b).commands->synchronize(); }

ggml_status graph_compute(ggml_backend_t b, ggml_cgraph * g) {
    stream & s = stream_of(b);
    const int status = s.status.load();
    if (status != GGML_STATUS_SUCCESS) {
        return ggml_status(status);   // sticky, like a device error
    }
    ref<snapshot> copy = s.snapshots.take(*g);
    std::unique_ptr<command> c;
    if (copy) {
        c.reset(new (std::nothrow) compute_graph(&s, copy, nullptr));
        if (!c) {
            copy->release();
        }
    }
    if (c) {
        s.push(std::move(c));
        return GGML_STATUS_SUCCESS;
    }
    compute_graph now(&s, {}, g);
    s.run_now(now);
    return ggml_status(s.status.load());
}

// --- events --------------------------------------------------------------------------------------------------------

// Events of a device that is not ours mean nothing to a queue: no effect.
event * event_of(ggml_backend_event_t e) {
    return e && is_test_device(e->device) ? static_cast<event *>(e->context) : nullptr;
}

void event_record(ggml_backend_t b, ggml_backend_event_t e) {
    if (event * ev = event_of(e)) {
        stream & s = stream_of(b);
        if (ref<fence> next = ev->record()) {
            s.issue<signal_fence>(command_kind::event_record, next);
        } else {
            s.commands->synchronize();
            ev->reached();
        }
    }
}

void event_wait(ggml_backend_t b, ggml_backend_event_t e) {
    event * ev = event_of(e);
    if (ref<fence> newest = ev ? ev->newest() : ref<fence>()) {
        stream_of(b).issue<wait_fence>(command_kind::event_wait, newest);
    } else if (ev && delays_on && delays_pending()) {
        stream_of(b).issue<nothing>(command_kind::event_wait);   // there is no record yet: only the delay takes time
    }
}

ggml_backend_event_t event_new(ggml_backend_dev_t dev) { return new ggml_backend_event{dev, new event}; }

void event_free(ggml_backend_dev_t, ggml_backend_event_t e) {
    delete static_cast<event *>(e->context);
    delete e;
}

void event_synchronize(ggml_backend_dev_t, ggml_backend_event_t e) {
    event * ev = event_of(e);
    if (ref<fence> newest = ev ? ev->newest() : ref<fence>()) {
        newest->wait();
    }
}

// --- a device --------------------------------------------------------------------------------------------------------

const char * device_name(ggml_backend_dev_t dev) { return context_of(dev).name; }

const char * device_description(ggml_backend_dev_t dev) { return context_of(dev).description; }

void device_memory(ggml_backend_dev_t dev, size_t * free, size_t * total) {
    const memory_pool & pool = context_of(dev).pool;
    const uint64_t used = pool.used_bytes;
    *total = pool.limit_bytes;
    *free = used < pool.limit_bytes ? pool.limit_bytes - used : 0;
}

ggml_backend_dev_type device_type(ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; }

void device_props(ggml_backend_dev_t dev, ggml_backend_dev_props * p) {
    p->name = device_name(dev);
    p->description = device_description(dev);
    device_memory(dev, &p->memory_free, &p->memory_total);
    p->type = GGML_BACKEND_DEVICE_TYPE_GPU;
    p->device_id = nullptr;
    p->caps.async = true;
    p->caps.host_buffer = settings.device_profile.host_buffer;
    p->caps.buffer_from_host_ptr = false;
    p->caps.events = settings.device_profile.events;
}

ggml_backend_t device_init(ggml_backend_dev_t dev, const char *) {
    static ggml_guid guid = {0x74, 0x61, 0x70, 0x65, 0x64, 0x65, 0x6c, 0x61, 0x79, 0x2d, 0x67, 0x67, 0x6d, 0x6c, 0x00, 0x01};
    stream * s = stream::make(context_of(dev).index);
    if (!s) {
        return nullptr;
    }
    auto * b = new ggml_backend{};
    b->guid = &guid;
    b->device = dev;
    b->context = s;
    b->iface.get_name = backend_name;
    b->iface.free = backend_free;
    b->iface.set_tensor_async = set_tensor_async;
    b->iface.get_tensor_async = get_tensor_async;
    b->iface.cpy_tensor_async = cpy_tensor_async;
    b->iface.synchronize = synchronize;
    b->iface.graph_compute = graph_compute;
    if (settings.device_profile.events) {
        b->iface.event_record = event_record;
        b->iface.event_wait = event_wait;
    }
    return b;
}

ggml_backend_buffer_type_t device_buffer_type(ggml_backend_dev_t dev) { return context_of(dev).type.get(); }

ggml_backend_buffer_type_t device_host_buffer_type(ggml_backend_dev_t) {
    return settings.device_profile.host_buffer ? host_type.get() : nullptr;
}

bool device_supports_op(ggml_backend_dev_t, const ggml_tensor * op) {
    ggml_backend_dev_t cpu = host_cpu();
    if (!cpu) {
        return false;
    }
    // Weights in the CPU's extra buffer types are laid out for its own kernels.
    for (const ggml_tensor * s : op->src) {
        ggml_backend_buffer_t b = s ? tensor_buffer(s) : nullptr;
        if (b && b->buft && buft_device(b->buft) == cpu && !host.ggml_backend_buft_is_host(b->buft)) {
            return false;
        }
    }
    internal_scope quiet;
    return cpu->iface.supports_op(cpu, op);
}

bool device_supports_buft(ggml_backend_dev_t dev, ggml_backend_buffer_type_t type) {
    return type == context_of(dev).type.get();
}

// --- the registry ------------------------------------------------------------------------------------------------------

const char * registry_name(ggml_backend_reg_t) { return "TAPE"; }

size_t registry_count(ggml_backend_reg_t) { return settings.devices; }

ggml_backend_dev_t registry_device(ggml_backend_reg_t, size_t index) {
    return index < settings.devices ? &devices[index] : nullptr;
}

void * registry_proc_address(ggml_backend_reg_t, const char *) { return nullptr; }

}  // namespace

bool test_copy_accepted(ggml_backend_t from, ggml_backend_t to, const ggml_tensor * src, const ggml_tensor * dst) {
    if (!is_device_buffer(tensor_buffer(dst))) {
        return false;
    }
    if (is_device_buffer(tensor_buffer(src)) && is_test_device(from->device)) {
        return from == to || settings.device_profile.async_d2d;
    }
    return settings.device_profile.async_h2d && is_pinned_buffer(tensor_buffer(src));
}

bool test_copy_runs_on_source(ggml_backend_t from, ggml_backend_t to, const ggml_tensor * src) {
    return from != to && is_test_device(from->device) && is_test_device(to->device) && is_device_buffer(tensor_buffer(src));
}

bool is_test_device(ggml_backend_dev_t dev) { return dev && dev->reg == &registry; }

bool set_reads_now(const void * data, size_t bytes) {
    return !(settings.device_profile.pinned_set && is_pinned(data, bytes));
}

const char * device_profile(ggml_backend_dev_t dev) { return is_test_device(dev) ? settings.device_profile.name : ""; }

ggml_backend_reg_t devices_make(const config & c) {
    settings = c;
    registry.api_version = host_api;
    registry.iface = {registry_name, registry_count, registry_device, registry_proc_address};
    devices = new ggml_backend_device[c.devices]();
    contexts = new device_context[c.devices]();
    for (unsigned i = 0; i < c.devices; i++) {
        device_context & d = contexts[i];
        d.index = i;
        snprintf(d.name, sizeof d.name, "TAPE%u", i);
        snprintf(d.description, sizeof d.description, "test device, %.24s", c.device_profile.name);
        d.pool.name = d.name;
        d.pool.pinned = false;
        d.pool.limit_bytes = c.memory_bytes;
        buffer_type_init(d.type, &devices[i], &d.pool);
        ggml_backend_device_i & f = devices[i].iface;
        f.get_name = device_name;
        f.get_description = device_description;
        f.get_memory = device_memory;
        f.get_type = device_type;
        f.get_props = device_props;
        f.init_backend = device_init;
        f.get_buffer_type = device_buffer_type;
        f.get_host_buffer_type = device_host_buffer_type;
        f.supports_op = device_supports_op;
        f.supports_buft = device_supports_buft;
        if (c.device_profile.events) {
            f.event_new = event_new;
            f.event_free = event_free;
            f.event_synchronize = event_synchronize;
        }
        devices[i].reg = &registry;
        devices[i].context = &d;
    }
    if (c.devices) {
        host_pool.name = "TAPE_Host";
        host_pool.pinned = true;
        host_pool.limit_bytes = UINT64_MAX;
        buffer_type_init(host_type, &devices[0], &host_pool);
    }
    return &registry;
}

}  // namespace td
