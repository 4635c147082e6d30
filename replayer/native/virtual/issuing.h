// Host threads: what each op's issue comes after, and the recorded gap before it.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "../contract.h"

namespace tapedelay {

// A moment of a row in the flat table of times: 4 * row + one of these.
enum Moment : std::uint32_t { kIssue, kStart, kDone, kEnd };
using Slot = std::uint32_t;
constexpr Row kMaxRows = 1 << 29;
inline Slot slot_of(Row row, Moment moment) { return (static_cast<Slot>(row) << 2) | moment; }

struct Issuing {
  explicit Issuing(const Contract& contract);

  // Per row: the moment that its issue follows; the slot behind the last row (always 0) where there is none.
  std::vector<Slot> after;
  // More of them, for the few rows that have any.
  std::unordered_map<Row, std::vector<Slot>> more;
  // Host code before the issue; for an op without an issuer its issue time since the tape's first.
  std::vector<std::int64_t> gap_ns;
};

// What an op takes: as recorded for work, 1 us where nothing was; nothing for waits and bookkeeping.
std::vector<std::int64_t> durations(const OpColumns& ops);

}  // namespace tapedelay
