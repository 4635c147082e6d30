#include "graph_set.hpp"

#include <algorithm>
#include <new>

#include "delays.h"
#include "host.h"
#include "mixer.hpp"
#include "wrap.hpp"

namespace td {

namespace {

enum op_class : uint8_t { UNKNOWN, SKIP, PLAIN, SCATTER, COPY, SET_INTO, ADD_INTO, GATHER, STEP };
enum mode_t : uint8_t { READ, WRITE, UPDATE, MAY_WRITE };
enum : uint8_t { INPUT = 1, LEAF = 2, OVER = 4 };

// Numbers of ops moved between builds: told apart by name, once per number.
op_class class_of(int op) {
    static std::atomic<uint8_t> known[512];
    if (op < 0 || op >= 512) return PLAIN;
    uint8_t c = known[op].load(std::memory_order_relaxed);
    if (c) return static_cast<op_class>(c);
    const char * text = host.ggml_op_name(op);
    struct { const char * text; bool operator==(const char * word) const { return !strcmp(text, word); } } n{text ? text : ""};
    op_class r = PLAIN;
    if (n == "NONE" || n == "VIEW" || n == "RESHAPE" || n == "PERMUTE" || n == "TRANSPOSE") r = SKIP;
    else if (n == "SET_ROWS") r = SCATTER;
    else if (n == "CPY") r = COPY;
    else if (n == "SET") r = SET_INTO;
    else if (n == "ACC") r = ADD_INTO;
    else if (n == "GET_ROWS" || n == "MUL_MAT_ID") r = GATHER;
    else if (n == "OPT_STEP_ADAMW") r = STEP;
    known[op].store(r, std::memory_order_relaxed);
    return r;
}

struct type_size { uint64_t bytes; int64_t block; };

type_size size_of(int type) {
    static auto bytes = reinterpret_cast<size_t (*)(int)>(host_symbol("ggml_type_size"));
    static auto block = reinterpret_cast<int64_t (*)(int)>(host_symbol("ggml_blck_size"));
    if (!bytes || !block) return {0, 1};
    return {bytes(type), block(type)};
}

uint64_t word(const char * p) { uint64_t w; memcpy(&w, p, 8); return w; }

// Up to its terminator, and perhaps some bytes more.
void mix_name(mixer & m, const char * name) {
    for (int i = 0; i < GGML_MAX_NAME; i += 16) {
        uint64_t x = word(name + i), y = word(name + i + 8);
        m.add(x, y);
        if (((x - 0x0101010101010101ull) & ~x & 0x8080808080808080ull) || ((y - 0x0101010101010101ull) & ~y & 0x8080808080808080ull)) return;
    }
}

// What a row can depend on: place, shape and strides, name, and of the root of a view what makes it a leaf.
void mix_tensor(mixer & m, const ggml_tensor * t) {
    const ggml_tensor * root = t->view_src ? t->view_src : t;
    m.add(reinterpret_cast<uint64_t>(t->data), reinterpret_cast<uint64_t>(root->buffer ? root->buffer : t->buffer));
    m.add(static_cast<uint64_t>(t->ne[0]), static_cast<uint64_t>(t->ne[1]));
    m.add(static_cast<uint64_t>(t->ne[2]), static_cast<uint64_t>(t->ne[3]));
    m.add(t->nb[0], t->nb[1]);
    m.add(t->nb[2], t->nb[3]);
    m.add(static_cast<uint64_t>(static_cast<uint32_t>(t->type)) << 32 | static_cast<uint32_t>(t->flags),
          static_cast<uint64_t>(static_cast<uint32_t>(root->op)) << 32 | static_cast<uint32_t>(root->flags));
    mix_name(m, t->name);
}

// All that walk looks at; what it takes from a tensor must stand here or in mix_tensor.
key128 hash_nodes(const ggml_cgraph * g) {
    mixer m;
    for (int i = 0; i < g->n_nodes; i++) {
        const ggml_tensor * t = g->nodes[i];
        m.add(static_cast<uint64_t>(t->op), static_cast<uint64_t>(i));
        mix_tensor(m, t);
        op_class c = class_of(t->op);
        if (c == SET_INTO || c == ADD_INTO) {   // strides and offset of what is touched
            m.add(word(reinterpret_cast<const char *>(t->op_params)), word(reinterpret_cast<const char *>(t->op_params + 2)));
        }
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            if (!t->src[j]) continue;
            m.add(static_cast<uint64_t>(j), 0);
            mix_tensor(m, t->src[j]);
        }
    }
    m.add(buffer_epoch.load(), static_cast<uint64_t>(g->n_nodes));
    return {m.a, m.b};
}

// Bytes that the graph itself has written for certain: disjoint, sorted by buffer and place.
class written {
public:
    bool failed() const { return ranges_.failed(); }
    bool covers(uint32_t buffer, uint64_t from, uint64_t to) const {
        const range * it = std::upper_bound(ranges_.begin(), ranges_.end(), range{from, 0, buffer}, [](const range & x, const range & r) { return before(x.buffer, x.from, r.buffer, r.from); });
        return it != ranges_.begin() && (--it)->buffer == buffer && it->to >= to;
    }
    void add(uint32_t buffer, uint64_t from, uint64_t to) {
        range * lo = std::lower_bound(ranges_.begin(), ranges_.end(), range{from, 0, buffer}, [](const range & r, const range & x) { return before(r.buffer, r.to, x.buffer, x.from); });
        range * hi = lo;
        while (hi != ranges_.end() && hi->buffer == buffer && hi->from <= to) { from = std::min(from, hi->from); to = std::max(to, hi->to); ++hi; }
        const auto at = static_cast<size_t>(lo - ranges_.begin());
        if (lo == hi) { ranges_.insert(at, {from, to, buffer}); return; }
        *lo = {from, to, buffer};
        ranges_.erase(at + 1, static_cast<size_t>(hi - ranges_.begin()));
    }
private:
    struct range { uint64_t from, to; uint32_t buffer; };
    static bool before(uint32_t a, uint64_t x, uint32_t b, uint64_t y) { return a != b ? a < b : x < y; }
    array<range> ranges_;
};

class walk {
public:
    static constexpr size_t MAX_ROWS = 1 << 22;   // 128 MiB of definition: no graph of a model comes near
    array<access> rows;
    // There was no memory for it, or it is too large: it is not known what the graph touches.
    bool failed() const { return failed_ || rows.failed() || written_.failed() || rows.size() > MAX_ROWS; }

