#include "snapshot.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace td {

namespace {

size_t hash(const ggml_tensor * t) { return uintptr_t(t) >> 4; }   // as ggml does

// Slot of `t` in the host's hash set, or -1.
int64_t host_slot(const ggml_hash_set & set, const ggml_tensor * t) {
    if (set.size == 0 || !set.used || !set.keys) {
        return -1;
    }
    const size_t first = hash(t) % set.size;
    size_t i = first;
    do {
        if (!(set.used[i / 32] >> (i % 32) & 1)) {
            return -1;
        }
        if (set.keys[i] == t) {
            return int64_t(i);
        }
        i = i + 1 == set.size ? 0 : i + 1;
    } while (i != first);
    return -1;
}

}  // namespace

void snapshot::aligned_free::operator()(ggml_tensor * p) const { free(p); }

uint32_t snapshot::index_of(const ggml_tensor * original) const {
    const size_t mask = lookup_.size() - 1;
    for (size_t i = hash(original) & mask; lookup_[i]; i = (i + 1) & mask) {
        if (originals_[lookup_[i] - 1] == original) {
            return lookup_[i] - 1;
        }
    }
    return NOWHERE;
}

bool snapshot::build(const ggml_cgraph & g) {
    if (g.n_nodes < 0) {
        return false;
    }
    const size_t n_nodes = size_t(g.n_nodes);
    originals_.clear();
    size_t room = 64;
    while (room < n_nodes * (GGML_MAX_SRC + 2) * 2) {
        room *= 2;
    }
    if (!originals_.reserve(4 * n_nodes) || !lookup_.assign(room, 0)) {
        return false;
    }
    auto add = [&](const ggml_tensor * t) {
        if (!t || lookup_.failed() || originals_.failed()) {
            return;
        }
        if ((originals_.size() + 1) * 2 > lookup_.size()) {   // long chains of views
            array<uint32_t> larger;
            if (!larger.assign(lookup_.size() * 2, 0)) {
                lookup_.swap(larger);
                return;
            }
            for (uint32_t k = 0; k < originals_.size(); k++) {
                size_t i = hash(originals_[k]) & (larger.size() - 1);
                while (larger[i]) {
                    i = (i + 1) & (larger.size() - 1);
                }
                larger[i] = k + 1;
            }
            lookup_.swap(larger);
        }
        const size_t mask = lookup_.size() - 1;
        size_t i = hash(t) & mask;
        for (; lookup_[i]; i = (i + 1) & mask) {
            if (originals_[lookup_[i] - 1] == t) {
                return;
            }
        }
        if (originals_.push_back(t)) {
            lookup_[i] = uint32_t(originals_.size());
        }
    };
    for (size_t i = 0; i < n_nodes; i++) {
        add(g.nodes[i]);
    }
    if (originals_.size() != n_nodes) {
        return false;   // a node twice: no graph of ggml's
    }
    for (size_t i = 0; i < n_nodes; i++) {
        for (const ggml_tensor * s : g.nodes[i]->src) {
            add(s);
        }
    }
    for (size_t i = 0; i < originals_.size(); i++) {
        add(originals_[i]->view_src);
    }
    const size_t n = originals_.size(), slots = 2 * n_nodes + 1;
    if (lookup_.failed() || originals_.failed()) {
        return false;
    }
    copies_.reset(static_cast<ggml_tensor *>(try_aligned(16, n * sizeof(ggml_tensor))));
    if (!copies_ || !links_.assign(n, {}) || !nodes_.assign(n_nodes, nullptr) || !keys_.assign(slots, nullptr) ||
        !used_.assign((slots + 31) / 32, 0) || !use_counts_.assign(slots, 0)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        memcpy(&copies_[i], originals_[i], sizeof(ggml_tensor));
        links & l = links_[i];
        memcpy(l.src, originals_[i]->src, sizeof l.src);
        l.view_src = originals_[i]->view_src;
        l.view_index = l.view_src ? index_of(l.view_src) : NOWHERE;
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            // How a leaf was made is of no interest to who computes, and may not live long.
            l.src_index[j] = l.src[j] && i < n_nodes ? index_of(l.src[j]) : NOWHERE;
        }
    }
    for (size_t i = 0; i < n_nodes; i++) {
        nodes_[i] = &copies_[i];
    }
    for (ggml_tensor * t : nodes_) {
        const uint32_t slot = hash_slot(t);
        keys_[slot] = t;
        used_[slot / 32] |= 1u << (slot % 32);
    }
    graph_ = {};
    graph_.size = g.n_nodes;
    graph_.n_nodes = g.n_nodes;
    graph_.nodes = nodes_.data();
    graph_.use_counts = use_counts_.data();
    graph_.visited_hash_set = {slots, used_.data(), keys_.data()};
    graph_.order = g.order;
    connect();
    copy_use_counts(g);
    return true;
}

