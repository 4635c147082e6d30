// What an op touches: access sets on physical bytes. Growing and listed sets are never expanded per token.
#pragma once

#include <cstdint>
#include <vector>

#include "contract.h"
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
    Access access;
    std::int64_t offset_per_arg, bytes_per_arg, unit_bytes;  // unit_bytes -1: none
    bool fixed;
  };
  const Contract& contract_;
  const Buffers& buffers_;
  std::vector<std::uint32_t> first_;  // per set id: where its parts begin
  std::vector<Part> parts_;
  std::vector<Access> accesses_;      // of the fixed sets, at the same places
  std::vector<std::uint8_t> fixed_;
  std::vector<Access> found_;
  std::vector<Bytes> spans_;
  std::vector<std::uint32_t> list_first_;
};

}  // namespace tapedelay
