// Rows by key, where the rows of one key mostly stand together: access sets, unit lists.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "span.h"
#include "tape.h"

namespace tapedelay {

class Grouped {
 public:
  Grouped() = default;
  Grouped(const Column<std::int32_t>& keys, std::int64_t rows);

  std::int32_t groups() const { return std::int32_t(first_.size()) - 1; }
  // Number of a key's group, or -1.
  std::int32_t find(std::int32_t key) const {
    if (!dense_) return search(key);
    return key >= low_ && key < low_ + groups() ? key - low_ : -1;
  }
  std::uint32_t first(std::int32_t group) const { return first_[group]; }
  // Row at a place of `first`; rows of a group ascend.
  std::int32_t row(std::uint32_t place) const { return order_.empty() ? std::int32_t(place) : order_[place]; }
  std::int32_t key(std::int32_t group) const { return dense_ ? low_ + group : keys_[group]; }

 private:
  std::int32_t search(std::int32_t key) const;
  bool dense_ = true;  // the keys are low_, low_ + 1, ...
  std::int32_t low_ = 0;
  std::vector<std::uint32_t> first_{0};
  std::vector<std::int32_t> order_, keys_;
};

}  // namespace tapedelay
