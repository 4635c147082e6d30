// The fixed 64-bit functions behind values: stamps of writes, weights of bytes, folding of digests.
#pragma once

#include <cstdint>

#include "../splitmix.h"

namespace tapedelay {

// The digest of a range is the sum of value * (weight(end) - weight(begin)): it does not depend on how it is split.
inline std::uint64_t weight(std::int64_t offset) {
  return mixed(static_cast<std::uint64_t>(offset) * 0x9e3779b97f4a7c15ULL + 0x632be59bd9b4e019ULL);
}
inline std::uint64_t initial(std::int32_t root) {
  return mixed(static_cast<std::uint64_t>(root) + 0xd1b54a32d192ed03ULL);
}
inline std::uint64_t fold(std::uint64_t digest, std::uint64_t more) {
  return mixed(digest * 0x9e3779b97f4a7c15ULL ^ more);
}
inline std::uint64_t stamp(std::int64_t op, std::uint32_t seq, std::uint64_t digest) {
  return mixed(fold(digest, static_cast<std::uint64_t>(op)) + seq);
}
constexpr std::uint64_t kNothingRead = 0x2545f4914f6cdd1dULL;
constexpr std::uint64_t kTorn = 0x8cb92ba72f3d8dd7ULL;
inline std::uint64_t torn_stamp(std::int64_t one, std::int64_t other) {  // the same for both
  return kTorn ^ (mixed(static_cast<std::uint64_t>(one) + kTorn) + mixed(static_cast<std::uint64_t>(other) + kTorn));
}

}  // namespace tapedelay
