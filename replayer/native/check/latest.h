// A map from bytes to the latest op that touched them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../ranges.h"
#include "../span.h"
#include "floor.h"

namespace tapedelay::check {

// Disjoint ranges with a rank each; ranks only grow, so that a new range always covers what it overlaps. The
// ranges stand in blocks, each with at least its highest rank: a question over many ranges looks at blocks.
class LatestMap {
 public:
  static constexpr std::size_t kBlock = 256;
  // Where a range was put last time: the same one is often put again.
  class Hint {
    friend class LatestMap;
    std::uint32_t block_ = 0, at_ = 0;
  };

  // Ranges whose rank is settled may go; `floor` null: none is.
  explicit LatestMap(std::size_t block = kBlock, const Floor* floor = nullptr) : block_(block), floor_(floor) {}

  // Gives bytes to `rank`, which is at least as high as all before.
  void cover(std::int64_t begin, std::int64_t end, std::int32_t rank, Hint& hint) {
    if (!again(begin, end, rank, hint)) insert(begin, end, rank, hint);
  }
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

  // Puts a range where the hint says if that has the same begin and the rest touches no other.
  bool again(std::int64_t begin, std::int64_t end, std::int32_t rank, const Hint& hint) {
    if (hint.block_ >= blocks_.size()) return false;
    Block& block = blocks_[hint.block_];
    if (hint.at_ >= block.ranges.size()) return false;
    Range& range = block.ranges[hint.at_];
    if (range.begin != begin || (range.end != end && !grows(hint, end))) return false;
    range.end = end;
    range.rank = block.top = top_ = rank;
    return true;
  }
  bool grows(const Hint& hint, std::int64_t end) const;
  void insert(std::int64_t begin, std::int64_t end, std::int32_t rank, Hint& hint);
  std::size_t block_of(std::int64_t begin) const;
  void merge(std::size_t first, std::size_t last);
  void divide(std::size_t at);
  bool settled(const Range& range) const { return floor_ != nullptr && floor_->settled(range.rank); }

  std::size_t block_;
  const Floor* floor_;
  std::vector<Block> blocks_;
  std::vector<std::int64_t> heads_;  // where each block begins
  std::int32_t top_ = -1;
};

}  // namespace tapedelay::check
