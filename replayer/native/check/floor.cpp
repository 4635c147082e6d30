#include "floor.h"

#include <algorithm>

namespace tapedelay::check {

Floor::Floor(const Contract& contract, const Order& order, const Chains& chains, const Ranks& ranks, std::size_t every)
    : contract_(contract), chains_(chains), ranks_(ranks), every_(every) {
  const std::size_t queues = std::size_t(contract.columns().queues.rows);
  // Each queue's clock is compared with each other's.
  off_ = queues > 256;
  for (std::int32_t q = 0; q < std::int32_t(queues); q++) off_ = off_ || !contract.in_order(q);
  if (off_) return;
  last_.assign(queues, -1);
  asked_.assign(queues, 0);
  kept_.assign(queues, Clock(queues, 0));
  std::int64_t starts = 0;
  for (const Row event : order.schedule) {
    if (event < 0) continue;
    for (const Row row : contract.rows_of(event)) last_[contract.columns().ops.queue.get(row)] = starts;
    starts++;
  }
}

void Floor::keep(Row unit, const Clock& clock) {
  for (const Row row : contract_.rows_of(unit)) {
    const std::int32_t queue = contract_.columns().ops.queue.get(row);
    if (!asked_[queue]) continue;
    asked_[queue] = 0;
    wanted_--;
    kept_[queue] = clock;
  }
}

void Floor::renew() {
  since_ = 0;
  if (off_) return;
  const std::size_t queues = kept_.size();
  Clock floor(queues, kNotEnded);
  wanted_ = 0;
  for (std::size_t q = 0; q < queues; q++) {
    asked_[q] = last_[q] + 1 >= started_;  // the unit that starts now counts
    if (!asked_[q]) continue;
    wanted_++;
    for (std::size_t c = 0; c < queues; c++) floor[c] = std::min(floor[c], kept_[q][c]);
  }
  floor_ = floor;
}

}  // namespace tapedelay::check
