// Whether the ops of given pairs come one before the other: one pass over the reference order.
#pragma once

#include <cstdint>
#include <vector>

#include "../core_tape.h"

namespace tapedelay::check {

// Bits of an answer.
constexpr std::uint8_t kFirstBefore = 1, kSecondBefore = 2;

// Per pair of rows, whether the first has ended before the second starts, or the other way around. Rows that never
// start come before nothing and after nothing.
std::vector<std::uint8_t> ordered(const CoreTape& tape, Span<Row> first, Span<Row> second);

}  // namespace tapedelay::check
