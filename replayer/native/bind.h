// The parts of the Python module; each lives beside what it binds.
#pragma once

#include <nanobind/nanobind.h>

namespace tapedelay {

void bind_columns(nanobind::module_& m);
void bind_check(nanobind::module_& m);
void bind_virtual(nanobind::module_& m);
void bind_threads(nanobind::module_& m);

}  // namespace tapedelay
