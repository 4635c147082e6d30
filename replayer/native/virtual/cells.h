// The bytes of every root buffer cut at all borders of accesses: an access is a range of cells.
#pragma once

#include <cstdint>
#include <vector>

#include "../contract.h"
#include "../grouped.h"
#include "../ranges.h"
#include "../span.h"

namespace tapedelay {

struct CellRange {
  std::uint32_t begin, end;
};

// One access of one op, on the cells of a root.
struct Touch {
  std::uint32_t begin, end;  // hull
  std::int32_t root;         // index into `roots`
  std::int32_t access;       // row of `accesses`
  std::int32_t buffer;       // the buffer row that the access names
  std::uint32_t spans, span_count;  // in `spans`; count 0: the hull is all
  Mode mode;
  bool still;  // no op writes to that root: every read of it is right

  bool judged() const { return mode == Mode::read || mode == Mode::update; }
  bool reads() const { return judged() || mode == Mode::may_write; }
  bool writes() const { return mode != Mode::read; }
};

// Where the cells of a root stand in the flat arrays of a `Store`: leaves, and above them a tree of nodes.
constexpr int kFanBits = 4;
constexpr std::uint32_t kFan = 1U << kFanBits;
constexpr int kMaxLevels = 9;

struct RootCells {
  std::int32_t buffer;        // the root's row of `buffers`
  std::uint32_t cells;
  std::uint32_t border;       // where its cells + 1 borders begin in `borders`, its weights in `weights`
  std::uint32_t leaf;         // where its cells begin
  bool written;               // by any op
  int levels;                 // 1 .. kMaxLevels; the one node of the last covers all
  std::uint32_t node[kMaxLevels + 1];  // where the nodes of each level begin; 0 unused
};

class Cells {
 public:
  // Reads what the ops touch, growing and listed sets once for each arg and list.
  Cells(const Contract& contract, const Buffers& buffers);

  Span<Touch> of(Row row) const {
    const Group g = groups_[group_[row]];
    return {touches_.data() + g.first, g.count};
  }
  template <class F>
  void each_range(const Touch& t, F f) const {
    if (t.span_count == 0) {
      f(t.begin, t.end);
    } else {
      for (std::uint32_t i = 0; i < t.span_count; ++i) f(spans_[t.spans + i].begin, spans_[t.spans + i].end);
    }
  }
  std::int64_t begin(const Touch& t) const { return borders_[roots_[t.root].border + t.begin]; }
  std::int64_t end(const Touch& t) const { return borders_[roots_[t.root].border + t.end]; }
  std::int64_t border(std::int32_t root, std::uint32_t cell) const { return borders_[roots_[root].border + cell]; }

  const std::vector<RootCells>& roots() const { return roots_; }
  const std::vector<std::uint64_t>& weights() const { return weights_; }
  std::uint32_t leaves() const { return leaves_; }
  std::uint32_t nodes() const { return nodes_; }

 private:
  struct Group {
    std::uint32_t first, count;
  };
  struct Known {  // where an access was when it was last seen
    std::int64_t begin, end;
    CellRange cells;
  };
  void cut(const Contract& contract, Ranges& ranges, std::vector<std::vector<std::int64_t>>& borders);
  void lay_out(std::vector<std::vector<std::int64_t>>& borders);
  void place(const Contract& contract, Ranges& ranges);
  Touch touch(const Access& access, Known& known);
  std::uint32_t cell(std::int32_t root, std::int64_t border, std::uint32_t near) const;

  std::vector<std::int32_t> root_of_;      // by buffer row: index into roots_, -1: not touched
  std::vector<RootCells> roots_;
  std::vector<std::int64_t> borders_;
  std::vector<std::uint64_t> weights_;     // of the borders
  std::vector<std::uint32_t> group_;       // by row; 0: touches nothing
  std::vector<Group> groups_;
  std::vector<Touch> touches_;
  std::vector<CellRange> spans_;
  std::uint32_t leaves_ = 0, nodes_ = 0;
};

}  // namespace tapedelay
