// What comes before every op that is still to start: nothing that asks about it can find it unordered.
#pragma once

#include <cstdint>
#include <vector>

#include "../contract.h"
#include "clocks.h"
#include "common.h"

namespace tapedelay::check {

// The ops of an in-order queue start one after the other, so that what its last one knew, all later ones know. From
// time to time a clock of each queue that goes on is kept; what all of them know is settled.
class Floor {
 public:
  static constexpr std::size_t kEvery = 4096;

  Floor(const Contract& contract, const Order& order, const Chains& chains, const Ranks& ranks,
        std::size_t every = kEvery);

  bool settled(std::int32_t rank) const {
    const Row row = ranks_.row(rank);
    const std::size_t chain = std::size_t(chains_.chain(row));
    return chain < floor_.size() && chains_.position(row) <= floor_[chain];
  }

  void start() {
    started_++;
    if (++since_ >= every_) renew();
  }
  // A unit has ended, with this clock.
  void end(Row unit, const Clock& clock) {
    if (wanted_ != 0) keep(unit, clock);
  }

 private:
  void keep(Row unit, const Clock& clock);
  void renew();

  const Contract& contract_;
  const Chains& chains_;
  const Ranks& ranks_;
  std::size_t every_, since_ = 0, wanted_ = 0;
  std::int64_t started_ = 0;
  bool off_;  // queues that are not in order: nothing is known of their next ops
  std::vector<std::int64_t> last_;  // per queue: when its last unit starts, in units
  std::vector<std::uint8_t> asked_;
  std::vector<Clock> kept_;
  Clock floor_;
};

}  // namespace tapedelay::check