    // As the collector names the computation: its first write to a tensor that has a name.
    uint32_t first_written() const {
        for (const access & r : rows) if (r.mode != READ && r.name != NONE) return r.name;
        return NONE;
    }

    explicit walk(const ggml_cgraph * g) {
        bool flagged = false;   // builds that have the compute flag skip nodes without it
        for (int i = 0; i < g->n_nodes && !flagged; i++) flagged = g->nodes[i]->flags & COMPUTE;
        failed_ = !seen_.assign(256, 0);
        for (int i = 0; i < g->n_nodes && !failed(); i++) {
            const ggml_tensor * t = g->nodes[i];
            if (flagged && !(t->flags & COMPUTE)) continue;
            node_ = static_cast<uint32_t>(i);
            node(t);
        }
    }

private:
    enum : int { COMPUTE = 16 };
    struct span { place at; uint64_t bytes; bool gaps; };

    static span span_of(const ggml_tensor * t) {
        span s{};
        s.bytes = tensor_span(t, s.gaps);
        s.at = place_of(t);
        return s;
    }
    static bool same(const span & a, const span & b) {
        return a.at.buffer != NONE && a.at.buffer == b.at.buffer && a.at.offset == b.at.offset && a.bytes == b.bytes;
    }

    void node(const ggml_tensor * t) {
        op_class c = class_of(t->op);
        if (c == SKIP) return;
        span out = span_of(t);
        bool in_place = false, exposed = false;
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            const ggml_tensor * s = t->src[j];
            if (!s) continue;
            if (c == COPY && j == 1) continue;   // names the destination
            span in = span_of(s);
            if (same(in, out)) {
                if (c == SCATTER) continue;      // likewise
                in_place = true;
                exposed = exposed || !covered(in);
                continue;
            }
            if (c == STEP && (j == 2 || j == 3)) {   // the moments, written in place beside the parameters
                wrote(in, !covered(in), name_id(s->name), leaf_flags(s));
                continue;
            }
            read(s, in, c == GATHER && j == 0);
        }
        if (!out.bytes) return;
        uint32_t name = name_id(t->name);
        if (c == SCATTER) {
            row(out, MAY_WRITE, name, leaf_flags(t) | OVER);
            return;
        }
        if ((c == SET_INTO || c == ADD_INTO) && in_place && t->src[1]) {
            // Only src[1]'s shape inside the destination is touched: strides and offset are parameters.
            const ggml_tensor * b = t->src[1];
            type_size ts = size_of(b->type);
            uint64_t bytes = ts.bytes * static_cast<uint64_t>(b->ne[0]), all = bytes;
            for (int k = 1; k < GGML_MAX_DIMS; k++) {
                bytes += static_cast<uint64_t>(b->ne[k] - 1) * static_cast<uint64_t>(static_cast<uint32_t>(t->op_params[k - 1]));
                all *= static_cast<uint64_t>(b->ne[k]);
            }
            uint64_t offset = static_cast<uint32_t>(t->op_params[3]);
            if (offset + bytes <= out.bytes) {
                out.at.offset += offset;
                out.bytes = bytes;
                out.gaps = bytes != all;
                exposed = c == ADD_INTO && !covered(out);
            }
        }
        wrote(out, in_place && exposed, name, leaf_flags(t));
    }

