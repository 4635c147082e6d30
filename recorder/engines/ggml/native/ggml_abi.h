// The binary interface between ggml and an out-of-tree backend, declared by ourselves: layouts only, no ggml header
// is needed to build and no ggml symbol is linked (host.h finds the functions at run time). Backend API versions 2
// and 3; host.cpp checks sizes and offsets against the ggml that loaded us before anything else is touched.
//
// Layouts and names follow ggml (ggml-org/ggml), which is
//   MIT License
//   Copyright (c) 2023-2026 The ggml authors
//   Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
//   documentation files (the "Software"), to deal in the Software without restriction, including without limitation
//   the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and
//   to permit persons to whom the Software is furnished to do so, subject to the following conditions:
//   The above copyright notice and this permission notice shall be included in all copies or substantial portions of
//   the Software.
//   THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO
//   THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
//   AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF
//   CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS
//   IN THE SOFTWARE.
#pragma once
#include <cstddef>
#include <cstdint>

static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8, "64-bit only");

extern "C" {

struct ggml_context;
struct ggml_backend;
struct ggml_backend_buffer;
struct ggml_backend_buffer_type;   // two layouts, by API version: see buft_* below
struct ggml_backend_device;
struct ggml_backend_event;
struct ggml_backend_reg;
struct ggml_cgraph;
struct ggml_tensor;

typedef ggml_backend *             ggml_backend_t;
typedef ggml_backend_buffer *      ggml_backend_buffer_t;
typedef ggml_backend_buffer_type * ggml_backend_buffer_type_t;
typedef ggml_backend_device *      ggml_backend_dev_t;
typedef ggml_backend_event *       ggml_backend_event_t;
typedef ggml_backend_reg *         ggml_backend_reg_t;
typedef void *                     ggml_backend_graph_plan_t;
typedef uint8_t                    ggml_guid[16];
typedef ggml_guid *                ggml_guid_t;

enum ggml_status : int {
    GGML_STATUS_ALLOC_FAILED = -2,
    GGML_STATUS_FAILED       = -1,
    GGML_STATUS_SUCCESS      = 0,
    GGML_STATUS_ABORTED      = 1,
};

enum ggml_backend_dev_type : int {
    GGML_BACKEND_DEVICE_TYPE_CPU,
    GGML_BACKEND_DEVICE_TYPE_GPU,
    GGML_BACKEND_DEVICE_TYPE_IGPU,
    GGML_BACKEND_DEVICE_TYPE_ACCEL,
    GGML_BACKEND_DEVICE_TYPE_META,
};

enum ggml_backend_buffer_usage : int {
    GGML_BACKEND_BUFFER_USAGE_ANY     = 0,
    GGML_BACKEND_BUFFER_USAGE_WEIGHTS = 1,
    GGML_BACKEND_BUFFER_USAGE_COMPUTE = 2,
};

enum ggml_tensor_flag : int {
    GGML_TENSOR_FLAG_INPUT  = 1,
    GGML_TENSOR_FLAG_OUTPUT = 2,
};

// Numbers of ggml_type and ggml_op moved between builds: compare names (ggml_op_name) or use what is fixed below.
enum : int { GGML_TYPE_F32 = 0, GGML_OP_NONE = 0 };
enum : int { GGML_MAX_DIMS = 4, GGML_MAX_SRC = 10, GGML_MAX_OP_PARAMS = 64, GGML_MAX_NAME = 64 };

struct ggml_init_params {
    size_t mem_size;
    void * mem_buffer;
    bool   no_alloc;
};

struct ggml_tensor {
    int                   type;
    ggml_backend_buffer * buffer;
    int64_t               ne[GGML_MAX_DIMS];
    size_t                nb[GGML_MAX_DIMS];
    int                   op;
    int32_t               op_params[GGML_MAX_OP_PARAMS / sizeof(int32_t)];
    int32_t               flags;
    ggml_tensor *         src[GGML_MAX_SRC];
    ggml_tensor *         view_src;
    size_t                view_offs;
    void *                data;
    char                  name[GGML_MAX_NAME];
    void *                extra;
    char                  padding[8];
};
static_assert(sizeof(ggml_tensor) == 336, "");
static_assert(offsetof(ggml_tensor, op) == 80 && offsetof(ggml_tensor, src) == 152, "");
static_assert(offsetof(ggml_tensor, data) == 248 && offsetof(ggml_tensor, name) == 256, "");

struct ggml_hash_set {
    size_t         size;
    uint32_t *     used;   // bit set
    ggml_tensor ** keys;
};

struct ggml_cgraph {
    int            size;
    int            n_nodes;
    int            n_leafs;
    ggml_tensor ** nodes;
    ggml_tensor ** grads;
    ggml_tensor ** grad_accs;
    ggml_tensor ** leafs;
    int32_t *      use_counts;   // by slot of the hash set
    ggml_hash_set  visited_hash_set;
    int            order;
    uint64_t       uid;          // 0 = none; equal numbers = equal graphs
};
static_assert(sizeof(ggml_cgraph) == 96 && offsetof(ggml_cgraph, uid) == 88, "");

struct ggml_backend_buffer_i {
    void        (*free_buffer)  (ggml_backend_buffer_t buffer);
    void *      (*get_base)     (ggml_backend_buffer_t buffer);
    ggml_status (*init_tensor)  (ggml_backend_buffer_t buffer, ggml_tensor * tensor);
    void        (*memset_tensor)(ggml_backend_buffer_t buffer, ggml_tensor * tensor, uint8_t value, size_t offset, size_t size);
    void        (*set_tensor)   (ggml_backend_buffer_t buffer, ggml_tensor * tensor, const void * data, size_t offset, size_t size);
    void        (*get_tensor)   (ggml_backend_buffer_t buffer, const ggml_tensor * tensor, void * data, size_t offset, size_t size);
    void        (*set_tensor_2d)(ggml_backend_buffer_t buffer, ggml_tensor * tensor, const void * data, size_t offset, size_t size, size_t n_copies, size_t stride_tensor, size_t stride_data);
    void        (*get_tensor_2d)(ggml_backend_buffer_t buffer, const ggml_tensor * tensor, void * data, size_t offset, size_t size, size_t n_copies, size_t stride_tensor, size_t stride_data);
    bool        (*cpy_tensor)   (ggml_backend_buffer_t buffer, const ggml_tensor * src, ggml_tensor * dst);
    void        (*clear)        (ggml_backend_buffer_t buffer, uint8_t value);
    void        (*reset)        (ggml_backend_buffer_t buffer);
};
static_assert(sizeof(ggml_backend_buffer_i) == 11 * 8, "");

struct ggml_backend_buffer {   // allocated by the host only; it may have more members
    ggml_backend_buffer_i      iface;
    ggml_backend_buffer_type_t buft;
    void *                     context;
    size_t                     size;
    ggml_backend_buffer_usage  usage;
};

struct ggml_backend_i {
    const char * (*get_name)(ggml_backend_t backend);
    void         (*free)(ggml_backend_t backend);
    void (*set_tensor_async)   (ggml_backend_t backend, ggml_tensor * tensor, const void * data, size_t offset, size_t size);
    void (*get_tensor_async)   (ggml_backend_t backend, const ggml_tensor * tensor, void * data, size_t offset, size_t size);
    void (*set_tensor_2d_async)(ggml_backend_t backend, ggml_tensor * tensor, const void * data, size_t offset, size_t size, size_t n_copies, size_t stride_tensor, size_t stride_data);
    void (*get_tensor_2d_async)(ggml_backend_t backend, const ggml_tensor * tensor, void * data, size_t offset, size_t size, size_t n_copies, size_t stride_tensor, size_t stride_data);
    bool (*cpy_tensor_async)   (ggml_backend_t backend_src, ggml_backend_t backend_dst, const ggml_tensor * src, ggml_tensor * dst);
    void (*synchronize)(ggml_backend_t backend);
    ggml_backend_graph_plan_t (*graph_plan_create) (ggml_backend_t backend, const ggml_cgraph * cgraph);
    void                      (*graph_plan_free)   (ggml_backend_t backend, ggml_backend_graph_plan_t plan);
    void                      (*graph_plan_update) (ggml_backend_t backend, ggml_backend_graph_plan_t plan, const ggml_cgraph * cgraph);
    ggml_status               (*graph_plan_compute)(ggml_backend_t backend, ggml_backend_graph_plan_t plan);
    ggml_status               (*graph_compute)     (ggml_backend_t backend, ggml_cgraph * cgraph);
    void (*event_record)(ggml_backend_t backend, ggml_backend_event_t event);
    void (*event_wait)  (ggml_backend_t backend, ggml_backend_event_t event);
    void (*graph_optimize)(void);   // gained an argument without a version bump: leave it alone
};
static_assert(sizeof(ggml_backend_i) == 16 * 8, "");

struct ggml_backend {
    ggml_guid_t        guid;
    ggml_backend_i     iface;
    ggml_backend_dev_t device;
    void *             context;
};
static_assert(offsetof(ggml_backend, device) == 17 * 8, "");

struct ggml_backend_event {
    ggml_backend_dev_t device;
    void *             context;
};

struct ggml_backend_dev_caps {
    bool async;
    bool host_buffer;
    bool buffer_from_host_ptr;
    bool events;
    // newer builds may have more flags here; they fall into the padding of ggml_backend_dev_props
};

struct ggml_backend_dev_props {
    const char *          name;
    const char *          description;
    size_t                memory_free;
    size_t                memory_total;
    ggml_backend_dev_type type;
    const char *          device_id;
    ggml_backend_dev_caps caps;
};
static_assert(sizeof(ggml_backend_dev_props) == 56, "");

struct ggml_backend_device_i {
    const char * (*get_name)(ggml_backend_dev_t dev);
    const char * (*get_description)(ggml_backend_dev_t dev);
    void         (*get_memory)(ggml_backend_dev_t dev, size_t * free, size_t * total);
    ggml_backend_dev_type (*get_type)(ggml_backend_dev_t dev);
    void         (*get_props)(ggml_backend_dev_t dev, ggml_backend_dev_props * props);
    ggml_backend_t (*init_backend)(ggml_backend_dev_t dev, const char * params);
    ggml_backend_buffer_type_t (*get_buffer_type)(ggml_backend_dev_t dev);
    ggml_backend_buffer_type_t (*get_host_buffer_type)(ggml_backend_dev_t dev);
    ggml_backend_buffer_t (*buffer_from_host_ptr)(ggml_backend_dev_t dev, void * ptr, size_t size, size_t max_tensor_size);
    bool (*supports_op)(ggml_backend_dev_t dev, const ggml_tensor * op);
    bool (*supports_buft)(ggml_backend_dev_t dev, ggml_backend_buffer_type_t buft);
    bool (*offload_op)(ggml_backend_dev_t dev, const ggml_tensor * op);
    ggml_backend_event_t (*event_new)(ggml_backend_dev_t dev);
    void (*event_free)       (ggml_backend_dev_t dev, ggml_backend_event_t event);
    void (*event_synchronize)(ggml_backend_dev_t dev, ggml_backend_event_t event);
};
static_assert(sizeof(ggml_backend_device_i) == 15 * 8, "");

struct ggml_backend_device {
    ggml_backend_device_i iface;
    ggml_backend_reg_t    reg;
    void *                context;
};

struct ggml_backend_reg_i {
    const char * (*get_name)(ggml_backend_reg_t reg);
    size_t (*get_device_count)(ggml_backend_reg_t reg);
    ggml_backend_dev_t (*get_device)(ggml_backend_reg_t reg, size_t index);
    void * (*get_proc_address)(ggml_backend_reg_t reg, const char * name);
};

struct ggml_backend_reg {
    int                api_version;
    ggml_backend_reg_i iface;
    void *             context;
};
static_assert(offsetof(ggml_backend_reg, context) == 40, "");

// The two layouts of a buffer type. Version 3 put alloc_buffer_n and get_alloc_size_n in between.
struct ggml_backend_buffer_type_v2 {
    const char * (*get_name)(ggml_backend_buffer_type_t buft);
    ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_buffer_type_t buft, size_t size);
    size_t (*get_alignment)(ggml_backend_buffer_type_t buft);
    size_t (*get_max_size)(ggml_backend_buffer_type_t buft);
    size_t (*get_alloc_size)(ggml_backend_buffer_type_t buft, const ggml_tensor * tensor);
    bool   (*is_host)(ggml_backend_buffer_type_t buft);
    ggml_backend_dev_t device;
    void *             context;
};

struct ggml_backend_buffer_type_v3 {
    const char * (*get_name)(ggml_backend_buffer_type_t buft);
    ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_buffer_type_t buft, size_t size);
    ggml_backend_buffer_t (*alloc_buffer_n)(ggml_backend_buffer_type_t buft, ggml_tensor ** tensors, int n_tensors);
    size_t (*get_alignment)(ggml_backend_buffer_type_t buft);
    size_t (*get_max_size)(ggml_backend_buffer_type_t buft);
    size_t (*get_alloc_size)(ggml_backend_buffer_type_t buft, const ggml_tensor * tensor);
    size_t (*get_alloc_size_n)(ggml_backend_buffer_type_t buft, ggml_tensor ** tensors, int n_tensors);
    bool   (*is_host)(ggml_backend_buffer_type_t buft);
    ggml_backend_dev_t device;
    void *             context;
};
static_assert(sizeof(ggml_backend_buffer_type_v2) == 64 && sizeof(ggml_backend_buffer_type_v3) == 80, "");
static_assert(offsetof(ggml_backend_buffer_type_v2, alloc_buffer) == offsetof(ggml_backend_buffer_type_v3, alloc_buffer), "");

}  // extern "C"
