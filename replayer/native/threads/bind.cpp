#include "../bind.h"

namespace tapedelay {

void bind_threads(nanobind::module_&) {}

}  // namespace tapedelay
