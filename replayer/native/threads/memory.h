// Real memory of 8-byte words that ops read and write at once, on purpose: every access is a relaxed atomic one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "marks.h"
#include "spec.h"

namespace tapedelay::threads {

// Adjacent bytes with one value.
struct Run {
  std::int64_t begin, end;
  Word value;
  bool part;  // bytes of one word; the others of `value` are 0
};

// What stands in bytes of a word that is cut: there are no marks, and no value has bytes that are always 0.
inline std::uint8_t part_of(Word value, std::int64_t at) { return std::uint8_t(mixed(value) >> (8 * (at & 7))); }

class Memory {
 public:
  explicit Memory(const Spec& spec);

  void fill(Range range, Word value);
  Word get(std::int64_t w) const { return __atomic_load_n(&words_[w], __ATOMIC_RELAXED); }
  void set(std::int64_t w, Word v) { __atomic_store_n(&words_[w], v, __ATOMIC_RELAXED); }
  // Replaces a word by change(word); what another thread does to it meanwhile is not lost.
  template <class F>
  void change(std::int64_t w, F&& change) {
    Word old = get(w);
    while (!__atomic_compare_exchange_n(&words_[w], &old, change(old), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
  }
  std::uint8_t byte(std::int64_t b) const { return __atomic_load_n(bytes() + b, __ATOMIC_RELAXED); }
  void set_byte(std::int64_t b, std::uint8_t v) { __atomic_store_n(bytes() + b, v, __ATOMIC_RELAXED); }
  void xor_byte(std::int64_t b, std::uint8_t v) { __atomic_fetch_xor(bytes() + b, v, __ATOMIC_RELAXED); }

  // Calls whole(w) for every word of a range that no range of any op cuts, part(begin, end) for bytes of others.
  template <class Whole, class Part>
  void each(Range range, Whole&& whole, Part&& part) const {
    std::int64_t w = range.begin >> 3;
    const std::int64_t last = (range.end - 1) >> 3;
    auto cut = std::lower_bound(cut_.begin(), cut_.end(), w);
    while (w <= last) {
      const std::int64_t until = cut != cut_.end() && *cut <= last ? *cut : last + 1;
      for (; w < until; ++w) whole(w);
      if (w > last) break;
      part(std::max(range.begin, w * 8), std::min(range.end, w * 8 + 8));
      ++w, ++cut;
    }
  }

  // A digest of what stands in a range, that does not depend on how it is split.
  Word digest(Range range) const;
  // What stands there, behind what `runs` holds; of very many runs only the first.
  void look(Range range, std::vector<Run>& runs) const;
  // memcpy. For ThreadSanitizer that is an access like any other: there it goes word by word.
  void copy(std::int64_t to, std::int64_t from, std::int64_t size);
  bool same(std::int64_t a, std::int64_t b, std::int64_t size) const;

 private:
  const std::uint8_t* bytes() const { return reinterpret_cast<const std::uint8_t*>(words_.get()); }
  std::uint8_t* bytes() { return reinterpret_cast<std::uint8_t*>(words_.get()); }

  std::unique_ptr<Word[]> words_;
  std::vector<std::int64_t> cut_;  // words with a border of a range inside
};

}  // namespace tapedelay::threads
