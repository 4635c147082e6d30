// What the recorder knows of the engine's objects: numbers that are never reused, and the original functions.
// Look-ups are lock-free and allocate nothing; making and forgetting objects is rare and takes the slow path's lock.
#pragma once
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <new>

#include "ggml_abi.h"
#include "memory.h"
#include "spool.hpp"

namespace td {

// Pointer -> object, open addressing. Objects and outgrown tables are never freed: a reader may still hold them, and
// there are few of them.
template <class V>
class pointer_map {
    struct cell { std::atomic<const void *> key; std::atomic<V *> value; };
    struct table { size_t mask; cell * cells; };
public:
    V * find(const void * key) const {
        const table * t = table_.load(std::memory_order_acquire);
        if (!t || !key) return nullptr;
        for (size_t i = place(key);; i++) {
            const cell & c = t->cells[i & t->mask];
            const void * k = c.key.load(std::memory_order_acquire);
            if (k == key) return c.value.load(std::memory_order_acquire);
            if (!k) return nullptr;
        }
    }
    // Slow path, locked. False: no memory, it is not known; whatever is done for known ones must be left.
    bool add(const void * key, V * value) {
        remove(key);
        table * t = table_.load();
        if (!t || (used_ + 1) * 2 > t->mask) t = grow(t);
        if (!t) return false;
        insert(t, key, value);
        used_++;
        return true;
    }
    void remove(const void * key) {           // slow path, locked
        table * t = table_.load();
        if (!t) return;
        for (size_t i = place(key);; i++) {
            cell & c = t->cells[i & t->mask];
            const void * k = c.key.load();
            if (!k) return;
            if (k == key) { c.value.store(nullptr); c.key.store(gone()); return; }
        }
    }
private:
    static const void * gone() { return reinterpret_cast<const void *>(1); }
    static size_t place(const void * p) { return static_cast<size_t>((reinterpret_cast<uintptr_t>(p) >> 4) * 0x9e3779b97f4a7c15ull >> 20); }
    static void insert(table * t, const void * key, V * value) {
        for (size_t i = place(key);; i++) {
            cell & c = t->cells[i & t->mask];
            if (c.key.load()) continue;       // a cell that is gone is not used again before the next growth
            c.value.store(value);
            c.key.store(key, std::memory_order_release);
            return;
        }
    }
    table * grow(table * old) {
        size_t live = 0;
        if (old) for (size_t i = 0; i <= old->mask; i++) live += old->cells[i].key.load() && old->cells[i].key.load() != gone();
        size_t size = 64;
        while (size < live * 4) size *= 2;
        auto * t = new (std::nothrow) table{size - 1, static_cast<cell *>(try_zeroed(size, sizeof(cell)))};
        if (!t || !t->cells) { delete t; return nullptr; }
        if (old) for (size_t i = 0; i <= old->mask; i++) {
            const void * k = old->cells[i].key.load();
            if (k && k != gone()) insert(t, k, old->cells[i].value.load());
        }
        used_ = live;
        table_.store(t, std::memory_order_release);
        return t;
    }
    std::atomic<table *> table_{nullptr};
    size_t used_ = 0;
};

struct device_info {
    uint32_t id;
    bool test, meta, cuda, frees_seen;   // frees_seen: the free function of its buffers may be replaced
    bool host_memory;                    // the CPU: what it does, the calling thread does
    bool stages;                         // an asynchronous set reads pageable memory before it returns
    ggml_backend_reg_t reg;
    bool wrapped;
    ggml_backend_device_i iface;         // as it was
};

struct set_cache_line { uint64_t uid; const void * nodes; uint32_t n, epoch, set, name; };

struct queue_info {
    uint16_t id;
    bool async;
    const device_info * device;
    ggml_backend_i iface;                // as it was
    std::atomic<uint64_t> computes{0};
    set_cache_line sets[64] = {};        // by graph uid; calls on one backend are serialised by ggml's rules
};

struct buffer_info {
    uint32_t id;
    bool host, late;
    bool anonymous;                      // of a meta device, or empty: holds no bytes itself
    std::atomic<bool> weights{false};
    uint64_t base, bytes;
    uint32_t device;
    ggml_backend_buffer_i iface;         // as it was
};

struct buft_info {
    void * alloc;                        // as it was
    const device_info * device;
};

struct event_info {
    uint32_t id;
    const device_info * device;
    std::atomic<uint64_t> generation{0};
};

struct plan_info { uint32_t set, nodes, name; uint64_t uid; };

extern pointer_map<device_info> devices;
extern pointer_map<queue_info>  queues;
extern pointer_map<buffer_info> buffers;
extern pointer_map<buft_info>   bufts;
extern pointer_map<event_info>  events;
extern pointer_map<plan_info>   plans;

// Bumped when a buffer goes: whatever was derived from buffer addresses is stale.
extern std::atomic<uint32_t> buffer_epoch;

// A name as it is recorded: without the address of an RPC server.
std::string shown_name(const char * name);

// NAME id of a tensor's name; NONE for an empty one or if the definition could not be written.
uint32_t name_id(const char * tensor_name);
const char * name_text(uint32_t id);   // of a defined one; with the slow path's lock held

// Host memory: which buffer holds [p, p + bytes), and where; NONE and 0 if none is known. Pageable: allocated by the
// CPU's device, no driver was told of it.
struct host_spot { uint32_t buffer = NONE; uint64_t offset = 0; bool pageable = false; };
host_spot host_at(const void * p, uint64_t bytes);

// Makes (and defines) what is not known yet.
device_info * device_of(ggml_backend_dev_t dev);
buffer_info * buffer_of(ggml_backend_buffer_t buffer, bool late);   // null for none
// `late`: it may have been recorded before. Null for none, or if it was refused.
event_info * event_of(ggml_backend_event_t event, bool late);
void buffer_gone(ggml_backend_buffer_t buffer);
void define_buffer(const buffer_info & b, ggml_backend_buffer_t buffer, bool late);

}  // namespace td
