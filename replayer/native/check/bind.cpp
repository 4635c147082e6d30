#include "../bind.h"

namespace tapedelay {

void bind_check(nanobind::module_&) {}

}  // namespace tapedelay
