// Memory of large vectors on large pages: the first touch of many small ones costs more than what is done with them.
#pragma once

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tapedelay {

// Reserves room for `count` values.
template <class T>
void reserve_pages(std::vector<T>& values, std::size_t count) {
  values.reserve(count);
#if defined(__linux__)
  constexpr std::uintptr_t page = std::uintptr_t(2) << 20;
  const std::uintptr_t begin = (reinterpret_cast<std::uintptr_t>(values.data()) + page - 1) / page * page;
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(values.data() + values.capacity()) / page * page;
  // A refusal changes nothing but the speed.
  if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace tapedelay
