// tap_ns ROUNDS [PLUGIN]: prints ns per compute call of a scheduler that has nothing to do, and per node of a graph that
// is built again and allocated. Whether the tap stands in between is the environment's matter (LD_PRELOAD).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <vector>

#include "fake_host.h"
#include "fake_sched.h"

static double now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec);
}

template <class F>
static double median_ns(int rounds, int calls, F call) {
    std::vector<double> all;
    for (int r = 0; r < rounds; r++) {
        const double start = now_ns();
        for (int i = 0; i < calls; i++) call();
        all.push_back((now_ns() - start) / calls);
    }
    std::nth_element(all.begin(), all.begin() + rounds / 2, all.end());
    return all[static_cast<size_t>(rounds / 2)];
}

int main(int argc, char ** argv) {
    const int rounds = atoi(argv[1]);
    if (argc > 2 && !fake::load(argv[2])) return 1;
    ggml_backend_dev_t cpu = fake::devices[0];
    ggml_backend_t backend = cpu->iface.init_backend(cpu, nullptr);
    ggml_backend_buffer_type_t type = cpu->iface.get_buffer_type(cpu);
    fake_sched * s = ggml_backend_sched_new(&backend, &type, 1, 64, false, true, 0, "");

    ggml_cgraph empty = {};
    if (!ggml_backend_sched_alloc_graph(s, &empty)) return 1;
    const double call = median_ns(rounds, 2000, [&] { ggml_backend_sched_graph_compute_async(s, &empty); });

    constexpr int NODES = 1000;
    std::unique_ptr<ggml_tensor[]> tensors(new ggml_tensor[NODES]());
    std::vector<ggml_tensor *> nodes;
    for (int i = 0; i < NODES; i++) {
        ggml_tensor & t = tensors[static_cast<size_t>(i)];
        t.op = fake::ADD;
        t.ne[0] = t.ne[1] = t.ne[2] = t.ne[3] = 1;
        t.src[0] = &tensors[static_cast<size_t>(i ? i - 1 : 0)];
        t.src[1] = &tensors[static_cast<size_t>(i / 2)];
        snprintf(t.name, sizeof t.name, "node_%d", i);
        nodes.push_back(&t);
    }
    ggml_cgraph g = {};
    g.n_nodes = NODES;
    g.nodes = nodes.data();
    const double rebuilt = median_ns(rounds, 20, [&] {
        ggml_backend_sched_reset(s);
        ggml_backend_sched_alloc_graph(s, &g);
    });
    printf("%f %f\n", call, rebuilt / NODES);
}
