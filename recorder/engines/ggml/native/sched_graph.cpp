#include "sched_graph.hpp"

#include <atomic>
#include <cstring>

#include "host.h"
#include "mixer.hpp"
#include "objects.hpp"

namespace td {

namespace {

// What keeps a program whose graph differs in every step from filling memory and disk.
constexpr uint32_t MAX_GRAPHS  = 4096;
constexpr uint32_t MAX_TENSORS = 1 << 17;                 // of one graph
constexpr uint64_t MAX_BYTES   = 256ull << 20;            // of all definitions

struct known_t {
    hash_table<uint32_t> by_identity;
    uint64_t bytes = 0;
    uint32_t n = 0;
    bool full = false;
};
known_t & known() {
    static known_t * k = new known_t;   // never destroyed: engines compute in exit handlers
    return *k;
}

uint64_t word(const void * p) { uint64_t w; memcpy(&w, p, 8); return w; }

// NAME id of a text of any length: name_id reads as many bytes as a tensor's name has.
uint32_t text_id(const char * text) {
    char padded[GGML_MAX_NAME] = {};
    if (text) strncpy(padded, text, sizeof padded - 1);
    return name_id(padded);
}

// The parameters of custom ops are addresses of functions and of what these are given.
bool holds_pointers(int op) {
    static std::atomic<uint8_t> known_ops[512];   // 1 no, 2 yes; numbers moved between builds
    if (op < 0 || op >= 512) return true;
    uint8_t k = known_ops[op].load(std::memory_order_relaxed);
    if (!k) {
        const char * name = host.ggml_op_name(op);
        k = !name || strstr(name, "CUSTOM") || !strncmp(name, "MAP_", 4) ? 2 : 1;
        known_ops[op].store(k, std::memory_order_relaxed);
    }
    return k == 2;
}

struct memory_kind {
    uint32_t device = NONE;
    uint8_t usage = NO_BUFFER, host = 0;
};

class memory_kinds {
  public:
    const memory_kind & of(const ggml_tensor * t) {
        ggml_backend_buffer_t b = tensor_buffer(t);
        if (!b && t->view_src) b = t->buffer;
        if (b == buffer_) return kind_;   // most stand one after another
        buffer_ = b;
        kind_ = {};
        if (!b) return kind_;
        kind_.usage = static_cast<uint8_t>(b->usage <= GGML_BACKEND_BUFFER_USAGE_COMPUTE ? b->usage : GGML_BACKEND_BUFFER_USAGE_ANY);
        if (!b->buft) return kind_;
        kind_.host = td::host.ggml_backend_buft_is_host(b->buft);
        if (device_info * d = device_of(buft_device(b->buft))) kind_.device = d->id;
        return kind_;
    }

