// Times of a run in virtual time: max-plus over the contract, in the reference order.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "../contract.h"
#include "../span.h"
#include "issuing.h"

namespace tapedelay {

enum class Place : std::int8_t { before_issue, before_start, after_end };

struct Delay {
  Row row;
  Place place;
  std::int64_t ns;
};

// Times beyond this are one time: nothing overflows whatever a file says.
constexpr std::int64_t kEndOfTime = std::int64_t{1} << 61;

// Called now and then; may throw to end a run.
using Pulse = std::function<void()>;

class Timing {
 public:
  // `gap_ns`, `duration_ns`: per row, at least 0.
  Timing(const Contract& contract, const Order& order, const std::int64_t* gap_ns, const std::int64_t* duration_ns);

  // Rows of `delays` lie inside, nanoseconds are at least 0.
  void run(Span<Delay> delays, const Pulse& pulse);

  // Moments of the last run; -1: never.
  std::int64_t at(Row row, Moment moment) const { return times_[slot_of(row, moment)]; }
  std::int64_t total_ns() const { return total_; }
  // What the issue of a row follows: the slot behind the last row where it is nothing; and more of them.
  Slot after(Row row) const { return after_[row]; }
  Span<Slot> more_after(Row row) const {
    const auto it = more_.find(row);
    return it == more_.end() ? Span<Slot>() : Span<Slot>(it->second);
  }

 private:
  // What a unit has beyond one row, one issuer and sources.
  enum : std::uint8_t { kIssued = 1, kRows = 2, kParents = 4, kAny = 8, kParts = 16 };
  static constexpr std::int32_t kIssueOnly = 1 << 30;

  void plan(const Contract& contract, const Order& order, const Issuing& issuing);
  void issue(Row row);
  void start(Row unit);
  void end(Row unit);
  void patch(Span<Delay> delays, int sign);

  const Contract& contract_;
  std::vector<std::int32_t> steps_;  // row | kIssueOnly, u: unit u starts, ~u: a unit with children ends
  std::vector<std::uint8_t> flags_;
  std::vector<Slot> after_;
  std::unordered_map<Row, std::vector<Slot>> more_;
  std::unordered_map<Row, std::vector<Row>> any_of_;  // records that come before the wait in the reference order
  std::vector<std::int64_t> gap_, hold_, take_, tail_;  // before issue, before start, duration, after end
  std::vector<std::int64_t> times_;
  std::int64_t total_ = 0;
};

}  // namespace tapedelay
