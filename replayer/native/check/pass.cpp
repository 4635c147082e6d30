#include "pass.h"

#include <string>

namespace tapedelay::check {

BadTape side_by_side() {
  return BadTape("more than 4,096 ops side by side on queues that are not in order",
                 "edges between them, or a part of the tape");
}

Ranks::Ranks(const Contract& contract, const Order& order) {
  // With units of several rows, or another order, ranks are noted.
  Row next = 0;
  plain_ = true;
  for (const Row event : order.schedule) {
    if (event < 0) continue;
    plain_ = plain_ && event == next;
    next++;
  }
  if (!plain_) {
    rank_.assign(std::size_t(contract.rows()), -1);
    rows_.reserve(std::size_t(contract.rows()));
  }
}

Pass::Pass(const CoreTape& tape, const std::vector<std::uint8_t>& unseen, Accepting* accepting, const Sizes& sizes)
    : tape_(tape), contract_(tape.contract), schedule_(tape.order().schedule),
      assumed_(assumptions(contract_, unseen)), chains_(contract_, sizes.tried), clocks_(contract_, chains_),
      lanes_(contract_), ranks_(contract_, tape.order()),
      floor_(contract_, tape.order(), chains_, ranks_, sizes.every), ranges_(contract_, tape.buffers),
      races_(contract_, tape.buffers, ranges_, chains_, lanes_, ranks_, floor_, accepting, sizes.block, sizes.sets),
      lifetimes_(contract_, tape.buffers, ranges_, chains_, lanes_, ranks_, accepting) {
  if (assumed_.any()) hopes_ = std::make_unique<Clocks>(contract_, chains_, &assumed_);
}

bool Pass::advance(std::int64_t ops) {
  found.clear();
  const std::int64_t until = done_ + ops;
  while (at_ < schedule_.size() && found.empty() && done_ < until) {
    const Row event = schedule_[at_++];
    if (event >= 0) start(event);
    else end(~event);
  }
  return at_ < schedule_.size() || !found.empty();
}

void Pass::start(Row unit) {
  const Span<Row> rows = contract_.rows_of(unit);
  rows_.assign(rows.begin(), rows.end());
  const Clock& clock = clocks_.start(unit);
  const Clock* hopeful = hopes_ == nullptr ? nullptr : &hopes_->start(unit);
  lanes_.start(unit);
  floor_.start();
  for (const Row row : rows_) {
    ranks_.add(row);
    chains_.place(row, clock);
  }
  if (chains_.count() > contract_.columns().queues.rows + kMaxSideBySide) {
    throw side_by_side();
  }
  const Span<Access> accesses = rows_.size() == 1 ? ranges_.of(unit) : Span<Access>();
  races_.visit(unit, rows_, accesses, clock, hopeful, found);
  if (lifetimes_.active()) lifetimes_.visit(unit, rows_, accesses, clock, hopeful, found);
  if (!contract_.has_children(unit)) {
    for (const Row row : rows_) chains_.end(row);
    floor_.end(unit, clocks_.end(unit));
    if (hopes_ != nullptr) hopes_->end(unit);
  }
  done_ += std::int64_t(rows_.size());
}

void Pass::end(Row unit) {
  for (const Row row : contract_.rows_of(unit)) chains_.end(row);
  floor_.end(unit, clocks_.end_parent(unit));
  if (hopes_ != nullptr) hopes_->end_parent(unit);
}

}  // namespace tapedelay::check
