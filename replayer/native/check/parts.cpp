#include "parts.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace tapedelay::check {

void Part::ready() {
  const std::size_t count = ranges_.size();
  std::stable_sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (const Range& r : ranges_) {
    begins_.push_back(r.begin);
    tops_.push_back(tops_.empty() ? r.end : std::max(tops_.back(), r.end));
  }
  std::stable_sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.end < b.end; });
  lows_ = ranges_;
  for (const Range& r : ranges_) ends_.push_back(r.end);
  for (std::size_t i = count; i-- > 1;) {
    const Range &next = lows_[i], &mine = lows_[i - 1];
    if (next.begin < mine.begin || (next.begin == mine.begin && next.row < mine.row)) lows_[i - 1] = next;
  }
  std::vector<Range>().swap(ranges_);
}

bool Part::within(Bytes bytes, Common& common) const {
  const std::ptrdiff_t at = std::lower_bound(begins_.begin(), begins_.end(), bytes.end) - begins_.begin() - 1;
  if (at < 0 || tops_[at] <= bytes.begin) return false;
  const std::ptrdiff_t before = std::upper_bound(ends_.begin(), ends_.end(), bytes.begin) - ends_.begin();
  const Range& low = lows_[before];
  common = {std::max(bytes.begin, low.begin), std::min(bytes.end, tops_[at]), low.row, at > before};
  return true;
}

bool Part::overlap(const Access& access, Common& common) const {
  if (access.spans.empty()) return within({access.begin, access.end}, common);
  std::size_t i = 0;
  while (i < access.spans.size() && !within(access.spans[i], common)) i++;
  if (i == access.spans.size()) return false;
  Common last{};
  for (std::size_t j = access.spans.size(); j-- > 0;) {
    if (within(access.spans[j], last)) break;
  }
  common.end = last.end, common.hull = true;
  return true;
}

const std::vector<Part>& Parts::of(Row row, std::int32_t root, Mode mode) {
  if (ranges_ == nullptr) ranges_ = std::make_unique<Ranges>(contract_, buffers_);
  const bool fixed = accepting_ == nullptr && ranges_->fixed(row);
  const std::int64_t none = std::int64_t(1) << 32;  // beyond any set
  const std::int64_t key = fixed ? contract_.columns().ops.access_set.get(row) : none + row;
  const auto name = [](std::int32_t r, Mode m) { return (std::int64_t(r) << 8) | std::int64_t(m); };
  auto found = known_.find(key);
  if (found == known_.end()) {
    if (known_.size() >= sets_) known_.clear();
    found = known_.emplace(key, Known()).first;
    // Parts of a memory and mode, apart by certainty and sort.
    std::map<std::tuple<std::int64_t, bool, std::int32_t>, std::size_t> places;
    for (const Access& a : ranges_->of(row)) {
      const std::int32_t sort = accepting_ == nullptr ? -1 : accepting_->sort(row, a.row);
      std::vector<Part>& parts = found->second[name(a.root, a.mode)];
      const auto [place, fresh] = places.emplace(std::make_tuple(name(a.root, a.mode), a.observed, sort), parts.size());
      if (fresh) parts.emplace_back(a.observed, sort);
      const std::size_t i = place->second;
      if (a.spans.empty()) parts[i].add({a.begin, a.end, a.row});
      for (const Bytes b : a.spans) parts[i].add({b.begin, b.end, a.row});
    }
    for (auto& parts : found->second) {
      for (Part& p : parts.second) p.ready();
    }
  }
  const auto parts = found->second.find(name(root, mode));
  return parts == found->second.end() ? none_ : parts->second;
}

}  // namespace tapedelay::check
