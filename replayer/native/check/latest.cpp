#include "latest.h"

#include <algorithm>

namespace tapedelay::check {

namespace {

// First range that ends after `begin`.
template <class Ranges>
std::size_t after(const Ranges& ranges, std::int64_t begin) {
  return std::size_t(std::upper_bound(ranges.begin(), ranges.end(), begin,
                                      [](std::int64_t b, const auto& r) { return b < r.end; }) -
                     ranges.begin());
}

// First range that begins at or after `end`.
template <class Ranges>
std::size_t before(const Ranges& ranges, std::int64_t end) {
  return std::size_t(std::lower_bound(ranges.begin(), ranges.end(), end,
                                      [](const auto& r, std::int64_t e) { return r.begin < e; }) -
                     ranges.begin());
}

}  // namespace

std::size_t LatestMap::block_of(std::int64_t begin) const {
  if (heads_.size() < 2) return 0;
  const auto found = std::upper_bound(heads_.begin() + 1, heads_.end(), begin);
  return std::size_t(found - heads_.begin()) - 1;
}

// Whether the range at a hint may end later without touching another.
bool LatestMap::grows(const Hint& hint, std::int64_t end) const {
  const std::vector<Range>& ranges = blocks_[hint.block_].ranges;
  if (ranges[hint.at_].end > end) return false;
  if (hint.at_ + 1 < ranges.size()) return ranges[hint.at_ + 1].begin >= end;
  return hint.block_ + 1 == blocks_.size() || heads_[hint.block_ + 1] >= end;
}

void LatestMap::insert(std::int64_t begin, std::int64_t end, std::int32_t rank, Hint& hint) {
  top_ = rank;
  if (blocks_.empty()) {
    blocks_.push_back({{{begin, end, rank}}, rank});
    heads_.push_back(begin);
    hint = Hint();
    return;
  }
  const std::size_t at = block_of(begin);
  const std::size_t last = end > begin ? std::max(at, block_of(end - 1)) : at;
  if (last > at) merge(at, last);
  Block& block = blocks_[at];
  std::vector<Range>& ranges = block.ranges;
  const std::size_t lo = after(ranges, begin), hi = std::max(lo, before(ranges, end));
  if (lo == hi) {
    // What is settled gives up its place: a range that grows by pieces stays one.
    std::size_t place = ranges.size();
    if (lo > 0 && settled(ranges[lo - 1])) place = lo - 1;
    else if (lo < ranges.size() && settled(ranges[lo])) place = lo;
    if (place < ranges.size()) {
      ranges[place] = {begin, end, rank};
      block.top = rank;
      heads_[at] = ranges.front().begin;
      hint.block_ = std::uint32_t(at), hint.at_ = std::uint32_t(place);
      return;
    }
  }
  Range fresh[3];
  std::size_t count = 0, mine = 0;
  if (lo < hi && ranges[lo].begin < begin) fresh[count++] = {ranges[lo].begin, begin, ranges[lo].rank};
  mine = count;
  fresh[count++] = {begin, end, rank};
  if (lo < hi && ranges[hi - 1].end > end) fresh[count++] = {end, ranges[hi - 1].end, ranges[hi - 1].rank};
  const std::size_t old = hi - lo, same = std::min(old, count);
  std::copy(fresh, fresh + same, ranges.begin() + std::ptrdiff_t(lo));
  if (old > count) {
    ranges.erase(ranges.begin() + std::ptrdiff_t(lo + count), ranges.begin() + std::ptrdiff_t(hi));
  } else {
    ranges.insert(ranges.begin() + std::ptrdiff_t(lo + same), fresh + same, fresh + count);
  }
  block.top = rank;
  heads_[at] = ranges.front().begin;
  hint.block_ = std::uint32_t(at), hint.at_ = std::uint32_t(lo + mine);
  if (ranges.size() > 2 * block_) divide(at);
}

// Joins the blocks that a range touches; those between lie wholly inside of it.
void LatestMap::merge(std::size_t first, std::size_t last) {
  std::vector<Range>& ranges = blocks_[first].ranges;
  const std::vector<Range>& tail = blocks_[last].ranges;
  ranges.insert(ranges.end(), tail.begin(), tail.end());
  blocks_.erase(blocks_.begin() + std::ptrdiff_t(first) + 1, blocks_.begin() + std::ptrdiff_t(last) + 1);
  heads_.erase(heads_.begin() + std::ptrdiff_t(first) + 1, heads_.begin() + std::ptrdiff_t(last) + 1);
}

void LatestMap::divide(std::size_t at) {
  std::vector<Range>& old = blocks_[at].ranges;
  old.erase(std::remove_if(old.begin(), old.end(), [&](const Range& r) { return settled(r); }), old.end());
  heads_[at] = old.front().begin;
  if (old.size() <= block_) return;
  const std::vector<Range> all = std::move(blocks_[at].ranges);
  const auto half = all.begin() + std::ptrdiff_t(all.size() / 2);
  const auto top = [](const std::vector<Range>& ranges) {
    std::int32_t best = -1;
    for (const Range& r : ranges) best = std::max(best, r.rank);
    return best;
  };
  blocks_[at].ranges.assign(all.begin(), half);
  blocks_[at].top = top(blocks_[at].ranges);
  Block second{{half, all.end()}, -1};
  second.top = top(second.ranges);
  heads_.insert(heads_.begin() + std::ptrdiff_t(at) + 1, second.ranges.front().begin);
  blocks_.insert(blocks_.begin() + std::ptrdiff_t(at) + 1, std::move(second));
}

std::int32_t LatestMap::latest(std::int64_t begin, std::int64_t end) const {
  std::int32_t best = -1;
  for (std::size_t at = block_of(begin); at < blocks_.size() && heads_[at] < end; at++) {
    const Block& block = blocks_[at];
    if (block.top <= best) continue;
    const std::vector<Range>& ranges = block.ranges;
    if (begin <= ranges.front().begin && ranges.back().end <= end) {
      best = block.top;
      continue;
    }
    for (std::size_t i = after(ranges, begin); i < ranges.size() && ranges[i].begin < end; i++) {
      best = std::max(best, ranges[i].rank);
    }
  }
  return best;
}

std::int32_t LatestMap::latest_of(Span<Bytes> spans) const {
  std::int32_t best = -1;
  for (const Bytes& s : spans) {
    best = std::max(best, latest(s.begin, s.end));
    if (best == top_) break;
  }
  return best;
}

std::size_t LatestMap::size() const {
  std::size_t count = 0;
  for (const Block& b : blocks_) count += b.ranges.size();
  return count;
}

}  // namespace tapedelay::check
