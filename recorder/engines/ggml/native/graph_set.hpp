// What a graph touches: a deduplicated list of byte ranges, defined once (D_SET) and named by every compute.
#pragma once
#include "objects.hpp"

namespace td {

struct graph_set {
    uint32_t set = NONE;    // NONE: not known
    uint32_t name = NONE;   // first tensor written
};

// Cheap for a graph seen before: by uid on its queue, else by a hash over the nodes. Calls on one queue do not overlap.
graph_set set_of(queue_info & q, const ggml_cgraph * g);

// Names of the tensors that a set touches (NONE among them); kept only where a plan asks for them. Slow path's lock held.
struct name_list {
    const uint32_t *first, *last;
    const uint32_t * begin() const { return first; }
    const uint32_t * end() const { return last; }
};
name_list set_names(uint32_t set);

// Bytes from the first to the last one of a tensor; `gaps` tells whether it touches only some of them.
uint64_t tensor_span(const ggml_tensor * t, bool & gaps);

// Where a tensor lies; NONE and 0 if no buffer is known.
struct place { uint32_t buffer = NONE; uint64_t offset = 0; };
place place_of(const ggml_tensor * t);

}  // namespace td
