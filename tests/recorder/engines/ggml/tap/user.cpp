// A program's library that uses a scheduler, one case per run; linked with one of two copies of the fake ggml.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "fake_host.h"
#include "fake_sched.h"

namespace {

constexpr int CPU = 0, TEST = 1;

// A context: backends of its own, memory, and a graph of three nodes in two splits (CPU, CPU, test device).
struct context {
    std::vector<ggml_backend_t> backends;
    std::vector<ggml_backend_buffer_type_t> types;
    ggml_backend_buffer_t memory, device_memory;
    fake_sched * sched = nullptr;

    struct built {
        ggml_tensor in, a, b, c;
        ggml_tensor * nodes[3];
        ggml_tensor * leafs[1];
        ggml_cgraph g;
    };
    std::vector<std::unique_ptr<built>> graphs;

    explicit context(bool parallel = false) {
        for (ggml_backend_dev_t dev : fake::devices) {
            backends.push_back(dev->iface.init_backend(dev, nullptr));
            types.push_back(dev->iface.get_buffer_type(dev));
        }
        memory = fake::allocate(types[0], 4096);
        device_memory = types.size() > 1 ? fake::allocate(types[1], 4096) : memory;
        sched = ggml_backend_sched_new(backends.data(), types.data(), static_cast<int>(backends.size()), 64, parallel, true, 77, "eighth");
    }
    ~context() {
        ggml_backend_sched_free(sched);
        for (ggml_backend_t b : backends) b->iface.free(b);
        if (device_memory != memory) fake::release(device_memory);
        fake::release(memory);
    }

