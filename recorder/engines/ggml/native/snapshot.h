// A private copy of a graph as it stands when it is enqueued: the host may rebuild its tensors while the command waits.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "containers.hpp"
#include "ggml_abi.h"

namespace td {

class snapshot : public counted {
  public:
    ggml_cgraph * graph() { return &graph_; }
    void release() { in_use_.store(false, std::memory_order_release); }   // by the command, once it is done

  private:
    friend class snapshot_pool;
    struct aligned_free {
        void operator()(ggml_tensor * p) const;
    };
    static constexpr uint32_t NOWHERE = UINT32_MAX;
    struct links {   // where the host's tensor pointed when it was copied, and which copy that is
        const ggml_tensor * src[GGML_MAX_SRC];
        const ggml_tensor * view_src;
        uint32_t src_index[GGML_MAX_SRC];
        uint32_t view_index;
    };

    bool build(const ggml_cgraph & g);     // false: no memory, or no graph of ggml's
    bool refresh(const ggml_cgraph & g);   // same nodes and links as before: copies contents only. False = differs
    void connect();
    void copy_use_counts(const ggml_cgraph & g);
    uint32_t hash_slot(const ggml_tensor * t) const;
    uint32_t index_of(const ggml_tensor * original) const;

    array<const ggml_tensor *> originals_;   // nodes first, in graph order, then what they refer to
    array<links> links_;
    array<uint32_t> lookup_;                       // open hash of originals_: index + 1
    std::unique_ptr<ggml_tensor[], aligned_free> copies_;
    array<ggml_tensor *> nodes_;
    array<ggml_tensor *> keys_;
    array<uint32_t> used_;
    array<int32_t> use_counts_;
    ggml_cgraph graph_ = {};
    std::atomic<bool> in_use_{true};
};

// Snapshots of one queue; what a finished command released is used again. `take` is for the issuing thread only.
class snapshot_pool {
  public:
    // Null = it has to be computed as it is, at once.
    ref<snapshot> take(const ggml_cgraph & g);

  private:
    static constexpr size_t KEEP = 8;
    ref<snapshot> kept_[KEEP];   // newest use last, then none
};

}  // namespace td