    void wrote(const span & s, bool exposed, uint32_t name, int flags) {
        row(s, exposed ? UPDATE : WRITE, name, flags | (s.gaps ? OVER : 0));
        if (s.at.buffer != NONE && !s.gaps) written_.add(s.at.buffer, s.at.offset, s.at.offset + s.bytes);
    }

    bool covered(const span & s) { return s.at.buffer != NONE && written_.covers(s.at.buffer, s.at.offset, s.at.offset + s.bytes); }

    void read(const ggml_tensor * t, const span & s, bool gather) {
        if (s.bytes && !covered(s)) row(s, READ, name_id(t->name), leaf_flags(t) | (s.gaps || gather ? OVER : 0));
    }

    static uint8_t leaf_flags(const ggml_tensor * t) {
        const ggml_tensor * root = t->view_src ? t->view_src : t;
        if (root->op != GGML_OP_NONE) return 0;
        return static_cast<uint8_t>(LEAF | (root->flags & GGML_TENSOR_FLAG_INPUT ? INPUT : 0));
    }

    void row(const span & s, mode_t mode, uint32_t name, int flags) {
        mixer m;
        m.add(s.at.offset, s.bytes);
        m.add(s.at.buffer, static_cast<uint64_t>(name) << 8 | mode);
        if (rows.size() * 2 >= seen_.size() && !rehash()) return;
        size_t mask = seen_.size() - 1, i = m.a ^ m.b;
        for (;; i++) {
            uint32_t n = seen_[i & mask];
            if (!n) break;
            access & r = rows[n - 1];
            if (r.buffer == s.at.buffer && r.offset == s.at.offset && r.bytes == s.bytes && r.mode == mode && r.name == name) {
                if (!(flags & OVER)) r.flags = static_cast<uint8_t>(r.flags & ~OVER);   // now for certain
                return;
            }
        }
        if (rows.push_back({s.at.buffer, name, s.at.offset, s.bytes, mode, static_cast<uint8_t>(flags), 0, node_})) seen_[i & mask] = static_cast<uint32_t>(rows.size());
    }

    bool rehash() {
        array<uint32_t> bigger;
        if (!bigger.assign(seen_.size() * 4, 0)) { failed_ = true; return false; }
        size_t mask = bigger.size() - 1;
        for (uint32_t n = 1; n <= rows.size(); n++) {
            const access & r = rows[n - 1];
            mixer m;
            m.add(r.offset, r.bytes);
            m.add(r.buffer, static_cast<uint64_t>(r.name) << 8 | r.mode);
            size_t i = m.a ^ m.b;
            while (bigger[i & mask]) i++;
            bigger[i & mask] = n;
        }
        seen_.swap(bigger);
        return true;
    }

    written written_;
    array<uint32_t> seen_;   // 1 + row
    bool failed_ = false;
    uint32_t node_ = 0;
};

