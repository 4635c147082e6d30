// A map from bytes to the latest op that touched them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../ranges.h"
#include "../span.h"

namespace tapedelay::check {

// Disjoint ranges with a rank each; ranks only grow, so that a new range always covers what it overlaps. The
// ranges stand in blocks, each with its highest rank: a question over many ranges looks at blocks.
class LatestMap {
 public:
  static constexpr std::size_t kBlock = 256;
  // Where a range was put last time: the same one is often put again.
  struct Hint {
    std::uint32_t block = 0, at = 0;
  };

  explicit LatestMap(std::size_t block = kBlock) : block_(block) {}

  // Gives bytes to `rank`, which is at least as high as all before.
  void cover(std::int64_t begin, std::int64_t end, std::int32_t rank, Hint& hint);
  void cover(std::int64_t begin, std::int64_t end, std::int32_t rank) {
    Hint none;
    cover(begin, end, rank, none);
  }
  // The highest rank in the range, or in any of several; -1 where there is none.
  std::int32_t latest(std::int64_t begin, std::int64_t end) const;
  std::int32_t latest_of(Span<Bytes> spans) const;
  std::int32_t top() const { return top_; }
  std::size_t size() const;
  std::size_t blocks() const { return blocks_.size(); }

 private:
  struct Range {
    std::int64_t begin, end;
    std::int32_t rank;
  };
  struct Block {
    std::vector<Range> ranges;
    std::int32_t top;
  };

  bool again(std::int64_t begin, std::int64_t end, std::int32_t rank, const Hint& hint);
  std::size_t block_of(std::int64_t begin) const;
  void merge(std::size_t first, std::size_t last);
  void divide(std::size_t at);

  std::size_t block_;
  std::vector<Block> blocks_;
  std::vector<std::int64_t> heads_;  // where each block begins
  std::int32_t top_ = -1;
};

}  // namespace tapedelay::check
