#include "fake_host.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct ggml_context {
    std::vector<void *> owned;
};

namespace fake {

std::vector<ggml_backend_dev_t> devices;
std::atomic<bool> gate[8];
std::atomic<int> computed{0};

static int number(const char * name, int otherwise) {
    const char * text = getenv(name);
    return text ? atoi(text) : otherwise;
}

static const int api = number("FAKE_API", 3);

static bool is_host_type(ggml_backend_buffer_type_t t) {
    auto * f = api == 3 ? reinterpret_cast<ggml_backend_buffer_type_v3 *>(t)->is_host
                        : reinterpret_cast<ggml_backend_buffer_type_v2 *>(t)->is_host;
    return f && f(t);
}

// --- the CPU device

static ggml_status compute(ggml_backend_t, ggml_cgraph * g) {
    for (int i = 0; i < g->n_nodes; i++) {
        ggml_tensor * t = g->nodes[i];
        if (t->op == ADD) {
            auto * a = static_cast<const float *>(t->src[0]->data);
            auto * b = static_cast<const float *>(t->src[1]->data);
            for (int64_t k = 0; k < t->ne[0]; k++) {
                static_cast<float *>(t->data)[k] = a[k] + b[k];
            }
        } else if (t->op == GATE) {
            while (!gate[t->op_params[0]]) {
                usleep(200);
            }
        } else if (t->op == FAIL) {
            return GGML_STATUS_FAILED;
        }
        computed++;
    }
    return GGML_STATUS_SUCCESS;
}

static ggml_backend_t init_backend(ggml_backend_dev_t dev, const char *) {
    auto * b = new ggml_backend{};
    b->device = dev;
    b->iface.get_name = [](ggml_backend_t) -> const char * { return "CPU"; };
    b->iface.free = [](ggml_backend_t self) { delete self; };
    b->iface.graph_compute = compute;
    return b;
}

static ggml_backend_buffer_t allocate_pageable(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_i f = {};
    f.free_buffer = [](ggml_backend_buffer_t b) { free(b->context); };
    f.get_base = [](ggml_backend_buffer_t b) { return b->context; };
    auto * b = new ggml_backend_buffer{};
    b->iface = f;
    b->buft = type;
    b->context = aligned_alloc(128, (size + 127) / 128 * 128);
    b->size = size;
    return b;
}

static ggml_backend_device cpu;
static ggml_backend_reg cpu_registry;
static ggml_backend_buffer_type_v2 type_v2;
static ggml_backend_buffer_type_v3 type_v3;

template <class T>
static void fill(T & type) {
    type.get_name = [](ggml_backend_buffer_type_t) -> const char * { return "CPU"; };
    type.alloc_buffer = allocate_pageable;
    type.get_alignment = [](ggml_backend_buffer_type_t) -> size_t { return 128; };
    type.is_host = [](ggml_backend_buffer_type_t) { return true; };
    type.device = &cpu;
}

ggml_backend_buffer_type_t pageable() {
    return api == 3 ? reinterpret_cast<ggml_backend_buffer_type_t>(&type_v3)
                    : reinterpret_cast<ggml_backend_buffer_type_t>(&type_v2);
}

static bool ready = [] {
    fill(type_v2);
    fill(type_v3);
    cpu_registry.api_version = api;
    cpu_registry.iface.get_name = [](ggml_backend_reg_t) -> const char * { return "CPU"; };
    cpu_registry.iface.get_device_count = [](ggml_backend_reg_t) -> size_t { return 1; };
    cpu_registry.iface.get_device = [](ggml_backend_reg_t, size_t) -> ggml_backend_dev_t { return &cpu; };
    cpu.reg = &cpu_registry;
    cpu.iface.get_name = [](ggml_backend_dev_t) -> const char * { return "CPU"; };
    cpu.iface.get_description = [](ggml_backend_dev_t) -> const char * { return "fake"; };
    cpu.iface.get_type = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_CPU; };
    cpu.iface.get_props = [](ggml_backend_dev_t, ggml_backend_dev_props * p) { *p = {}; };
    cpu.iface.init_backend = init_backend;
    cpu.iface.get_buffer_type = [](ggml_backend_dev_t) { return pageable(); };
    cpu.iface.supports_op = [](ggml_backend_dev_t, const ggml_tensor * t) { return t->op != UNSUPPORTED; };
    devices.push_back(&cpu);
    return true;
}();

// --- what a test builds

ggml_tensor tensor(ggml_backend_buffer_t buffer, size_t offset, int64_t n) {
    ggml_tensor t = {};
    t.buffer = buffer;
    t.ne[0] = n;
    t.ne[1] = t.ne[2] = t.ne[3] = 1;
    t.nb[0] = 4;
    t.nb[1] = t.nb[2] = t.nb[3] = size_t(n) * 4;
    t.data = static_cast<char *>(buffer->iface.get_base(buffer)) + offset;
    snprintf(t.name, sizeof t.name, "t%zu", offset);
    return t;
}

ggml_tensor add(ggml_tensor * a, ggml_tensor * b, ggml_tensor * into) {
    ggml_tensor t = *into;
    t.op = ADD;
    t.src[0] = a;
    t.src[1] = b;
    t.view_src = into;
    return t;
}

ggml_tensor wait_for_gate(int number, ggml_tensor * any) {
    ggml_tensor t = *any;
    t.op = GATE;
    t.op_params[0] = number;
    t.view_src = any;
    return t;
}

