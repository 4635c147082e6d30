#include "buffer.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>

#include "host.h"
#include "queue.h"

namespace td {

namespace {

constexpr size_t ALIGNMENT = 128;

struct block {
    char * base = nullptr;
    size_t bytes = 0;
    memory_pool * pool = nullptr;
    ~block() {
        free(base);
        pool->used_bytes -= bytes;
    }
};

// Context of a buffer. The block lives on while commands that were queued before the buffer was freed may use it.
struct buffer_context {
    std::shared_ptr<block> memory;
};

class keep_alive final : public command {
  public:
    explicit keep_alive(std::shared_ptr<block> m) : command(command_kind::work), memory_(std::move(m)) {}
    void run() override { memory_.reset(); }

  private:
    std::shared_ptr<block> memory_;
};

struct pinned_ranges {
    std::mutex mutex;
    std::map<uintptr_t, size_t> ranges;   // start -> bytes
    static pinned_ranges & get() {
        static auto * ranges = new pinned_ranges;
        return *ranges;
    }
};

memory_pool & pool_of(ggml_backend_buffer_type_t type) { return *static_cast<memory_pool *>(buft_context(type)); }

const std::shared_ptr<block> & memory_of(ggml_backend_buffer_t b) {
    return static_cast<buffer_context *>(b->context)->memory;
}

// --- functions of a buffer: they act at once, on the calling thread ------------------------------------------------

void free_buffer(ggml_backend_buffer_t b) {
    auto * context = static_cast<buffer_context *>(b->context);
    if (context->memory->pool->pinned) {
        pinned_ranges & p = pinned_ranges::get();
        std::lock_guard<std::mutex> lock(p.mutex);
        p.ranges.erase(uintptr_t(context->memory->base));
    }
    queue::push_to_busy(
        [](void * m) -> std::unique_ptr<command> {
            return std::make_unique<keep_alive>(*static_cast<std::shared_ptr<block> *>(m));
        },
        &context->memory);
    delete context;
}

void * get_base(ggml_backend_buffer_t b) { return memory_of(b)->base; }

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

void clear(ggml_backend_buffer_t b, uint8_t value) { memset(memory_of(b)->base, value, b->size); }

// --- functions of a buffer type ------------------------------------------------------------------------------------

const char * get_name(ggml_backend_buffer_type_t type) { return pool_of(type).name; }

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
    memory_pool & pool = pool_of(type);
    const size_t bytes = size ? size : ALIGNMENT;
    if (pool.used_bytes.fetch_add(bytes) + bytes > pool.limit_bytes) {
        pool.used_bytes -= bytes;
        return nullptr;
    }
    void * base = nullptr;
    if (posix_memalign(&base, ALIGNMENT, bytes) != 0) {
        pool.used_bytes -= bytes;
        return nullptr;
    }
    auto * context = new buffer_context{std::make_shared<block>()};
    context->memory->base = static_cast<char *>(base);
    context->memory->bytes = bytes;
    context->memory->pool = &pool;
    if (pool.pinned) {
        pinned_ranges & p = pinned_ranges::get();
        std::lock_guard<std::mutex> lock(p.mutex);
        p.ranges[uintptr_t(base)] = bytes;
    }
    ggml_backend_buffer_i iface = {};
    iface.free_buffer = free_buffer;
    iface.get_base = get_base;
    iface.memset_tensor = memset_tensor;
    iface.set_tensor = set_tensor;
    iface.get_tensor = get_tensor;
    iface.cpy_tensor = cpy_tensor;
    iface.clear = clear;
    return host.ggml_backend_buffer_init(type, iface, context, size);
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
    pinned_ranges & p = pinned_ranges::get();
    std::lock_guard<std::mutex> lock(p.mutex);
    auto it = p.ranges.upper_bound(uintptr_t(at));
    if (it == p.ranges.begin()) {
        return false;
    }
    --it;
    return uintptr_t(at) - it->first + bytes <= it->second;
}

}  // namespace td
