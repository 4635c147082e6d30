#include "events.h"

#include <algorithm>
#include <array>

namespace tapedelay {
namespace {

constexpr int kDigit = 11;
constexpr std::size_t kBuckets = std::size_t{1} << kDigit;
constexpr std::size_t kFew = 64;  // below this an insertion into place is faster

}  // namespace

// Key: time, and at one time first the ends of what had started earlier. Equal keys keep the order of `codes`.
// A unit with children always ends at its own place, after its last child.
const std::vector<std::int32_t>& Events::sorted(const std::vector<std::int32_t>& codes,
                                                const std::vector<std::uint8_t>& parts, const Timing& timing) {
  items_.resize(codes.size());
  std::uint64_t all = 0, common = ~std::uint64_t{0};
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::int32_t code = codes[i];
    std::uint64_t key;
    if (code >= 0) {
      key = std::uint64_t(timing.at(code, kStart)) << 1 | 1;
    } else {
      const std::int64_t done = timing.at(~code, kDone);
      key = std::uint64_t(done) << 1 | (parts[~code] || done == timing.at(~code, kStart));
    }
    items_[i] = {key, code};
    all |= key;
    common &= key;
  }
  const auto less = [](const Item& a, const Item& b) { return a.key < b.key; };
  if (items_.size() <= kFew) {
    std::stable_sort(items_.begin(), items_.end(), less);
  } else {
    spare_.resize(items_.size());
    const std::uint64_t differs = all & ~common;
    for (int shift = 0; shift < 64 && (differs >> shift) != 0; shift += kDigit) {
      if (((differs >> shift) & (kBuckets - 1)) == 0) continue;
      std::array<std::uint32_t, kBuckets> at{};
      for (const Item& item : items_) ++at[(item.key >> shift) & (kBuckets - 1)];
      std::uint32_t sum = 0;
      for (std::uint32_t& n : at) {
        const std::uint32_t count = n;
        n = sum;
        sum += count;
      }
      for (const Item& item : items_) spare_[at[(item.key >> shift) & (kBuckets - 1)]++] = item;
      items_.swap(spare_);
    }
  }
  codes_.resize(items_.size());
  for (std::size_t i = 0; i < items_.size(); ++i) codes_[i] = items_[i].code;
  return codes_;
}

}  // namespace tapedelay
