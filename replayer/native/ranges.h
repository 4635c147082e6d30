// What an op touches: access sets on physical bytes. Growing and listed sets are never expanded per token.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "contract.h"
#include "grouped.h"
#include "span.h"
#include "tape.h"

namespace tapedelay {

struct Bytes {
  std::int64_t begin, end;
};

// One access of one op, on the bytes of a root buffer.
struct Access {
  std::int32_t root;
  Mode mode;
  bool observed;          // neither inferred nor declared nor over-approximated
  std::int64_t begin, end;  // hull
  std::int32_t buffer;    // the buffer row that the access names
  std::int32_t row;       // row of `accesses`
  Span<Bytes> spans;      // disjoint, ascending; empty where the hull is all
};

class Buffers {
 public:
  explicit Buffers(const BufferColumns& columns);
  std::int32_t rows() const { return std::int32_t(root_.size()); }
  std::int32_t root(std::int32_t buffer) const { return root_[buffer]; }        // lowest root of that memory
  std::int64_t offset(std::int32_t buffer) const { return offset_[buffer]; }    // in its root
  std::int32_t parent(std::int32_t buffer) const { return columns_.parent.get(buffer); }
  std::int64_t bytes(std::int32_t buffer) const { return columns_.bytes.get(buffer); }  // -1: unknown
  bool is_whole(std::int32_t buffer) const;  // a root, or a generation of one: covers all of its parent

 private:
  BufferColumns columns_;
  std::vector<std::int32_t> root_;
  std::vector<std::int64_t> offset_;
};

class Ranges {
 public:
  Ranges(const Contract& contract, const Buffers& buffers);

  // What an op touches and other ops can name. Valid until the next call for an op whose set is not fixed.
  Span<Access> of(Row row);
  // Whether what the op touches depends on nothing but its access set.
  bool fixed(Row row) const;

 private:
  // An access that depends on the op's arg or list, at arg 0.
  struct Growing {
    std::uint32_t at;  // in `accesses_`
    std::int64_t begin, bytes, offset_per_arg, bytes_per_arg, unit_bytes;
    bool pooled;
  };

  [[noreturn]] void fail(Row row, const std::string& found, const std::string& expected) const;
  void read();
  Span<Access> grown(Row row, std::int32_t group);
  bool grow(Row row, const Growing& part);
  bool repeat(Row row, const Growing& part);

  const Contract& contract_;
  const Buffers& buffers_;
  Grouped sets_, lists_;
  std::vector<std::uint32_t> first_, first_growing_;  // per set
  std::vector<Access> accesses_;  // those that grow as the last op of their set had them
  std::vector<Growing> growing_;
  std::vector<std::int64_t> units_;  // of all lists, ascending within each
  // Of the set at hand: the ranges of what repeats, where they stand, and the set without what is empty.
  std::vector<Bytes> spans_;
  struct Place {
    std::uint32_t at;
    std::size_t first, count;
  };
  std::vector<Place> places_;
  std::vector<Access> found_;
};

inline bool Ranges::fixed(Row row) const {
  const std::int32_t set = contract_.columns().ops.access_set.get(row);
  if (set == 0) return true;
  const std::int32_t group = sets_.find(set);
  return group >= 0 && first_growing_[group] == first_growing_[group + 1];
}

inline Span<Access> Ranges::of(Row row) {
  const std::int32_t set = contract_.columns().ops.access_set.get(row);
  if (set == kNull) return {};
  const std::int32_t group = sets_.find(set);
  if (group < 0) {
    if (set == 0) return {};
    fail(row, ": access set " + std::to_string(set), "a set of `accesses`, or 0");
  }
  if (first_growing_[group] != first_growing_[group + 1]) return grown(row, group);
  return {accesses_.data() + first_[group], first_[group + 1] - first_[group]};
}

}  // namespace tapedelay
