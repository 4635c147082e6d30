// A graph as the scheduler received it, defined (D_GRAPH) once per identity: two graphs are one if all that is
// written of them is equal. The engine's own number of a graph is no part of it; it changes with every rebuild.
#pragma once
#include <cstdint>

#include "containers.hpp"
#include "ggml_abi.h"

namespace td {

struct pin { const ggml_tensor * tensor; uint32_t device; };   // DEVICE id the user wants it on

// Index of a graph's tensors by address; memory that is kept for the next graph.
class tensor_index {
  public:
    bool fill(const ggml_cgraph * g);              // false: no memory
    int32_t find(const ggml_tensor * t) const;     // -1 = not in the graph, -2 = null
  private:
    struct cell { const ggml_tensor * tensor; int32_t index; };
    array<cell> cells_;
};

struct graph_received {
    const ggml_cgraph * graph;
    uint32_t sched;                // SCHED id
    uint64_t config;               // what the scheduler was made with, as a hash
    const array<pin> * pins;
    tensor_index * index;
};

// GRAPH id; NONE: not described (no memory, too many or too large graphs, the disk).
uint32_t graph_id(const graph_received & r);

}  // namespace td
