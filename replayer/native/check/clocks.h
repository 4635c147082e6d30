// Vector clocks: which earlier ops come before an op, one pass over the reference order.
//
// Ops are laid on *chains* whose members are totally ordered: one chain per in-order queue, and for a queue that
// is not in order as many as its ops need. A clock holds, per chain, how many of its ops have ended before. Op A
// comes before op B exactly where B's clock holds A's position on A's chain. A wait for any of several events
// knows only what all of its records share: the minimum per chain.
//
// A second, optimistic pass also assumes that what was not seen did order things: an unresolved wait waited for
// all ops before it, and so did every op of a device queue whose waits were not all seen; host threads whose
// waits were not all seen met at every op that they ran or issued.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <unordered_map>
#include <vector>

#include "../contract.h"

namespace tapedelay::check {

// How many ops of each chain have ended. The chains beyond the vector: none.
using Clock = std::vector<std::int32_t>;

constexpr std::int32_t kNotEnded = std::numeric_limits<std::int32_t>::max();

// Chain and position of every row; positions count from 1.
class Chains {
 public:
  static constexpr std::size_t kTried = 64;

  // `tried`: chains of a queue that is not in order that are tried for an op; with more there are just more.
  explicit Chains(const Contract& contract, std::size_t tried = kTried);

  std::int32_t count() const { return std::int32_t(last_.size()); }
  std::int32_t chain(Row row) const { return chain_.empty() ? queue_[row] : chain_[row]; }
  std::int32_t position(Row row) const { return position_[row]; }
  // Position that the next op of a chain to end will have.
  std::int32_t next(std::int32_t chain) const { return last_[chain] + 1; }
  bool before(Row row, const Clock& clock) const { return clock[chain(row)] >= position_[row]; }

  // Chooses the chain of a row of a queue that is not in order: one whose last op comes before it.
  void place(Row row, const Clock& clock) {
    if (!chain_.empty() && !contract_.in_order(queue_[row])) find(row, clock);
  }
  // The row has ended.
  void end(Row row) { position_[row] = ++last_[chain(row)]; }

 private:
  // The chains of a queue, the longest unused ones first, as a ring through `links_`.
  struct Link {
    std::int32_t before, after, queue;
    Row tail;
  };

  void find(Row row, const Clock& clock);
  std::int32_t continued(Row row) const;
  void unlink(std::int32_t chain);

  const Contract& contract_;
  const std::int32_t* queue_;
  std::size_t tried_;
  std::vector<std::int32_t> chain_;  // empty where all queues are in order
  std::vector<std::int32_t> position_, last_;
  std::vector<Link> links_;  // of the queues, as heads of their rings, then of all chains beyond the queues
};

// What the optimistic pass assumes.
struct Assumed {
  std::vector<std::uint8_t> waits;  // per row: assumed to have waited for every op before it; empty: none
  // Per host thread whose waits were not all seen: the host threads whose ops are assumed to come before its.
  std::map<std::int32_t, std::vector<std::int32_t>> meets;
  bool any() const { return !waits.empty() || !meets.empty(); }
};

// What to assume, given the queues whose waits were not all seen.
Assumed assumptions(const Contract& contract, const std::vector<std::uint8_t>& unseen);

// One pass: `start` and `end` are called along the schedule.
class Clocks {
 public:
  // `chains` is shared between the passes; the caller ends its rows, once. `assumed` null: nothing.
  Clocks(const Contract& contract, const Chains& chains, const Assumed* assumed = nullptr);

  // The clock of what comes before a unit; valid until `end`.
  const Clock& start(Row unit);
  // A unit without children has ended, which `start` was called for last; its rows have their positions.
  // Returns the clock of what comes before or with it, valid until the next `start`.
  const Clock& end(Row unit) { return keep(unit, current_); }
  // A unit with children has ended.
  const Clock& end_parent(Row unit);

 private:
  struct Slot {
    Clock clock;
    std::uint32_t uses = 0;     // units that still need it
    std::uint32_t recent = 0;   // places in `recent_`
  };
  struct Recent {
    Row row;
    std::int32_t position;
    std::int32_t slot;
  };

  std::int32_t taken();
  std::int32_t copied(const Clock& clock);
  void freed(std::int32_t slot) { free_.push_back(slot); }
  void used(Row unit);
  const Clock& keep(Row unit, std::int32_t slot);
  void shared(Span<Row> records, Clock& clock);
  void remember(Row unit, std::int32_t slot);
  void assume(Row unit, Clock& clock);
  void meet(Clock& clock, Row row, std::int32_t chain);

  const Contract& c_;
  const Chains& chains_;
  const Assumed* assumed_;
  // Per unit: how many units still need its clock, and after it has ended the slot of its clock.
  std::vector<std::uint32_t> state_;
  std::vector<std::uint8_t> ended_;  // for waits for any of several events only
  std::deque<Slot> slots_;
  std::vector<std::int32_t> free_;
  std::unordered_map<Row, std::int32_t> opened_, inside_;
  std::int32_t current_ = -1;

  // The optimistic pass: the latest ended rows per chain.
  std::vector<std::deque<Recent>> recent_;
  std::vector<std::int32_t> recent_chains_;
  std::vector<std::uint8_t> watch_, done_;
  bool watch_all_ = false;
  Row low_ = 0;
  Clock everything_;  // what ended in rows before the row that last waited for everything, and that row
  Row everything_to_ = kNull;
};

}  // namespace tapedelay::check
