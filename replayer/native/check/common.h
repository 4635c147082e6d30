// What the parts of the check share: certainty, ranks, lanes, and what a baseline accepts.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "../contract.h"
#include "clocks.h"

namespace tapedelay::check {

enum class Certainty : std::int8_t { unknown, possible, sure };

// Order: replayer/check/judge.py names them.
enum class Fault : std::int8_t {
  raw, war, waw,
  use_after_free, free_in_flight, use_before_alloc, double_free, destroy_pending, use_after_destroy
};

inline bool reads(Mode m) { return m == Mode::read || m == Mode::update || m == Mode::reduce; }
inline Fault hazard(Mode earlier, Mode later) {
  if (!writes(earlier)) return Fault::war;
  return reads(later) ? Fault::raw : Fault::waw;
}

// Place of each row in the reference order, counted over rows.
class Ranks {
 public:
  Ranks(const Contract& contract, const Order& order);

  void add(Row row) {
    if (!plain_) rank_[row] = count_, rows_.push_back(row);
    count_++;
  }
  std::int32_t rank(Row row) const { return plain_ ? (row < count_ ? row : -1) : rank_[row]; }
  Row row(std::int32_t rank) const { return plain_ ? rank : rows_[rank]; }
  bool started(Row row) const { return row != kNull && rank(row) >= 0; }

 private:
  bool plain_;  // the reference order is row order
  std::int32_t count_ = 0;
  std::vector<std::int32_t> rank_;
  std::vector<Row> rows_;
};

// A lane is a set of ops of one chain each of which ends before the next starts: a chain without its ops with
// children, or those of one depth.
class Lanes {
 public:
  explicit Lanes(const Contract& contract) : contract_(contract) {}

  void start(Row unit) {
    if (!contract_.has_children(unit)) return;
    std::int32_t depth = 0;
    for (const Row p : contract_.parents(unit)) {
      const std::int32_t above = depth_[p] + 1;
      depth = depth > above ? depth : above;
    }
    depth_[unit] = depth;
  }
  // Depth of a unit with children that has started; -1 for one without.
  std::int32_t depth(Row unit) const { return contract_.has_children(unit) ? depth_.at(unit) : -1; }

 private:
  const Contract& contract_;
  std::unordered_map<Row, std::int32_t> depth_;
};

// The sorts of two ops where the baseline accepts what is found about them; -1: it does not.
struct Accepted {
  std::int32_t first = -1, second = -1;
  bool operator==(const Accepted& o) const { return first == o.first && second == o.second; }
};

// What a baseline accepts. Two accesses of one sort are accepted with the same others; -1 is the sort of whatever
// the baseline does not name.
class Accepting {
 public:
  virtual ~Accepting() = default;
  // Sort of an op with one of its accesses (-1 for the op alone).
  virtual std::int32_t sort(Row row, std::int32_t access) = 0;
  virtual bool race(Fault fault, std::int32_t root, std::int32_t first, std::int32_t second) = 0;
  virtual bool lifetime(Fault fault, std::int32_t buffer, std::int32_t sync, std::int32_t first,
                        std::int32_t second) = 0;
};

// A pair of rows, the earlier in reference order first.
struct Pair {
  Row first, second;
  Fault fault;
  std::int32_t root = -1, buffer = -1, sync = -1;
  std::int64_t begin = 0, end = 0;
  bool bytes = true;  // whether begin and end say anything
  bool definite = true, assumed = false;
  bool hull = false;  // not all bytes from begin to end need be common ones
  std::int32_t first_access = -1, second_access = -1;
  Accepted accepted;
};

}  // namespace tapedelay::check
