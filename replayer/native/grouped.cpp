#include "grouped.h"

#include <algorithm>
#include <numeric>

namespace tapedelay {

Grouped::Grouped(const Column<std::int32_t>& keys, std::int64_t rows) {
  bool ascending = true;
  for (std::int64_t r = 1; r < rows && ascending; r++) ascending = keys.get(r) >= keys.get(r - 1);
  if (!ascending) {
    order_.resize(std::size_t(rows));
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::int32_t a, std::int32_t b) { return keys.get(a) < keys.get(b); });
  }
  for (std::int64_t at = 0; at < rows; at++) {
    const std::int32_t key = keys.get(row(std::uint32_t(at)));
    if (keys_.empty() || keys_.back() != key) {
      dense_ = dense_ && (keys_.empty() || keys_.back() + 1 == key);
      keys_.push_back(key);
      if (at != 0) first_.push_back(std::uint32_t(at));
    }
  }
  if (!keys_.empty()) {
    low_ = keys_.front();
    first_.push_back(std::uint32_t(rows));
  }
  if (dense_) std::vector<std::int32_t>().swap(keys_);
}

std::int32_t Grouped::search(std::int32_t key) const {
  const auto found = std::lower_bound(keys_.begin(), keys_.end(), key);
  return found != keys_.end() && *found == key ? std::int32_t(found - keys_.begin()) : -1;
}

}  // namespace tapedelay
