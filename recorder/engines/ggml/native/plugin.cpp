// ggml's extension point: the two symbols its loader looks for. Everything else in this library is hidden.
#include "config.h"
#include "device.h"
#include "hooks.h"
#include "host.h"

namespace td {

thread_local bool internal = false;

}  // namespace td

extern "C" __attribute__((visibility("default"))) int ggml_backend_score(void) { return 1; }

extern "C" __attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void) {
    static ggml_backend_reg_t made = nullptr;
    if (!td::host_bind(__builtin_return_address(0))) {
        return nullptr;
    }
    if (!made) {
        td::config c;
        if (!td::config_read(c)) {
            return nullptr;
        }
        made = td::devices_make(c);
        td::recorder_start(made);
    }
    return made;
}
