// Delays on the device's side of an asynchronous device that is not ours, in a host of our own making and on a clock
// of our own: filler_cases PLUGIN. The device is a queue whose products take time by their size; nothing really
// sleeps, so lengths are exact on any machine. Prints a line per copy: how long the queue was held up before it, and
// after it, in ns; then how many buffers are left. FAKE_DEVICE: normal, fast (a hundred times), no_product,
// no_memory, small (memory for the smallest products only), forgets (computes nothing whose result is not read),
// sleeps (has an op for it), dozes (has one that does not do it), remote (waits when it is read, and only then).
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>
#include <time.h>

#include "fake_host.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

enum : int { PRODUCT = 40, SLEEP = 41, COMPUTED = 16 };

bool is(const char * kind) { return getenv("FAKE_DEVICE") && !strcmp(getenv("FAKE_DEVICE"), kind); }
bool v3() { return !getenv("FAKE_API") || !strcmp(getenv("FAKE_API"), "3"); }

// --- the clock: a look at it takes 20 ns

std::atomic<uint64_t> clock_ns{1000000000};
uint64_t busy_until_ns = 0;   // the device's queue

// --- the device

ggml_backend_device gpu;
ggml_backend_reg registry;
int buffers = 0;

uint64_t length_ns(const ggml_tensor * t) {
    if (t->op == SLEEP) return is("dozes") ? 5000 : 1000 * uint64_t(t->op_params[0]);
    const uint64_t work = uint64_t(t->src[0]->ne[0] * t->ne[0] * t->ne[1]);
    return is("fast") ? 3000 + work / 50000 : 20000 + work / 2;
}

ggml_status compute(ggml_backend_t, ggml_cgraph * g) {
    clock_ns += 5000;   // the host's part
    busy_until_ns = std::max<uint64_t>(busy_until_ns, clock_ns) + 30000;
    for (int i = 0; i < g->n_nodes; i++) {
        const ggml_tensor * t = g->nodes[i];
        if (!(t->flags & COMPUTED) || is("forgets")) continue;
        const auto * bytes = static_cast<const char *>(t->data);
        const auto * begin = static_cast<const char *>(t->buffer->context);
        if (bytes < begin || bytes + 4 * t->ne[0] * t->ne[1] > begin + t->buffer->size) abort();
        busy_until_ns += length_ns(t);
    }
    return GGML_STATUS_SUCCESS;
}

void wait_for_queue() {
    if (clock_ns < busy_until_ns) clock_ns = busy_until_ns;
}

ggml_backend_t init(ggml_backend_dev_t dev, const char *) {
    auto * b = new ggml_backend{};
    b->device = dev;
    b->iface.get_name = [](ggml_backend_t) -> const char * { return "GPU0"; };
    b->iface.free = [](ggml_backend_t self) { delete self; };
    b->iface.graph_compute = compute;
    b->iface.synchronize = [](ggml_backend_t) { if (!is("remote")) wait_for_queue(); };
    b->iface.cpy_tensor_async = [](ggml_backend_t, ggml_backend_t, const ggml_tensor *, ggml_tensor *) {
        busy_until_ns = std::max<uint64_t>(busy_until_ns, clock_ns);
        return true;
    };
    return b;
}

template <class T>
ggml_backend_buffer_type_t make_type() {
    static T t{};
    t.get_name = [](ggml_backend_buffer_type_t) -> const char * { return "GPU"; };
    t.alloc_buffer = [](ggml_backend_buffer_type_t type, size_t size) -> ggml_backend_buffer_t {
        if (is("no_memory") || (is("small") && size > 20000)) return nullptr;
        auto * b = new ggml_backend_buffer{};
        b->iface.free_buffer = [](ggml_backend_buffer_t self) { buffers--; free(self->context); };
        b->iface.get_base = [](ggml_backend_buffer_t self) { return self->context; };
        b->iface.clear = [](ggml_backend_buffer_t, uint8_t) {};
        b->buft = type;
        b->context = aligned_alloc(64, (size + 63) / 64 * 64);
        b->size = size;
        buffers++;
        return b;
    };
    t.get_alignment = [](ggml_backend_buffer_type_t) -> size_t { return 64; };
    t.device = &gpu;
    return reinterpret_cast<ggml_backend_buffer_type_t>(&t);
}

ggml_backend_buffer_type_t type() {
    static ggml_backend_buffer_type_t t = v3() ? make_type<ggml_backend_buffer_type_v3>() : make_type<ggml_backend_buffer_type_v2>();
    return t;
}

void add_device() {
    registry.api_version = v3() ? 3 : 2;
    registry.iface.get_name = [](ggml_backend_reg_t) -> const char * { return "GPU"; };
    registry.iface.get_device_count = [](ggml_backend_reg_t) -> size_t { return 1; };
    registry.iface.get_device = [](ggml_backend_reg_t, size_t) { return &gpu; };
    gpu.reg = &registry;
    gpu.iface.get_name = gpu.iface.get_description = [](ggml_backend_dev_t) -> const char * { return "GPU0"; };
    gpu.iface.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_GPU; };
    gpu.iface.get_props = [](ggml_backend_dev_t, ggml_backend_dev_props * p) { *p = {}; p->caps.async = true; };
    gpu.iface.init_backend = init;
    gpu.iface.get_buffer_type = [](ggml_backend_dev_t) { return type(); };
    gpu.iface.supports_op = [](ggml_backend_dev_t, const ggml_tensor * t) { return t->op == SLEEP ? is("sleeps") || is("dozes") : !is("no_product"); };
    fake::devices.push_back(&gpu);
}

