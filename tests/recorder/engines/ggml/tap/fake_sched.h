// A scheduler as small as the tap's tests need: nodes with op_params[8] = index of their backend, a split per change
// of backend, and before each split but the first a copy of its input. Its functions are called through the procedure
// linkage table, also by each other, as in ggml's shared libraries.
#pragma once
#include "ggml_abi.h"

struct fake_sched;
using fake_callback = void (*)(void *);

extern "C" {

fake_sched * ggml_backend_sched_new(ggml_backend_t * backends, ggml_backend_buffer_type_t * types, int n, size_t graph_size,
                                    bool parallel, bool op_offload, int seventh, const char * eighth);
void ggml_backend_sched_free(fake_sched * s);
bool ggml_backend_sched_alloc_graph(fake_sched * s, ggml_cgraph * g);
ggml_status ggml_backend_sched_graph_compute(fake_sched * s, ggml_cgraph * g);
ggml_status ggml_backend_sched_graph_compute_async(fake_sched * s, ggml_cgraph * g);
void ggml_backend_sched_reset(fake_sched * s);
void ggml_backend_sched_set_tensor_backend(fake_sched * s, ggml_tensor * node, ggml_backend_t backend);
int ggml_backend_sched_get_n_splits(fake_sched * s);

// What this copy of the library has been asked for.
struct fake_counts { int made, freed, computed, allocated, reset, pinned, seventh; const char * eighth; };
fake_counts fake_sched_counts();

// Called inside of a compute, before the second split; `pieces`: a split is computed node by node.
void fake_sched_callback(fake_sched * s, fake_callback f, void * data, bool pieces);

}  // extern "C"
