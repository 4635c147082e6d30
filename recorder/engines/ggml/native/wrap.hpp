// Wrapping in place: the original function tables are kept in objects.hpp, the tables get functions that record and
// call on. Nothing is added that waits.
#pragma once
#include "objects.hpp"

namespace td {

// Every registered device that is not wrapped yet. Cheap when there is none.
void wrap_new_devices();
void wrap_device(ggml_backend_dev_t dev);
void wrap_backend(ggml_backend_t backend, const device_info * d);   // defines the queue
// Defines the buffer (late: seen in use, its allocation was not) and wraps its table. Null for none.
buffer_info * wrap_buffer(ggml_backend_buffer_t buffer, bool late);
void wrap_buffer_type(ggml_backend_buffer_type_t buft);

}  // namespace td