graph::graph(std::vector<ggml_tensor *> n) : nodes(std::move(n)), g() {
    g.size = g.n_nodes = int(nodes.size());
    g.nodes = nodes.data();
}

ggml_backend_buffer_t allocate(ggml_backend_buffer_type_t type, size_t bytes) {
    return reinterpret_cast<ggml_backend_buffer_type_v2 *>(type)->alloc_buffer(type, bytes);
}

void release(ggml_backend_buffer_t b) {
    b->iface.free_buffer(b);
    memset(static_cast<void *>(b), 0x5a, sizeof *b);   // whoever still looks at it shall notice
    delete b;
}

ggml_backend_reg_t load(const char * plugin) {
    void * library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(99);
    }
    auto init = reinterpret_cast<ggml_backend_reg_t (*)()>(dlsym(library, "ggml_backend_init"));
    ggml_backend_reg_t registry = init();
    for (size_t i = 0; registry && i < registry->iface.get_device_count(registry); i++) {
        devices.push_back(registry->iface.get_device(registry, i));
    }
    return registry;
}

}  // namespace fake

// --- the functions of ggml

extern "C" {

EXPORT ggml_context * ggml_init(ggml_init_params) { return new ggml_context; }

EXPORT void ggml_free(ggml_context * c) {
    for (void * p : c->owned) {
        free(p);
    }
    delete c;
}

EXPORT size_t ggml_tensor_overhead() {
    return 32 + sizeof(ggml_tensor) + size_t(fake::number("FAKE_TENSOR_BYTES", 0));
}

EXPORT size_t ggml_graph_overhead_custom(size_t size, bool) { return 1024 + size * 64; }

EXPORT ggml_tensor * ggml_new_tensor_1d(ggml_context * c, int, int64_t n) {
    auto * t = static_cast<ggml_tensor *>(calloc(1, sizeof(ggml_tensor)));
    c->owned.push_back(t);
    t->ne[0] = n;
    t->ne[1] = t->ne[2] = t->ne[3] = 1;
    t->nb[0] = 4;
    t->nb[1] = t->nb[2] = t->nb[3] = size_t(n) * 4;
    c->owned.push_back(t->data = calloc(size_t(n), 4));
    return t;
}

EXPORT ggml_tensor * ggml_set_name(ggml_tensor * t, const char * name) {
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

EXPORT const char * ggml_get_name(const ggml_tensor * t) { return t->name; }

EXPORT ggml_cgraph * ggml_new_graph_custom(ggml_context * c, size_t size, bool) {
    auto * g = static_cast<ggml_cgraph *>(calloc(1, sizeof(ggml_cgraph) + size * sizeof(void *)));
    c->owned.push_back(g);
    g->size = int(size);
    g->nodes = reinterpret_cast<ggml_tensor **>(g + 1);
    g->visited_hash_set.size = 2 * size;
    return g;
}

EXPORT void ggml_graph_add_node(ggml_cgraph * g, ggml_tensor * t) { g->nodes[g->n_nodes++] = t; }
EXPORT ggml_tensor * ggml_graph_node(ggml_cgraph * g, int i) { return g->nodes[i]; }
EXPORT int ggml_graph_n_nodes(ggml_cgraph * g) { return g->n_nodes; }
EXPORT size_t ggml_nbytes(const ggml_tensor * t) { return size_t(t->ne[0]) * 4; }
#ifndef FAKE_WITHOUT_OP_NAME
EXPORT const char * ggml_op_name(int op) { return op == fake::ADD ? "ADD" : op == fake::NONE ? "NONE" : op == fake::CUSTOM ? "MAP_CUSTOM1" : "GATE"; }
#endif

EXPORT ggml_backend_buffer_t ggml_backend_buffer_init(ggml_backend_buffer_type_t type, ggml_backend_buffer_i f,
                                                      void * context, size_t size) {
    auto * b = new ggml_backend_buffer{};
    b->iface = f;
    b->buft = type;
    b->context = context;
    b->size = size;
    return b;
}

EXPORT bool ggml_backend_buffer_is_host(ggml_backend_buffer_t b) { return fake::is_host_type(b->buft); }
EXPORT bool ggml_backend_buft_is_host(ggml_backend_buffer_type_t t) { return fake::is_host_type(t); }
EXPORT ggml_backend_dev_t ggml_backend_buft_get_device(ggml_backend_buffer_type_t t) {
    return fake::api == 3 ? reinterpret_cast<ggml_backend_buffer_type_v3 *>(t)->device
                          : reinterpret_cast<ggml_backend_buffer_type_v2 *>(t)->device;
}
EXPORT ggml_backend_dev_t ggml_backend_dev_by_type(ggml_backend_dev_type type) {
    return type == GGML_BACKEND_DEVICE_TYPE_CPU ? fake::devices[0] : nullptr;
}
EXPORT size_t ggml_backend_dev_count() { return fake::devices.size(); }
EXPORT ggml_backend_dev_t ggml_backend_dev_get(size_t i) { return fake::devices[i]; }
EXPORT ggml_backend_reg_t ggml_backend_dev_backend_reg(ggml_backend_dev_t dev) { return dev->reg; }
EXPORT void * ggml_backend_reg_get_proc_address(ggml_backend_reg_t, const char *) { return nullptr; }

}  // extern "C"
