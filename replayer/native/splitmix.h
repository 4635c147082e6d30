// Bits of a number spread over all 64: what values, weights and digests of every backend are made of.
#pragma once

#include <cstdint>

namespace tapedelay {

inline std::uint64_t mixed(std::uint64_t x) {  // the finalizer of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace tapedelay
