// ggml's extension point: the two symbols its loader looks for. Everything else in this library is hidden.
#include <atomic>

#include "config.h"
#include "device.h"
#include "hooks.h"
#include "host.h"

namespace td {

thread_local bool internal = false;

namespace {

bool has_gpu() {
    internal_scope quiet;
    for (size_t i = 0, n = host.ggml_backend_dev_count(); i < n; i++) {
        ggml_backend_dev_t dev = host.ggml_backend_dev_get(i);
        const ggml_backend_dev_type type = dev->iface.get_type(dev);
        if (type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU) {
            return true;
        }
    }
    return false;
}

}  // namespace

}  // namespace td

extern "C" __attribute__((visibility("default"))) int ggml_backend_score(void) { return 1; }

extern "C" __attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void) {
    static std::atomic<bool> made{false};
    if (!td::host_bind(__builtin_return_address(0)) || made.load()) {
        return nullptr;   // the second time silently: GGML_BACKEND_PATH and an import hook may both load us
    }
    td::config c;
    if (!td::config_read(c)) {
        return nullptr;
    }
    if (!c.devices_chosen && td::has_gpu()) {
        c.devices = 0;
    }
    if (made.exchange(true)) {
        return nullptr;
    }
    ggml_backend_reg_t registry = td::devices_make(c);
    td::recorder_start(registry);
    return registry;
}