struct cache_t {
    hash_table<graph_set> by_nodes, by_rows;
    array<uint32_t> names, names_end;   // of all sets, and where each set's end; where a plan asks for them
    uint32_t n_sets = 0;
};
cache_t & cache() {
    alignas(cache_t) static unsigned char room[sizeof(cache_t)];
    static cache_t * c = new (room) cache_t;   // never destroyed: engines compute in exit handlers
    return *c;
}

graph_set define_set(const walk & w) {
    if (w.failed()) return {};
    mixer m;
    for (const access & r : w.rows) {
        m.add(r.offset, r.bytes);
        m.add(static_cast<uint64_t>(r.buffer) << 32 | r.name, static_cast<uint64_t>(r.node) << 16 | static_cast<uint64_t>(r.flags) << 8 | r.mode);
    }
    m.add(w.rows.size(), 0);
    key128 k{m.a, m.b};
    if (const graph_set * known = cache().by_rows.find(k)) return *known;
    graph_set s;
    blob b;
    b.u32(cache().n_sets).u32(static_cast<uint32_t>(w.rows.size())).raw(w.rows.data(), w.rows.size() * sizeof(access));
    if (!define(D_SET, b)) return s;
    s.set = cache().n_sets++;
    if (delays_want_sets()) {
        for (const access & r : w.rows) cache().names.push_back(r.name);
        cache().names_end.push_back(static_cast<uint32_t>(cache().names.size()));
    }
    s.name = w.first_written();
    cache().by_rows.add(k, s);
    return s;
}

}  // namespace

name_list set_names(uint32_t set) {
    const cache_t & c = cache();
    if (set >= c.names_end.size()) return {nullptr, nullptr};
    return {c.names.data() + (set ? c.names_end[set - 1] : 0), c.names.data() + c.names_end[set]};
}

place place_of(const ggml_tensor * t) {
    ggml_backend_buffer_t buffer = tensor_buffer(t);
    if (!buffer && t->view_src) buffer = t->buffer;
    if (!buffer || !t->data) return {};
    buffer_info * b = buffers.find(buffer);
    if (__builtin_expect(!b, 0)) b = wrap_buffer(buffer, true);
    if (!b || b->id == NONE) return {};
    if (__builtin_expect(buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS && !b->weights.load(std::memory_order_relaxed), 0)) {
        b->weights.store(true);   // said by the engine after the allocation
        define_buffer(*b, buffer, b->late);
    }
    return {b->id, reinterpret_cast<uint64_t>(t->data) - b->base};
}

uint64_t tensor_span(const ggml_tensor * t, bool & gaps) {
    uint64_t n = host.ggml_nbytes(t);
    type_size ts = size_of(t->type);
    uint64_t dense = ts.bytes;
    for (int i = 0; i < GGML_MAX_DIMS; i++) dense *= static_cast<uint64_t>(t->ne[i]);
    gaps = ts.bytes && n != dense / static_cast<uint64_t>(ts.block);
    return n;
}

graph_set set_of(queue_info & q, const ggml_cgraph * g) {
    uint32_t epoch = buffer_epoch.load(std::memory_order_relaxed);
    set_cache_line & line = q.sets[g->uid % (sizeof q.sets / sizeof *q.sets)];
    if (g->uid && line.uid == g->uid && line.nodes == g->nodes && line.n == static_cast<uint32_t>(g->n_nodes) && line.epoch == epoch)
        return {line.set, line.name};
    key128 k = hash_nodes(g);
    graph_set s;
    bool known = false;
    {
        std::lock_guard<std::recursive_mutex> guard(slow_path());
        if (const graph_set * found = cache().by_nodes.find(k)) { s = *found; known = true; }
    }
    if (!known && !spool_over()) {
        walk w(g);
        std::lock_guard<std::recursive_mutex> guard(slow_path());
        s = define_set(w);
        // Stale keys (another epoch) are never found again: start over before they pile up.
        if (cache().by_nodes.size() > 65536) cache().by_nodes.clear();
        if (s.set != NONE) cache().by_nodes.add(k, s);
    }
    if (g->uid && s.set != NONE) line = {g->uid, g->nodes, static_cast<uint32_t>(g->n_nodes), epoch, s.set, s.name};
    return s;
}

}  // namespace td