  private:
    ggml_backend_buffer_t buffer_ = nullptr;
    memory_kind kind_;
};

int n_tensors(const ggml_cgraph * g) { return g->n_nodes + g->n_leafs; }
const ggml_tensor * tensor_at(const ggml_cgraph * g, int i) { return i < g->n_nodes ? g->nodes[i] : g->leafs[i - g->n_nodes]; }

// The devices that tensors are pinned to, by index; a tensor pinned twice keeps the last.
bool pinned_devices(const graph_received & r, array<uint32_t> & devices) {
    if (!devices.assign(static_cast<size_t>(n_tensors(r.graph)), NONE)) return false;
    for (const pin & p : *r.pins) {
        int32_t i = r.index->find(p.tensor);
        if (i >= 0) devices[static_cast<size_t>(i)] = p.device;
    }
    return true;
}

void mix_name(mixer & m, const char * name) {
    for (int i = 0; i < GGML_MAX_NAME; i += 8) {
        uint64_t w = word(name + i);
        const uint64_t zero = (w - 0x0101010101010101ull) & ~w & 0x8080808080808080ull;
        if (zero) w &= ((zero & -zero) >> 7) - 1;   // what stands behind the terminator may be anything
        m.add(w, static_cast<uint64_t>(i));
        if (zero) return;
    }
}

// All that `describe` writes.
key128 identity(const graph_received & r, const array<uint32_t> & user) {
    const ggml_cgraph * g = r.graph;
    mixer m;
    memory_kinds kinds;
    m.add(r.config, static_cast<uint64_t>(static_cast<uint32_t>(g->n_nodes)) << 32 | static_cast<uint32_t>(g->n_leafs));
    for (int i = 0, n = n_tensors(g); i < n; i++) {
        const ggml_tensor * t = tensor_at(g, i);
        const memory_kind & k = kinds.of(t);
        m.add(static_cast<uint64_t>(static_cast<uint32_t>(t->op)) << 32 | static_cast<uint32_t>(t->type),
              static_cast<uint64_t>(static_cast<uint32_t>(t->flags)) << 32 | user[static_cast<size_t>(i)]);
        m.add(static_cast<uint64_t>(k.device) << 16 | static_cast<uint64_t>(k.usage) << 8 | k.host, t->view_src ? t->view_offs : 0);
        for (int d = 0; d < GGML_MAX_DIMS; d++) m.add(static_cast<uint64_t>(t->ne[d]), t->nb[d]);
        if (!holds_pointers(t->op)) {
            for (int p = 0; p < GGML_MAX_OP_PARAMS / 4; p += 4) m.add(word(t->op_params + p), word(t->op_params + p + 2));
        }
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            if (t->src[j]) m.add(static_cast<uint64_t>(j), static_cast<uint64_t>(static_cast<int64_t>(r.index->find(t->src[j]))));
        }
        m.add(static_cast<uint64_t>(static_cast<int64_t>(r.index->find(t->view_src))), 1);
        mix_name(m, t->name);
    }
    return {m.a, m.b};
}

graph_node describe(const graph_received & r, const ggml_tensor * t, uint32_t user, memory_kinds & kinds) {
    static auto op_text = reinterpret_cast<const char * (*)(const ggml_tensor *)>(host_symbol("ggml_op_desc"));
    static auto type_text = reinterpret_cast<const char * (*)(int)>(host_symbol("ggml_type_name"));
    graph_node n = {};
    for (int d = 0; d < GGML_MAX_DIMS; d++) {
        n.shape[d] = t->ne[d];
        n.strides[d] = t->nb[d];
    }
    n.view_source = r.index->find(t->view_src);
    n.view_offset = t->view_src ? t->view_offs : 0;
    for (int j = 0; j < GGML_MAX_SRC; j++) n.sources[j] = r.index->find(t->src[j]);
    n.name = name_id(t->name);
    n.op = text_id(op_text ? op_text(t) : host.ggml_op_name(t->op));
    n.type = text_id(type_text ? type_text(t->type) : "");
    n.flags = t->flags;
    const memory_kind & k = kinds.of(t);
    n.buffer_device = k.device;
    n.usage = k.usage;
    n.host = k.host;
    n.user_device = user;
    n.has_params = !holds_pointers(t->op);
    if (n.has_params) memcpy(n.op_params, t->op_params, sizeof n.op_params);
    return n;
}

// With the slow path's lock held.
uint32_t define_graph(const graph_received & r, const array<uint32_t> & user) {
    known_t & k = known();
    const ggml_cgraph * g = r.graph;
    const auto n = static_cast<uint32_t>(n_tensors(g));
    const uint64_t bytes = uint64_t(n) * sizeof(graph_node);
    if (k.n == MAX_GRAPHS || n > MAX_TENSORS || k.bytes + bytes > MAX_BYTES) {
        if (!k.full) define(D_NOTE, blob().str("too many or too large graphs: some that the scheduler received are not described"));
        k.full = true;
        return NONE;
    }
    array<graph_node> nodes;
    if (!nodes.reserve(n)) return NONE;
    memory_kinds kinds;
    for (uint32_t i = 0; i < n; i++) nodes.push_back(describe(r, tensor_at(g, static_cast<int>(i)), user[i], kinds));
    blob b;
    b.u32(k.n).u32(r.sched).u32(static_cast<uint32_t>(g->n_nodes)).u32(static_cast<uint32_t>(g->n_leafs)).raw(nodes.data(), bytes);
    if (!define(D_GRAPH, b)) return NONE;
    k.bytes += bytes;
    return k.n++;
}

}  // namespace

bool tensor_index::fill(const ggml_cgraph * g) {
    const auto n = static_cast<size_t>(n_tensors(g));
    size_t size = 64;
    while (size < n * 2) size *= 2;
    if (!cells_.assign(size, cell{})) return false;
    for (size_t i = 0; i < n; i++) {
        const ggml_tensor * t = tensor_at(g, static_cast<int>(i));
        size_t at = reinterpret_cast<uintptr_t>(t) / 16 * 0x9e3779b97f4a7c15ull >> 20;
        while (cells_[at & (size - 1)].tensor && cells_[at & (size - 1)].tensor != t) at++;
        if (!cells_[at & (size - 1)].tensor) cells_[at & (size - 1)] = {t, static_cast<int32_t>(i)};
    }
    return true;
}

int32_t tensor_index::find(const ggml_tensor * t) const {
    if (!t) return -2;
    const size_t mask = cells_.size() - 1;
    for (size_t at = reinterpret_cast<uintptr_t>(t) / 16 * 0x9e3779b97f4a7c15ull >> 20;; at++) {
        const cell & c = cells_[at & mask];
        if (c.tensor == t) return c.index;
        if (!c.tensor) return -1;
    }
}

uint32_t graph_id(const graph_received & r) {
    if (r.graph->n_nodes < 0 || r.graph->n_leafs < 0 || static_cast<uint32_t>(n_tensors(r.graph)) > MAX_TENSORS * 8) return NONE;
    array<uint32_t> user;
    if (!r.index->fill(r.graph) || !pinned_devices(r, user)) return NONE;
    const key128 k = identity(r, user);
    std::lock_guard<std::recursive_mutex> guard(slow_path());
    if (const uint32_t * id = known().by_identity.find(k)) return *id;
    const uint32_t id = define_graph(r, user);
    // What could not be described is not tried again with every token; what was written twice would be no harm.
    known().by_identity.add(k, id);
    return id;
}

}  // namespace td
