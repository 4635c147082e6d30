#include "memory.h"

#include <cstring>

#if defined(__SANITIZE_THREAD__)
#define TAPEDELAY_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TAPEDELAY_TSAN 1
#endif
#endif

namespace tapedelay::threads {
namespace {

constexpr std::size_t kMaxRuns = 4096;

Word byte_mask(std::int64_t begin, std::int64_t end) {  // of bytes of one word
  const std::int64_t from = begin & 7, size = end - begin;
  const Word low = size >= 8 ? ~Word(0) : (Word(1) << (8 * size)) - 1;
  return low << (8 * from);
}

// Odd, another one for each word.
Word weight(std::int64_t w) { return (Word(w) * 0x9e3779b97f4a7c15ull) | 1; }

}  // namespace

Memory::Memory(const Spec& spec) : words_(new Word[std::size_t(spec.bytes / 8) + 1]()) {
  for (const Range& r : spec.ranges) {
    if (r.begin & 7) cut_.push_back(r.begin >> 3);
    if (r.end & 7) cut_.push_back(r.end >> 3);
  }
  std::sort(cut_.begin(), cut_.end());
  cut_.erase(std::unique(cut_.begin(), cut_.end()), cut_.end());
}

void Memory::fill(Range range, Word value) {
  each(
      range, [&](std::int64_t w) { set(w, value); }, [&](std::int64_t begin, std::int64_t) { set(begin >> 3, mixed(value)); });
}

Word Memory::digest(Range range) const {
  Word sum = 0;
  each(
      range, [&](std::int64_t w) { sum += get(w) * weight(w); },
      [&](std::int64_t begin, std::int64_t end) {
        sum += (get(begin >> 3) & byte_mask(begin, end)) * weight(begin >> 3);
      });
  return sum;
}

void Memory::look(Range range, std::vector<Run>& runs) const {
  const std::size_t first = runs.size();
  const auto append = [&](const Run& run) {
    if (runs.size() > first && !run.part && !runs.back().part && runs.back().value == run.value)
      runs.back().end = run.end;
    else if (runs.size() < first + kMaxRuns)
      runs.push_back(run);
  };
  each(
      range, [&](std::int64_t w) { append({w * 8, w * 8 + 8, get(w), false}); },
      [&](std::int64_t begin, std::int64_t end) {
        append({begin, end, get(begin >> 3) & byte_mask(begin, end), true});
      });
}

void Memory::copy(std::int64_t to, std::int64_t from, std::int64_t size) {
#ifdef TAPEDELAY_TSAN
  if (((to | from | size) & 7) == 0) {
    for (std::int64_t i = 0; i < size; i += 8) set((to + i) >> 3, get((from + i) >> 3));
  } else {
    for (std::int64_t i = 0; i < size; ++i) set_byte(to + i, byte(from + i));
  }
#else
  std::memmove(bytes() + to, bytes() + from, std::size_t(size));
#endif
}

bool Memory::same(std::int64_t a, std::int64_t b, std::int64_t size) const {
  std::int64_t i = 0;
  if (((a | b) & 7) == 0)
    for (; i + 8 <= size; i += 8)
      if (get((a + i) >> 3) != get((b + i) >> 3)) return false;
  for (; i < size; ++i)
    if (byte(a + i) != byte(b + i)) return false;
  return true;
}

}  // namespace tapedelay::threads
