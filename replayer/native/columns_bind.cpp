#include "bind.h"

namespace tapedelay {

void bind_columns(nanobind::module_&) {}

}  // namespace tapedelay
