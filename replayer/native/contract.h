// The edge contract (formats/SPEC.md section 8) on columns: which op completes before which other op starts.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "span.h"
#include "tape.h"

namespace tapedelay {

// A reference that points nowhere, or a limit that is passed. `what()` says what was found, `expected` what was not.
struct BadTape : std::runtime_error {
  std::string expected, where;
  BadTape(const std::string& found, std::string wanted) : std::runtime_error(found), expected(std::move(wanted)) {}
};

// More than a call can give an answer for.
struct TooMuch : BadTape {
  using BadTape::BadTape;
};

// Same order as RULES of formats/edges/contract.py.
enum class Rule : std::int8_t {
  program, issue, event, sync, semaphore, edge, blocking_copy, free_synchronises, alloc_synchronises, default_queue,
  switched
};

// Nodes are units: one op, or all members of one collective, named by the row of its last member. An edge
// source -> target says that the source has ended before the target starts.
class Contract {
 public:
  explicit Contract(const Columns& columns);

  const Columns& columns() const { return columns_; }
  Row rows() const { return rows_; }
  Row unit(Row row) const { return unit_.empty() ? row : unit_[row]; }
  bool is_unit(Row row) const { return unit(row) == row; }
  Span<Row> rows_of(Row unit) const;   // ascending; the unit itself where it has one row (valid until the next call)
  Span<Row> sources(Row unit) const { return {source_.data() + first_[unit], first_[unit + 1] - first_[unit]}; }
  Span<Rule> rules(Row unit) const { return {rule_.data() + first_[unit], first_[unit + 1] - first_[unit]}; }
  Span<Row> parents(Row unit) const;   // units
  Span<Row> children(Row unit) const;  // units
  Span<Row> any_of(Row unit) const;    // record units of a wait for any of several events
  bool has_parents(Row unit) const { return !parent_.empty() && parent_[unit] != kNone; }
  bool has_children(Row unit) const { return !child_.empty() && child_first_[unit] != child_first_[unit + 1]; }
  bool has_family() const { return !child_.empty(); }
  bool is_ancestor(Row ancestor, Row unit) const;
  const std::vector<Row>& unresolved() const { return unresolved_; }  // rows, ascending
  const std::vector<Row>& never() const { return never_; }            // rows that wait for a signal no row gives
  std::int64_t edges() const { return std::int64_t(source_.size()); }
  bool in_order(std::int32_t queue) const { return columns_.queues.in_order.data[queue] != 0; }
  bool host(std::int32_t queue) const { return columns_.queues.host.data[queue] != 0; }

 private:
  friend class Resolver;
  static constexpr Row kNone = std::numeric_limits<Row>::min();
  bool is_above(Row ancestor, Row unit) const;

  Columns columns_;
  Row rows_ = 0;
  std::vector<Row> unit_;  // empty: every row is its own unit
  std::vector<std::uint32_t> first_;
  std::vector<Row> source_;
  std::vector<Rule> rule_;
  std::unordered_map<Row, std::vector<Row>> members_, any_of_;
  std::vector<Row> parent_;  // empty: none has one; else the parent, `kNone`, or ~place in `several_`
  std::vector<std::vector<Row>> several_, above_;  // of units with several parents: those, and all above, sorted
  std::vector<std::uint32_t> child_first_;
  std::vector<Row> child_;
  std::vector<Row> unresolved_, never_;
  mutable Row self_ = 0;
};

inline Span<Row> Contract::rows_of(Row unit) const {
  if (!members_.empty()) {
    const auto found = members_.find(unit);
    if (found != members_.end()) return found->second;
  }
  self_ = unit;
  return {&self_, 1};
}

inline Span<Row> Contract::parents(Row unit) const {
  if (!has_parents(unit)) return {};
  const Row& parent = parent_[unit];
  return parent >= 0 ? Span<Row>{&parent, 1} : Span<Row>(several_[~parent]);
}

inline Span<Row> Contract::children(Row unit) const {
  if (!has_children(unit)) return {};
  return {child_.data() + child_first_[unit], child_first_[unit + 1] - child_first_[unit]};
}

inline Span<Row> Contract::any_of(Row unit) const {
  if (any_of_.empty()) return {};
  const auto found = any_of_.find(unit);
  return found == any_of_.end() ? Span<Row>{} : Span<Row>(found->second);
}

inline bool Contract::is_ancestor(Row ancestor, Row unit) const {
  return has_parents(unit) && is_above(ancestor, unit);
}

// The reference order: the topological order that always takes the lowest ready unit.
struct Order {
  std::vector<Row> schedule;  // u: unit u starts; ~u: a unit with children ends (one without ends as it starts)
  std::vector<Row> stuck;     // units that never start
  std::vector<Row> never;     // rows that wait for a signal that no row gives
  std::vector<std::vector<Row>> cycles;  // rows that wait for each other, one per strongly connected component
};

Order reference_order(const Contract& contract);

}  // namespace tapedelay
