#include "../bind.h"

namespace tapedelay {

void bind_virtual(nanobind::module_&) {}

}  // namespace tapedelay
