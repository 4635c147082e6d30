#include "objects.hpp"

#include <cstdio>
#include <new>
#include <string>

#include "containers.hpp"
#include "hooks.h"
#include "host.h"

namespace td {

pointer_map<device_info> devices;
pointer_map<queue_info>  queues;
pointer_map<buffer_info> buffers;
pointer_map<buft_info>   bufts;
pointer_map<event_info>  events;
pointer_map<plan_info>   plans;
std::atomic<uint32_t> buffer_epoch{1};

namespace {

uint32_t n_devices, n_buffers, n_events, n_names;

// --- names: an append-only hash of zero-padded words

struct name_entry { uint64_t words[GGML_MAX_NAME / 8]; uint64_t end; uint64_t hash; uint32_t id; };   // `end` is zero
struct name_table { size_t mask; std::atomic<name_entry *> * cells; };
std::atomic<name_table *> names{nullptr};
alignas(array<const name_entry *>) unsigned char names_by_id_room[sizeof(array<const name_entry *>)];   // never destroyed
array<const name_entry *> & names_by_id = *new (names_by_id_room) array<const name_entry *>;

// Copies up to the terminator, zero-pads, hashes; bytes after the terminator may be anything. Returns used words.
int load_name(const char * text, uint64_t * words, uint64_t & hash) {
    uint64_t h = 0x243f6a8885a308d3ull;
    int n = 0;
    while (n < GGML_MAX_NAME / 8) {
        uint64_t w;
        memcpy(&w, text + 8 * n, 8);
        uint64_t zero = (w - 0x0101010101010101ull) & ~w & 0x8080808080808080ull;
        if (zero) w &= ((zero & -zero) >> 7) - 1;   // bytes below the first zero byte
        words[n++] = w;
        h = (h ^ w) * 0x9fb21c651e98df25ull;
        if (zero) break;
    }
    hash = h ^ h >> 32;
    return n;
}

bool same(const name_entry & e, const uint64_t * words, int n) {
    for (int i = 0; i < n; i++) if (e.words[i] != words[i]) return false;
    return true;   // the last word holds the terminator, or all of them are equal
}

name_entry * find_name(const name_table * t, uint64_t hash, const uint64_t * words, int n) {
    if (!t) return nullptr;
    for (size_t i = hash;; i++) {
        name_entry * e = t->cells[i & t->mask].load(std::memory_order_acquire);
        if (!e) return nullptr;
        if (e->hash == hash && same(*e, words, n)) return e;
    }
}

void put_name(name_table * t, name_entry * e) {
    for (size_t i = e->hash;; i++) {
        std::atomic<name_entry *> & c = t->cells[i & t->mask];
        if (c.load()) continue;
        c.store(e, std::memory_order_release);
        return;
    }
}

// "RPC0[host:port]" -> "RPC0", anywhere in a name (copies begin with their backend's). The closing bracket may be cut off.
bool hide_address(char * text) {
    bool found = false;
    for (char * at = text; (at = strstr(at, "RPC")); ) {
        at += 3;
        while (*at >= '0' && *at <= '9') at++;
        if (*at != '[') continue;
        const size_t length = strcspn(at, "#");
        char * end = at + length;
        while (end > at && *end != ']') end--;
        end = end > at ? end + 1 : at + length;
        memmove(at, end, strlen(end) + 1);
        found = true;
    }
    return found;
}

uint32_t new_name(const uint64_t * words, int n, uint64_t hash) {
    std::lock_guard<std::recursive_mutex> guard(slow_path());
    name_table * t = names.load();
    if (name_entry * e = find_name(t, hash, words, n)) return e->id;
    if (spool_over()) return NONE;
    if (!t || (n_names + 2) * 2 > t->mask) {
        size_t size = t ? (t->mask + 1) * 4 : 4096;
        auto * bigger = new (std::nothrow) name_table{size - 1, static_cast<std::atomic<name_entry *> *>(try_zeroed(size, sizeof(std::atomic<name_entry *>)))};
        if (!bigger || !bigger->cells) { delete bigger; return NONE; }
        if (t) for (size_t i = 0; i <= t->mask; i++) if (name_entry * old = t->cells[i].load()) put_name(bigger, old);
        names.store(bigger, std::memory_order_release);
        t = bigger;
    }
    auto * e = new (std::nothrow) name_entry{};
    if (!e) return NONE;
    memcpy(e->words, words, static_cast<size_t>(n) * 8);
    e->hash = hash;
    e->id = n_names;
    char text[GGML_MAX_NAME + 1] = {};
    memcpy(text, e->words, GGML_MAX_NAME);
    name_entry * shown = e;
    if (hide_address(text)) {
        shown = new (std::nothrow) name_entry{};
        if (!shown) { delete e; return NONE; }
        memcpy(shown->words, text, GGML_MAX_NAME);
    }
    if (!define(D_NAME, blob().u32(e->id).str(text))) { delete e; return NONE; }
    n_names++;
    put_name(t, e);
    names_by_id.push_back(shown);
    return e->id;
}

// --- host memory: ranges, scanned; a range that went has an empty span. Blocks are never freed.

struct host_cell { std::atomic<uint64_t> base, end; std::atomic<uint32_t> id; std::atomic<bool> pageable; };
struct host_block { host_cell cells[256]; std::atomic<host_block *> next; };
host_block host_first;

// The first cell that `f` accepts, null for none.
template <class F>
host_cell * host_find(F f) {
    for (host_block * b = &host_first; b; b = b->next.load(std::memory_order_acquire))
        for (host_cell & c : b->cells) {
            if (f(c)) return &c;
            if (!c.base.load(std::memory_order_relaxed)) return nullptr;   // never used, nor is any after it
        }
    return nullptr;
}

void host_add(uint64_t base, uint64_t bytes, uint32_t id, bool pageable) {
    host_cell * c = host_find([](const host_cell & x) { return !x.end.load(); });
    if (!c) {
        host_block * last = &host_first;
        while (host_block * next = last->next.load()) last = next;
        auto * b = new (std::nothrow) host_block{};
        if (!b) return;   // the recording has ended
        last->next.store(b, std::memory_order_release);
        c = b->cells;
    }
    c->id.store(id);
    c->base.store(base);
    c->pageable.store(pageable);
    c->end.store(base + bytes, std::memory_order_release);
}

void host_remove(uint32_t id) {
    if (host_cell * c = host_find([id](const host_cell & x) { return x.id.load() == id && x.end.load(); })) c->end.store(0);
}

std::string buft_name_of(ggml_backend_buffer_t b) { return shown_name(b->buft ? buft_name(b->buft) : ""); }

}  // namespace

std::string shown_name(const char * name) {
    std::string shown = name ? name : "";
    hide_address(&shown[0]);
    shown.resize(strlen(shown.c_str()));
    return shown;
}

uint32_t name_id(const char * text) {
    uint64_t words[GGML_MAX_NAME / 8], hash;
    int n = load_name(text, words, hash);
    if (!words[0]) return NONE;
    if (name_entry * e = find_name(names.load(std::memory_order_acquire), hash, words, n)) return e->id;
    return new_name(words, n, hash);
}

const char * name_text(uint32_t id) {
    return id < names_by_id.size() ? reinterpret_cast<const char *>(names_by_id[id]->words) : "";
}

host_spot host_at(const void * p, uint64_t bytes) {
    auto at = reinterpret_cast<uint64_t>(p);
    host_spot found;
    host_find([&](const host_cell & c) {
        uint64_t end = c.end.load(std::memory_order_acquire), base = c.base.load(std::memory_order_relaxed);
        if (!end || at < base || at + bytes > end) return false;
        found = {c.id.load(std::memory_order_relaxed), at - base, c.pageable.load(std::memory_order_relaxed)};
        std::atomic_thread_fence(std::memory_order_acquire);
        if (c.end.load(std::memory_order_relaxed) == end) return true;
        found = {};   // given to another range meanwhile
        return false;
    });
    return found;
}

device_info * device_of(ggml_backend_dev_t dev) {
    if (device_info * d = devices.find(dev)) return d;
    if (!dev) return nullptr;
    std::lock_guard<std::recursive_mutex> guard(slow_path());
    if (device_info * d = devices.find(dev)) return d;
    if (spool_over()) return nullptr;
    ggml_backend_dev_type type = dev->iface.get_type(dev);
    bool test = is_test_device(dev);
    std::string reg = dev->reg ? dev->reg->iface.get_name(dev->reg) : "";
    auto * d = new (std::nothrow) device_info{};
    if (!d) return nullptr;
    d->id = n_devices;
    d->test = test;
    d->host_memory = type == GGML_BACKEND_DEVICE_TYPE_CPU && !test;
    d->meta = type == GGML_BACKEND_DEVICE_TYPE_META;
    d->cuda = reg == "CUDA" || reg == "ROCm" || reg == "MUSA";
    // Others tell their buffers by the address of free_buffer (CUDA, RPC, Metal, ggml's meta and multi buffers).
    d->frees_seen = test || reg == "CPU" || reg == "Vulkan";
    // cudaMemcpyAsync copies pageable memory to a staging buffer first; registered memory it reads later.
    d->stages = reg == "CUDA" && !getenv("GGML_CUDA_REGISTER_HOST");
    d->reg = dev->reg;
    d->iface = dev->iface;
    uint32_t caps = 0;
    char bus[32] = "";
    if (test) {
        caps = 1 | (dev->iface.event_new ? 2 : 0) | (dev->iface.get_host_buffer_type && dev->iface.get_host_buffer_type(dev) ? 4 : 0);
    } else if (dev->iface.get_props) {
        // Newer builds may have more members at the end.
        struct { ggml_backend_dev_props props; char room[256]; } p = {};
        dev->iface.get_props(dev, &p.props);
        caps = (p.props.caps.async ? 1 : 0) | (p.props.caps.events ? 2 : 0) | (p.props.caps.host_buffer ? 4 : 0);
        if (p.props.device_id) snprintf(bus, sizeof bus, "%s", p.props.device_id);
    }
    const char * profile = test ? device_profile(dev) : "";
    if (!define(D_DEVICE, blob().u32(d->id).u32(static_cast<uint32_t>(type)).u32(test).u32(caps).str(shown_name(dev->iface.get_name(dev)).c_str())
                              .str(dev->iface.get_description(dev)).str(reg.c_str()).str(profile).str(bus))) {
        delete d;
        return nullptr;
    }
    n_devices++;
    if (!devices.add(dev, d)) {
        delete d;
        return nullptr;
    }
    if (!d->frees_seen && !d->meta) {
        std::string note = reg + " tells its buffers by their free function: when device memory is freed is not recorded";
        define(D_NOTE, blob().str(note.c_str()));
    }
    return d;
}

event_info * event_of(ggml_backend_event_t event, bool late) {
    if (event_info * e = events.find(event)) return e;
    if (!event) return nullptr;
    std::lock_guard<std::recursive_mutex> guard(slow_path());
    if (event_info * e = events.find(event)) return e;
    if (spool_over()) return nullptr;
    device_info * d = device_of(event->device);
    auto * e = d ? new (std::nothrow) event_info{} : nullptr;
    if (!e) return nullptr;
    e->id = n_events;
    e->device = d;
    if (!define(D_EVENT, blob().u32(n_events).u32(d->id).u32(late ? 1 : 0))) { delete e; return nullptr; }
    n_events++;
    if (!events.add(event, e)) { delete e; return nullptr; }
    return e;
}

void define_buffer(const buffer_info & b, ggml_backend_buffer_t buffer, bool late) {
    define(D_BUFFER, blob().u32(b.id).u32(b.device).u32((b.host ? 1u : 0u) | (b.weights.load() ? 2u : 0u) | (late ? 4u : 0u))
                         .u64(b.bytes).u64(b.base).str(buft_name_of(buffer).c_str()));
}

buffer_info * buffer_of(ggml_backend_buffer_t buffer, bool late) {
    if (!buffer) return nullptr;
    if (buffer_info * b = buffers.find(buffer)) return b;
    std::lock_guard<std::recursive_mutex> guard(slow_path());
    if (buffer_info * b = buffers.find(buffer)) return b;
    if (spool_over()) return nullptr;
    auto * b = new (std::nothrow) buffer_info{};
    if (!b) return nullptr;
    device_info * d = buffer->buft ? device_of(buft_device(buffer->buft)) : nullptr;
    b->iface = buffer->iface;
    bool host_memory = buffer->buft && host.ggml_backend_buft_is_host(buffer->buft);
    if (!d && host_memory) d = device_of(host_cpu());   // some of the CPU's types name no device
    b->device = d ? d->id : NONE;
    // A collection of buffers has no base: tensors name its parts.
    b->anonymous = (d && d->meta) || !buffer->iface.get_base || !buffer->size;
    b->id = NONE;
    b->late = late;
    if (!b->anonymous) {
        b->host = host_memory;
        b->bytes = buffer->size;
        b->base = reinterpret_cast<uint64_t>(buffer->iface.get_base(buffer));
        b->weights.store(buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        b->id = n_buffers;
        define_buffer(*b, buffer, late);
        n_buffers++;
        if (b->host) {
            ggml_backend_dev_t cpu = host_cpu();
            host_add(b->base, b->bytes, b->id, cpu && d == devices.find(cpu));
        }
    }
    if (!buffers.add(buffer, b)) {
        if (b->host) host_remove(b->id);
        delete b;
        return nullptr;
    }
    return b;
}

void buffer_gone(ggml_backend_buffer_t buffer) {
    std::lock_guard<std::recursive_mutex> guard(slow_path());
    buffer_info * b = buffers.find(buffer);
    if (!b) return;
    if (b->host) host_remove(b->id);
    buffers.remove(buffer);
    buffer_epoch.fetch_add(1);
}

}  // namespace td
