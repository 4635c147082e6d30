#include "fake_sched.h"

#include <vector>

#include "fake_host.h"

struct fake_sched {
    std::vector<ggml_backend_t> backends;
    std::vector<ggml_backend_buffer_type_t> types;
    int n_copies;
    struct split { int from, to, backend; };
    std::vector<split> splits;
    bool allocated = false;
    fake_callback callback = nullptr;
    void * data = nullptr;
    bool pieces = false;
};

static std::atomic<int> made, freed, computed, allocated, reset, pinned;
static std::atomic<uint64_t> last_uid;
static int seventh_word;
static const char * eighth_word;
static float copied[16];
static ggml_tensor copy_of_an_input;

extern "C" {

fake_sched * ggml_backend_sched_new(ggml_backend_t * backends, ggml_backend_buffer_type_t * types, int n, size_t, bool parallel,
                                    bool, int seventh, const char * eighth) {
    made++;
    seventh_word = seventh;
    eighth_word = eighth;
    auto * s = new fake_sched;
    s->backends.assign(backends, backends + n);
    s->types.assign(types, types + n);
    s->n_copies = parallel ? 4 : 1;
    return s;
}

void ggml_backend_sched_free(fake_sched * s) {
    freed++;
    delete s;
}

bool ggml_backend_sched_alloc_graph(fake_sched * s, ggml_cgraph * g) {
    allocated++;
    s->splits.clear();
    copy_of_an_input.data = copied;
    for (int i = 0; i < g->n_nodes; i++) {
        ggml_tensor * t = g->nodes[i];
        if (t->op == fake::UNSUPPORTED) return false;
        const int backend = t->op_params[8];
        if (s->splits.empty() || s->splits.back().backend != backend) {
            s->splits.push_back({i, i, backend});
            if (i) t->src[0] = &copy_of_an_input;   // as the real one: the program's graph is changed
        }
        s->splits.back().to = i + 1;
    }
    g->uid = ++last_uid;
    s->allocated = true;
    return true;
}

ggml_status ggml_backend_sched_graph_compute_async(fake_sched * s, ggml_cgraph * g) {
    computed++;
    if (!s->allocated && !ggml_backend_sched_alloc_graph(s, g)) return GGML_STATUS_ALLOC_FAILED;
    for (size_t k = 0; k < s->splits.size(); k++) {
        const auto & split = s->splits[k];
        ggml_backend_t b = s->backends[static_cast<size_t>(split.backend)];
        if (k == 1 && s->callback) s->callback(s->data);
        if (k) {
            ggml_backend_t before = s->backends[static_cast<size_t>(s->splits[k - 1].backend)];
            if (before->iface.synchronize) before->iface.synchronize(before);
            ggml_tensor * input = g->nodes[split.from]->src[1];
            char bytes[16] = {};
            if (b->iface.set_tensor_async) b->iface.set_tensor_async(b, input, bytes, 0, 16);
        }
        for (int i = split.from; i < split.to;) {
            ggml_cgraph view = *g;
            view.nodes = g->nodes + i;
            view.n_nodes = s->pieces ? 1 : split.to - i;
            view.uid = 0;
            const ggml_status status = b->iface.graph_compute(b, &view);
            if (status != GGML_STATUS_SUCCESS) return status;
            if (s->pieces && b->iface.synchronize) b->iface.synchronize(b);
            i += view.n_nodes;
        }
    }
    return GGML_STATUS_SUCCESS;
}

ggml_status ggml_backend_sched_graph_compute(fake_sched * s, ggml_cgraph * g) {
    const ggml_status status = ggml_backend_sched_graph_compute_async(s, g);
    for (ggml_backend_t b : s->backends) if (b->iface.synchronize) b->iface.synchronize(b);
    return status;
}

void ggml_backend_sched_reset(fake_sched * s) {
    reset++;
    s->allocated = false;
}

void ggml_backend_sched_set_tensor_backend(fake_sched *, ggml_tensor *, ggml_backend_t) { pinned++; }

int ggml_backend_sched_get_n_splits(fake_sched * s) { return static_cast<int>(s->splits.size()); }
int ggml_backend_sched_get_n_copies(fake_sched * s) { return s->n_copies; }
int ggml_backend_sched_get_n_backends(fake_sched * s) { return static_cast<int>(s->backends.size()); }
ggml_backend_t ggml_backend_sched_get_backend(fake_sched * s, int i) { return s->backends[static_cast<size_t>(i)]; }
ggml_backend_buffer_type_t ggml_backend_sched_get_buffer_type(fake_sched * s, ggml_backend_t b) {
    for (size_t i = 0; i < s->backends.size(); i++) if (s->backends[i] == b) return s->types[i];
    return nullptr;
}

const char * ggml_type_name(int) { return "f32"; }

fake_counts fake_sched_counts() {
    return {made, freed, computed, allocated, reset, pinned, seventh_word, eighth_word};
}

void fake_sched_callback(fake_sched * s, fake_callback f, void * data, bool pieces) {
    s->callback = f;
    s->data = data;
    s->pieces = pieces;
}

}  // extern "C"
