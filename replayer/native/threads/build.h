// From the columns of a tape to what the threads backend runs.
#pragma once

#include <cstdint>
#include <vector>

#include "../core_tape.h"
#include "spec.h"

namespace tapedelay::threads {

// Ranges of the accesses as `CoreTape` expands them, and where they lie in real memory (replayer/layout.py).
struct Placed {
  Span<std::int64_t> first;   // of each row, and their number
  Span<std::int32_t> root;    // of each range
  Span<std::int8_t> mode;
  Span<std::int32_t> access;  // row of `accesses`
  Span<std::int64_t> begin, end;
  Span<std::int32_t> roots;
  Span<std::int64_t> root_begin, root_end;
  std::int64_t bytes = 0;
};

struct Built {
  Spec spec;
  std::vector<std::int32_t> access_row;  // row of `accesses` of each access
};

Built build(const CoreTape& tape, const Placed& placed, Span<std::int64_t> gap_ns, Span<std::int64_t> duration_ns);

}  // namespace tapedelay::threads