// Walks in the order of build(): an original is read only after something that is known to live points to it.
bool snapshot::refresh(const ggml_cgraph & g) {
    const size_t n_nodes = size_t(g.n_nodes);
    if (n_nodes != nodes_.size() || memcmp(g.nodes, originals_.data(), n_nodes * sizeof(void *)) != 0) {
        return false;
    }
    for (size_t i = 0; i < n_nodes; i++) {
        if (memcmp(originals_[i]->src, links_[i].src, sizeof links_[i].src) != 0) {
            return false;
        }
    }
    for (size_t i = 0; i < originals_.size(); i++) {
        if (originals_[i]->view_src != links_[i].view_src) {
            return false;
        }
    }
    for (size_t i = 0; i < originals_.size(); i++) {
        memcpy(&copies_[i], originals_[i], sizeof(ggml_tensor));
    }
    graph_.order = g.order;
    connect();
    copy_use_counts(g);
    return true;
}

void snapshot::connect() {
    for (size_t i = 0; i < originals_.size(); i++) {
        ggml_tensor & t = copies_[i];
        const links & l = links_[i];
        t.buffer = nullptr;   // the object may be gone by then; nothing that computes needs it
        for (int j = 0; j < GGML_MAX_SRC; j++) {
            t.src[j] = l.src_index[j] == NOWHERE ? nullptr : &copies_[l.src_index[j]];
        }
        t.view_src = l.view_index == NOWHERE ? nullptr : &copies_[l.view_index];
    }
}

uint32_t snapshot::hash_slot(const ggml_tensor * t) const {
    size_t i = hash(t) % keys_.size();
    while (keys_[i] && keys_[i] != t) {
        i = i + 1 == keys_.size() ? 0 : i + 1;
    }
    return uint32_t(i);
}

// The CPU backend merges operations whose result is used once: the counts make it compute as it would by itself.
void snapshot::copy_use_counts(const ggml_cgraph & g) {
    if (!g.use_counts) {
        return;
    }
    for (size_t i = 0; i < nodes_.size(); i++) {
        const int64_t from = host_slot(g.visited_hash_set, originals_[i]);
        use_counts_[hash_slot(nodes_[i])] = from < 0 ? 0 : g.use_counts[from];
    }
}

ref<snapshot> snapshot_pool::take(const ggml_cgraph & g) {
    size_t n = 0, reusable = KEEP;
    while (n < KEEP && kept_[n]) {
        n++;
    }
    auto take_out = [&](size_t i) {
        ref<snapshot> s = std::move(kept_[i]);
        for (n--; i < n; i++) {
            kept_[i] = std::move(kept_[i + 1]);
        }
        return s;
    };
    for (size_t i = n; i-- > 0;) {
        if (kept_[i]->in_use_.load(std::memory_order_acquire)) {
            continue;
        }
        if (kept_[i]->refresh(g)) {
            ref<snapshot> s = take_out(i);
            s->in_use_.store(true, std::memory_order_relaxed);
            kept_[n] = s;
            return s;
        }
        reusable = i;
    }
    if (n == KEEP && reusable < KEEP) {
        take_out(reusable);   // the longest unused one
    }
    ref<snapshot> s(new (std::nothrow) snapshot);
    if (!s || !s->build(g)) {
        return {};
    }
    if (n < KEEP) {
        kept_[n] = s;
    }
    return s;
}

}  // namespace td
