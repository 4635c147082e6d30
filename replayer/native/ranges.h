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
  struct Part {
    Access access;  // at arg 0; `end` may come before `begin`
    std::int64_t offset_per_arg, bytes_per_arg, unit_bytes;
    bool fixed, pooled;
  };

  [[noreturn]] void fail(Row row, const std::string& found, const std::string& expected) const;
  void read();
  void add(Row row, const Part& part);
  void add_units(Row row, const Access& first, std::int64_t unit_bytes);

  const Contract& contract_;
  const Buffers& buffers_;
  Grouped sets_, lists_;
  // Per set: its accesses where they are fixed, else its parts.
  std::vector<std::uint32_t> first_, first_part_;
  std::vector<Access> accesses_;
  std::vector<Part> parts_;
  std::vector<std::int64_t> units_;  // of all lists, ascending within each
  // The set of an op, spelled out.
  std::vector<Access> found_;
  std::vector<Bytes> spans_;
  std::vector<std::pair<std::size_t, std::size_t>> places_;
};

}  // namespace tapedelay
