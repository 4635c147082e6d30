// The test devices TAPE0, TAPE1, ...: asynchronous GPUs made of host memory, a worker thread and the CPU backend.
#pragma once
#include "config.h"
#include "ggml_abi.h"

namespace td {

// The registry "TAPE" with `c.devices` devices. Called once, after the host was bound.
ggml_backend_reg_t devices_make(const config & c);

}  // namespace td