ggml_tensor * shaped(ggml_context * c, int64_t a, int64_t b);

}  // namespace

// --- what a host with such a device has beyond fake_host

extern "C" ggml_tensor * ggml_new_tensor_1d(ggml_context *, int, int64_t);

EXPORT int clock_gettime(clockid_t, timespec * t) noexcept {
    const uint64_t ns = clock_ns += 20;
    t->tv_sec = time_t(ns / 1000000000);
    t->tv_nsec = long(ns % 1000000000);
    return 0;
}

EXPORT ggml_tensor * ggml_new_tensor_2d(ggml_context * c, int, int64_t a, int64_t b) { return shaped(c, a, b); }

EXPORT ggml_tensor * ggml_mul_mat(ggml_context * c, ggml_tensor * a, ggml_tensor * b) {
    ggml_tensor * t = shaped(c, a->ne[1], b->ne[1]);
    t->op = PRODUCT;
    t->src[0] = a;
    t->src[1] = b;
    return t;
}

EXPORT ggml_tensor * ggml_sleep(ggml_context * c, ggml_tensor * a, int32_t us) {
    ggml_tensor * t = shaped(c, a->ne[0], a->ne[1]);
    t->op = SLEEP;
    t->op_params[0] = us;
    t->src[0] = a;
    return t;
}
EXPORT void ggml_build_forward_expand(ggml_cgraph * g, ggml_tensor * t) {
    if (g->n_nodes == g->size) abort();
    t->flags |= COMPUTED;
    g->nodes[g->n_nodes++] = t;
}

EXPORT ggml_backend_buffer_t ggml_backend_buft_alloc_buffer(ggml_backend_buffer_type_t t, size_t n) {
    return reinterpret_cast<ggml_backend_buffer_type_v2 *>(t)->alloc_buffer(t, n);
}
EXPORT size_t ggml_backend_buft_get_alignment(ggml_backend_buffer_type_t) { return 64; }
EXPORT size_t ggml_backend_buft_get_alloc_size(ggml_backend_buffer_type_t, const ggml_tensor * t) { return size_t(t->ne[0] * t->ne[1]) * 4; }
EXPORT void * ggml_backend_buffer_get_base(ggml_backend_buffer_t b) { return b->iface.get_base(b); }
EXPORT void ggml_backend_buffer_clear(ggml_backend_buffer_t b, uint8_t value) { b->iface.clear(b, value); }
EXPORT void ggml_backend_buffer_free(ggml_backend_buffer_t b) { fake::release(b); }
EXPORT void ggml_backend_tensor_get(const ggml_tensor * t, void * to, size_t offset, size_t bytes) {
    if (!t->buffer || !t->data) abort();
    wait_for_queue();
    memcpy(to, static_cast<const char *>(t->data) + offset, bytes);
}
EXPORT ggml_status ggml_backend_tensor_alloc(ggml_backend_buffer_t b, ggml_tensor * t, void * at) {
    if (t->buffer || t->data || t->view_src) abort();
    t->buffer = b;
    t->data = at;
    return GGML_STATUS_SUCCESS;
}

namespace {

ggml_tensor * shaped(ggml_context * c, int64_t a, int64_t b) {
    ggml_tensor * t = ggml_new_tensor_1d(c, GGML_TYPE_F32, 1);
    t->ne[0] = a;
    t->ne[1] = b;
    t->nb[1] = t->nb[2] = t->nb[3] = size_t(a) * 4;
    t->data = nullptr;
    return t;
}

}  // namespace

int main(int, char ** argv) {
    add_device();
    if (!fake::load(argv[1])) return 1;
    ggml_backend_t b = gpu.iface.init_backend(&gpu, nullptr), other = gpu.iface.init_backend(&gpu, nullptr);
    ggml_backend_buffer_t memory = is("no_memory") ? nullptr : fake::allocate(type(), 4096);
    static char bytes[256];
    ggml_backend_buffer plain{};
    plain.context = bytes;
    plain.iface.get_base = [](ggml_backend_buffer_t self) { return self->context; };
    ggml_tensor from = fake::tensor(memory ? memory : &plain, 0, 4), to = fake::tensor(memory ? memory : &plain, 128, 4);
    for (const char * name : {"a", "b", "c", "d"}) {
        snprintf(from.name, sizeof from.name, "%s", name);
        const uint64_t idle = std::max<uint64_t>(clock_ns, busy_until_ns);
        clock_ns = idle;
        if (!b->iface.cpy_tensor_async(b, b, &from, &to)) return 2;
        printf("%s %lu\n", name, static_cast<unsigned long>(busy_until_ns - idle));
    }
    b->iface.synchronize(b);
    b->iface.free(b);
    other->iface.free(other);
    if (memory) fake::release(memory);
    printf("buffers %d\n", buffers);
    return 0;
}
