#include "buffer.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>

#include "host.h"
#include "memory.h"
#include "queue.h"

namespace td {

namespace {

constexpr size_t ALIGNMENT = 128;

// Context of a buffer, in front of its memory: who gives one gives both. It lives on while commands that were queued
// before the buffer was freed may use it.
struct block {
    block(memory_pool * p, size_t n) : pool(p), bytes(n) {}
    char * base() { return reinterpret_cast<char *>(this) + ALIGNMENT; }

    memory_pool * const pool;
    const size_t bytes;
    std::atomic<uint32_t> users{1};
    block *before = nullptr, *after = nullptr;   // among the pinned ones
};
static_assert(sizeof(block) <= ALIGNMENT, "the memory follows it");

void leave(block * b) {
    if (b->users.fetch_sub(1, std::memory_order_acq_rel) != 1) {
        return;
    }
    b->pool->used_bytes -= b->bytes;
    b->~block();
    free(b);
}

class keep_alive final : public command {
  public:
    explicit keep_alive(block * m) : command(command_kind::work), memory_(m) { m->users++; }
    ~keep_alive() override { leave(memory_); }
    void run() override {}

  private:
    block * const memory_;
};

// Few of them live at a time. Never destroyed.
struct pinned_blocks {
    std::mutex mutex;
    block * first = nullptr;

    static pinned_blocks & get() {
        alignas(pinned_blocks) static unsigned char room[sizeof(pinned_blocks)];
        static auto * blocks = new (room) pinned_blocks;
        return *blocks;
    }
    void add(block * b) {
        std::lock_guard<std::mutex> lock(mutex);
        b->after = first;
        if (first) {
            first->before = b;
        }
        first = b;
    }
    void remove(block * b) {
        std::lock_guard<std::mutex> lock(mutex);
        (b->before ? b->before->after : first) = b->after;
        if (b->after) {
            b->after->before = b->before;
        }
    }
};

memory_pool & pool_of(ggml_backend_buffer_type_t type) { return *static_cast<memory_pool *>(buft_context(type)); }

block * memory_of(ggml_backend_buffer_t b) { return static_cast<block *>(b->context); }

// --- functions of a buffer: they act at once, on the calling thread ------------------------------------------------

void free_buffer(ggml_backend_buffer_t b) {
    block * memory = memory_of(b);
    if (memory->pool->pinned) {
        pinned_blocks::get().remove(memory);
    }
    queue::push_to_busy(
        [](void * m) { return std::unique_ptr<command>(new (std::nothrow) keep_alive(static_cast<block *>(m))); }, memory);
    leave(memory);
}

void * get_base(ggml_backend_buffer_t b) { return memory_of(b)->base(); }

void memset_tensor(ggml_backend_buffer_t, ggml_tensor * t, uint8_t value, size_t offset, size_t size) {
    memset(static_cast<char *>(t->data) + offset, value, size);
}

void set_tensor(ggml_backend_buffer_t, ggml_tensor * t, const void * data, size_t offset, size_t size) {
    memcpy(static_cast<char *>(t->data) + offset, data, size);
}

void get_tensor(ggml_backend_buffer_t, const ggml_tensor * t, void * data, size_t offset, size_t size) {
    memcpy(data, static_cast<const char *>(t->data) + offset, size);
}

bool cpy_tensor(ggml_backend_buffer_t, const ggml_tensor * src, ggml_tensor * dst) {
    ggml_backend_buffer_t from = tensor_buffer(src);
    if (!is_device_buffer(from) && !host.ggml_backend_buffer_is_host(from)) {
        return false;
    }
    memmove(dst->data, src->data, host.ggml_nbytes(src));
    return true;
}

void clear(ggml_backend_buffer_t b, uint8_t value) { memset(memory_of(b)->base(), value, b->size); }

// --- functions of a buffer type ------------------------------------------------------------------------------------

const char * get_name(ggml_backend_buffer_type_t type) { return pool_of(type).name; }

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
    memory_pool & pool = pool_of(type);
    const size_t bytes = size ? size : ALIGNMENT;
    if (pool.used_bytes.fetch_add(bytes) + bytes > pool.limit_bytes) {
        pool.used_bytes -= bytes;
        return nullptr;
    }
    // The device is full: the engine's affair, as with any other device, and no failure of the plugin's.
    void * at = nullptr;
    if (bytes > SIZE_MAX - ALIGNMENT || posix_memalign(&at, ALIGNMENT, ALIGNMENT + bytes) != 0) {
        pool.used_bytes -= bytes;
        return nullptr;
    }
    block * memory = new (at) block(&pool, bytes);
    if (pool.pinned) {
        pinned_blocks::get().add(memory);
    }
    ggml_backend_buffer_i iface = {};
    iface.free_buffer = free_buffer;
    iface.get_base = get_base;
    iface.memset_tensor = memset_tensor;
    iface.set_tensor = set_tensor;
    iface.get_tensor = get_tensor;
    iface.cpy_tensor = cpy_tensor;
    iface.clear = clear;
    return host.ggml_backend_buffer_init(type, iface, memory, size);
}

size_t get_alignment(ggml_backend_buffer_type_t) { return ALIGNMENT; }

bool is_host(ggml_backend_buffer_type_t type) { return pool_of(type).pinned; }

template <class Layout>
void fill(Layout & type, ggml_backend_dev_t device, memory_pool * pool) {
    type = {};
    type.get_name = get_name;
    type.alloc_buffer = alloc_buffer;
    type.get_alignment = get_alignment;
    type.is_host = is_host;
    type.device = device;
    type.context = pool;
}

// The recorder may have replaced alloc_buffer, but nothing replaces get_name.
memory_pool * pool_if_ours(ggml_backend_buffer_t b) {
    return b && b->buft && buft_v2(b->buft)->get_name == get_name ? &pool_of(b->buft) : nullptr;
}

}  // namespace

void buffer_type_init(buffer_type_storage & out, ggml_backend_dev_t device, memory_pool * pool) {
    if (host_api == 3) {
        fill(out.v3, device, pool);
    } else {
        fill(out.v2, device, pool);
    }
}

bool is_device_buffer(ggml_backend_buffer_t b) {
    const memory_pool * pool = pool_if_ours(b);
    return pool && !pool->pinned;
}

bool is_pinned_buffer(ggml_backend_buffer_t b) {
    const memory_pool * pool = pool_if_ours(b);
    return pool && pool->pinned;
}

bool is_pinned(const void * at, size_t bytes) {
    pinned_blocks & p = pinned_blocks::get();
    std::lock_guard<std::mutex> lock(p.mutex);
    for (block * b = p.first; b; b = b->after) {
        const uintptr_t offset = uintptr_t(at) - uintptr_t(b->base());
        if (offset < b->bytes) {
            return bytes <= b->bytes - offset;
        }
    }
    return false;
}

}  // namespace td
