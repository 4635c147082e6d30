// Ranges of one op in one memory, mode and certainty; says what overlaps an access without a walk.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "../ranges.h"
#include "common.h"

namespace tapedelay::check {

struct Common {
  std::int64_t begin, end;  // hull of the common bytes
  std::int32_t row;         // of `accesses`: the one that has the first of them
  bool hull;                // there may be gaps
};

class Part {
 public:
  struct Range {
    std::int64_t begin, end;
    std::int32_t row;
  };

  Part(bool seen, std::int32_t of_sort) : observed(seen), sort(of_sort) {}
  void add(const Range& range) { ranges_.push_back(range); }
  void ready();
  // False where nothing overlaps.
  bool overlap(const Access& access, Common& common) const;

  const bool observed;
  const std::int32_t sort;

 private:
  bool within(Bytes bytes, Common& common) const;

  std::vector<Range> ranges_;
  std::vector<std::int64_t> begins_, ends_;
  std::vector<std::int64_t> tops_;  // of the ranges that begin no later: the greatest end
  std::vector<Range> lows_;         // of those that end no earlier: the least begin
};

// The parts of the ops that stand in pairs, kept for the access sets that come often.
class Parts {
 public:
  static constexpr std::size_t kSets = 1024;

  Parts(const Contract& contract, const Buffers& buffers, Accepting* accepting, std::size_t sets = kSets)
      : contract_(contract), buffers_(buffers), accepting_(accepting), sets_(sets) {}

  // What a row touches in one memory and mode; valid until the next call.
  const std::vector<Part>& of(Row row, std::int32_t root, Mode mode);

 private:
  using Known = std::unordered_map<std::int64_t, std::vector<Part>>;

  const Contract& contract_;
  const Buffers& buffers_;
  std::unique_ptr<Ranges> ranges_;  // of its own: what the caller has at hand stays valid
  Accepting* accepting_;
  std::size_t sets_;
  std::unordered_map<std::int64_t, Known> known_;
  const std::vector<Part> none_;
};

}  // namespace tapedelay::check