    // Built anew at each call, at another address.
    ggml_cgraph * build(int64_t n = 4, const char * name = "a", int op = fake::ADD, int32_t parameter = 0) {
        graphs.push_back(std::make_unique<built>());
        built & x = *graphs.back();
        const int device = backends.size() > 1 ? TEST : CPU;
        x.in = fake::tensor(device_memory, 0, n);
        snprintf(x.in.name, sizeof x.in.name, "in");
        x.in.flags = GGML_TENSOR_FLAG_INPUT;
        ggml_tensor * into[] = {&x.a, &x.b, &x.c};
        for (int i = 0; i < 3; i++) {
            ggml_tensor & t = *into[i];
            t = fake::tensor(i == 2 ? device_memory : memory, static_cast<size_t>(512 * (i + 1)), n);
            t.op = fake::ADD;
            t.src[0] = i ? into[i - 1] : &x.in;
            t.src[1] = &x.in;
            t.op_params[8] = i == 2 ? device : CPU;
            x.nodes[i] = &t;
        }
        x.c.src[1] = &x.c;   // the fake feeds a split through its second source
        x.b.op = op;
        x.a.op_params[0] = parameter;
        snprintf(x.a.name, sizeof x.a.name, "%s", name);
        x.c.flags = GGML_TENSOR_FLAG_OUTPUT;
        x.leafs[0] = &x.in;
        x.g = {};
        x.g.size = 8;
        x.g.n_nodes = 3;
        x.g.n_leafs = 1;
        x.g.nodes = x.nodes;
        x.g.leafs = x.leafs;
        return &x.g;
    }
    ggml_tensor * input() { return &graphs.back()->in; }
    ggml_tensor * output() { return &graphs.back()->c; }
    void write_input() {
        const float value[4] = {1, 2, 3, 4};
        if (device_memory->iface.set_tensor) device_memory->iface.set_tensor(device_memory, input(), value, 0, sizeof value);
    }
    void read_output() {
        float value[4];
        if (device_memory->iface.get_tensor) device_memory->iface.get_tensor(device_memory, output(), value, 0, sizeof value);
    }
    void wait() {
        for (ggml_backend_t b : backends) if (b->iface.synchronize) b->iface.synchronize(b);
    }
    ggml_cgraph * rebuild(int64_t n = 4, const char * name = "a", int op = fake::ADD, int32_t parameter = 0) {
        ggml_backend_sched_reset(sched);
        ggml_cgraph * g = build(n, name, op, parameter);
        CHECK(ggml_backend_sched_alloc_graph(sched, g));
        return g;
    }
};

void steps() {   // reused, then rebuilt, then another one
    context c;
    ggml_cgraph * g = c.rebuild();
    for (int i = 0; i < 3; i++) {
        c.write_input();
        CHECK(ggml_backend_sched_graph_compute_async(c.sched, g) == GGML_STATUS_SUCCESS);
        c.wait();
        c.read_output();
    }
    g = c.rebuild();
    c.write_input();
    CHECK(ggml_backend_sched_graph_compute_async(c.sched, g) == GGML_STATUS_SUCCESS);
    c.wait();
    g = c.rebuild(2);
    CHECK(ggml_backend_sched_graph_compute_async(c.sched, g) == GGML_STATUS_SUCCESS);
    c.wait();
}

void alone() {   // neither reset nor allocated by the program; waits inside of the call
    context c;
    ggml_cgraph * g = c.build();
    for (int i = 0; i < 2; i++) CHECK(ggml_backend_sched_graph_compute(c.sched, g) == GGML_STATUS_SUCCESS);
}

void identity() {   // each differs from the first in one thing; the last does not
    context c, parallel(true);
    std::vector<std::function<ggml_cgraph *()>> all = {
        [&] { return c.build(); },
        [&] { return c.build(8); },
        [&] { return c.build(4, "other"); },
        [&] { return c.build(4, "a", fake::ADD, 5); },
        [&] { ggml_cgraph * g = c.build(); g->nodes[0]->flags = GGML_TENSOR_FLAG_OUTPUT; return g; },
        [&] { ggml_cgraph * g = c.build(); g->nodes[1]->src[1] = nullptr; return g; },
        [&] { ggml_cgraph * g = c.build(); g->nodes[1]->src[1] = nullptr; g->nodes[1]->src[2] = g->leafs[0]; return g; },
        [&] { ggml_cgraph * g = c.build(); g->nodes[0]->nb[1] = 64; return g; },
        [&] { ggml_cgraph * g = c.build(); g->nodes[1]->view_src = g->nodes[0]; g->nodes[1]->view_offs = 8; return g; },
        [&] { ggml_cgraph * g = c.build(); ggml_backend_sched_set_tensor_backend(c.sched, g->nodes[1], c.backends[1]); return g; },
        [&] { return c.build(); },
    };
    for (auto & make : all) {
        ggml_backend_sched_reset(c.sched);
        ggml_cgraph * g = make();
        CHECK(ggml_backend_sched_alloc_graph(c.sched, g));
    }
    ggml_cgraph * g = parallel.build();
    CHECK(ggml_backend_sched_alloc_graph(parallel.sched, g));
}

void pointers() {   // parameters of custom ops are addresses
    for (int32_t p : {1, 2}) {
        context c;
        ggml_cgraph * g = c.build(4, "a", fake::CUSTOM);
        g->nodes[1]->op_params[0] = p;
        CHECK(ggml_backend_sched_alloc_graph(c.sched, g));
    }
}

void many() {   // a graph that differs in every step
    context c;
    for (int i = 0; i < 4200; i++) c.rebuild(4, "a", fake::ADD, i + 1);
    CHECK(ggml_backend_sched_graph_compute(c.sched, &c.graphs.back()->g) == GGML_STATUS_SUCCESS);
}

void throwing() {
    context c;
    ggml_cgraph * g = c.rebuild();
    fake_sched_callback(c.sched, [](void *) { throw std::runtime_error("out of memory"); }, nullptr, false);
    bool caught = false;
    try {
        ggml_backend_sched_graph_compute(c.sched, g);
    } catch (const std::runtime_error &) {
        caught = true;
    }
    CHECK(caught);
    fake_sched_callback(c.sched, nullptr, nullptr, false);
    CHECK(ggml_backend_sched_graph_compute_async(c.sched, g) == GGML_STATUS_SUCCESS);
    c.wait();
}

void nested() {   // a callback that computes on another scheduler
    context outer, inner;
    ggml_cgraph * g = outer.rebuild();
    struct pack { context * c; ggml_cgraph * g; } p{&inner, inner.rebuild(2)};
    fake_sched_callback(outer.sched, [](void * data) {
        auto * x = static_cast<pack *>(data);
        CHECK(ggml_backend_sched_graph_compute(x->c->sched, x->g) == GGML_STATUS_SUCCESS);
    }, &p, false);
    CHECK(ggml_backend_sched_graph_compute(outer.sched, g) == GGML_STATUS_SUCCESS);
}

void pieces() {   // an evaluation callback
    context c;
    ggml_cgraph * g = c.rebuild();
    fake_sched_callback(c.sched, nullptr, nullptr, true);
    CHECK(ggml_backend_sched_graph_compute(c.sched, g) == GGML_STATUS_SUCCESS);
}

void fails() {
    context c;
    ggml_backend_sched_reset(c.sched);
    CHECK(!ggml_backend_sched_alloc_graph(c.sched, c.build(4, "a", fake::UNSUPPORTED)));
    ggml_cgraph * g = c.rebuild(4, "a", fake::FAIL);
    CHECK(ggml_backend_sched_graph_compute_async(c.sched, g) == GGML_STATUS_FAILED);
    g = c.rebuild();
    CHECK(ggml_backend_sched_graph_compute(c.sched, g) == GGML_STATUS_SUCCESS);
}

void turns() {   // two contexts on one thread, prepared before either computes
    context a, b;
    ggml_cgraph *x = a.rebuild(), *y = b.rebuild();
    for (int i = 0; i < 2; i++) {
        a.write_input();
        b.write_input();
        CHECK(ggml_backend_sched_graph_compute_async(a.sched, x) == GGML_STATUS_SUCCESS);
        CHECK(ggml_backend_sched_graph_compute_async(b.sched, y) == GGML_STATUS_SUCCESS);
        a.wait();
        a.read_output();
        b.wait();
        b.read_output();
    }
}

void threads() {
    std::vector<std::thread> all;
    for (int t = 0; t < 2; t++) {
        all.emplace_back([] {
            for (int again = 0; again < 3; again++) {
                context c;
                for (int i = 0; i < 40; i++) {
                    ggml_cgraph * g = i % 8 ? &c.graphs.back()->g : c.rebuild();
                    c.write_input();
                    CHECK(ggml_backend_sched_graph_compute(c.sched, g) == GGML_STATUS_SUCCESS);
                    c.read_output();
                }
            }
        });
    }
    for (auto & t : all) t.join();
}

const std::map<std::string, void (*)()> cases = {
    {"steps", steps}, {"alone", alone}, {"identity", identity}, {"pointers", pointers}, {"many", many}, {"throwing", throwing},
    {"nested", nested}, {"pieces", pieces}, {"fails", fails}, {"turns", turns}, {"threads", threads},
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void load(const char * plugin) { CHECK(fake::load(plugin)); }

extern "C" __attribute__((visibility("default"))) void run(const char * plugin, const char * name) {
    if (!strcmp(name, "late")) {
        context c;   // before anybody looks
        ggml_cgraph * g = c.rebuild();
        if (plugin) load(plugin);
        CHECK(ggml_backend_sched_graph_compute(c.sched, g) == GGML_STATUS_SUCCESS);
        g = c.rebuild();
        CHECK(ggml_backend_sched_graph_compute(c.sched, g) == GGML_STATUS_SUCCESS);
        return;
    }
    if (plugin) load(plugin);
    cases.at(name)();
}

extern "C" __attribute__((visibility("default"))) fake_counts counts() { return fake_sched_counts(); }
