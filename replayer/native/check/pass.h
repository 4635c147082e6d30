// One pass over a tape in reference order: clocks, races, lifetimes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "../core_tape.h"
#include "clocks.h"
#include "common.h"
#include "lifetime.h"
#include "races.h"

namespace tapedelay::check {

constexpr std::int32_t kMaxSideBySide = 4096;  // formats/limits.py

// More ops side by side than that.
BadTape side_by_side();

// Sizes that results do not depend on; tests make them small.
struct Sizes {
  std::size_t block = LatestMap::kBlock, sets = Parts::kSets, tried = Chains::kTried, every = Floor::kEvery;
};

class Pass {
 public:
  // `unseen`: per queue, whether its waits were not all seen. `accepting` null: there is no baseline.
  Pass(const CoreTape& tape, const std::vector<std::uint8_t>& unseen, Accepting* accepting, const Sizes& sizes);

  // Goes on until a unit shows something or about `ops` ops are done; false at the end. What the last unit showed
  // stands in `found`.
  bool advance(std::int64_t ops);

  std::vector<Pair> found;
  std::int64_t done() const { return done_; }  // ops
  std::int64_t accesses() const { return races_.seen(); }

 private:
  void start(Row unit);
  void end(Row unit);

  const CoreTape& tape_;
  const Contract& contract_;
  const std::vector<Row>& schedule_;
  std::size_t at_ = 0;
  std::int64_t done_ = 0;
  Assumed assumed_;
  Chains chains_;
  Clocks clocks_;
  std::unique_ptr<Clocks> hopes_;
  Lanes lanes_;
  Ranks ranks_;
  Floor floor_;
  Ranges ranges_;
  Races races_;
  Lifetimes lifetimes_;
  std::vector<Row> rows_;
};

}  // namespace tapedelay::check
