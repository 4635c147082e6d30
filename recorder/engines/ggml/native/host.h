// The ggml that loaded us: its functions, found at run time, and its backend API version.
#pragma once
#include "ggml_abi.h"

namespace td {

// Functions every supported build exports. A host that lacks one is refused.
#define TD_HOST_FUNCTIONS(X)                                                                                     \
    X(ggml_context *, ggml_init, (ggml_init_params))                                                             \
    X(void, ggml_free, (ggml_context *))                                                                         \
    X(size_t, ggml_tensor_overhead, ())                                                                          \
    X(size_t, ggml_graph_overhead_custom, (size_t, bool))                                                        \
    X(ggml_tensor *, ggml_new_tensor_1d, (ggml_context *, int, int64_t))                                         \
    X(ggml_tensor *, ggml_set_name, (ggml_tensor *, const char *))                                               \
    X(const char *, ggml_get_name, (const ggml_tensor *))                                                        \
    X(ggml_cgraph *, ggml_new_graph_custom, (ggml_context *, size_t, bool))                                      \
    X(void, ggml_graph_add_node, (ggml_cgraph *, ggml_tensor *))                                                 \
    X(ggml_tensor *, ggml_graph_node, (ggml_cgraph *, int))                                                      \
    X(int, ggml_graph_n_nodes, (ggml_cgraph *))                                                                  \
    X(size_t, ggml_nbytes, (const ggml_tensor *))                                                                \
    X(const char *, ggml_op_name, (int))                                                                         \
    X(ggml_backend_buffer_t, ggml_backend_buffer_init,                                                           \
      (ggml_backend_buffer_type_t, ggml_backend_buffer_i, void *, size_t))                                       \
    X(bool, ggml_backend_buffer_is_host, (ggml_backend_buffer_t))                                                \
    X(bool, ggml_backend_buft_is_host, (ggml_backend_buffer_type_t))                                             \
    X(ggml_backend_dev_t, ggml_backend_buft_get_device, (ggml_backend_buffer_type_t))                            \
    X(ggml_backend_dev_t, ggml_backend_dev_by_type, (ggml_backend_dev_type))                                     \
    X(size_t, ggml_backend_dev_count, ())                                                                        \
    X(ggml_backend_dev_t, ggml_backend_dev_get, (size_t))                                                        \
    X(ggml_backend_reg_t, ggml_backend_dev_backend_reg, (ggml_backend_dev_t))                                    \
    X(void *, ggml_backend_reg_get_proc_address, (ggml_backend_reg_t, const char *))

struct host_functions {
#define TD_DECLARE(result, name, args) result(*name) args;
    TD_HOST_FUNCTIONS(TD_DECLARE)
#undef TD_DECLARE
};

extern host_functions host;   // valid after host_bind returned true
extern int host_api;          // GGML_BACKEND_API_VERSION of the host: 2 or 3

// Finds the ggml that contains `caller` (a return address in ggml's loader), else one that the process shows, and
// checks that its layouts are the ones of ggml_abi.h. False: said why in one line on stderr, nothing was changed.
// A second call from the same ggml is true at once; from another ggml in this process it is refused.
bool host_bind(void * caller);

// Any further symbol of the bound ggml, null where it has none.
void * host_symbol(const char * name);

ggml_backend_dev_t host_cpu();   // the CPU device, null while none is registered

// One line "tapedelay: ..." on stderr.
void say(const char * format, ...) __attribute__((format(printf, 1, 2)));

// Says why this process is not recorded: "tapedelay: refused: ..." and, the first time, the same words in the spool
// (refused-PID.txt), from which `record` and `doctor` tell the user: many programs hide what is on stderr.
void refuse(const char * format, ...) __attribute__((format(printf, 1, 2)));
// Only the file: where there is no recording that could say it.
void leave_word(const char * line);

// --- buffer types: the layout depends on host_api ----------------------------------------------------------------

inline ggml_backend_buffer_type_v2 * buft_v2(ggml_backend_buffer_type_t b) { return reinterpret_cast<ggml_backend_buffer_type_v2 *>(b); }
inline ggml_backend_buffer_type_v3 * buft_v3(ggml_backend_buffer_type_t b) { return reinterpret_cast<ggml_backend_buffer_type_v3 *>(b); }
inline ggml_backend_dev_t buft_device(ggml_backend_buffer_type_t b) { return host_api == 3 ? buft_v3(b)->device : buft_v2(b)->device; }
inline void * buft_context(ggml_backend_buffer_type_t b) { return host_api == 3 ? buft_v3(b)->context : buft_v2(b)->context; }
// get_name and alloc_buffer stand at the same place in both
inline const char * buft_name(ggml_backend_buffer_type_t b) { return buft_v2(b)->get_name(b); }

// The buffer a tensor's bytes lie in (a view's own field may be empty).
inline ggml_backend_buffer_t tensor_buffer(const ggml_tensor * t) { return t->view_src ? t->view_src->buffer : t->buffer; }

}  // namespace td
