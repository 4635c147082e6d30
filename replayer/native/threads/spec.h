// What the threads backend runs: the units of a program, what orders them, and their accesses in real memory.
#pragma once

#include <cstdint>
#include <vector>

#include "../span.h"
#include "../tape.h"

namespace tapedelay::threads {

// Adjacent lists: those of i are at [first[i], first[i + 1]). Without `first`, all are empty.
struct Lists {
  std::vector<std::int64_t> first;
  std::vector<std::int32_t> item;

  Span<std::int32_t> of(std::int64_t i) const {
    if (first.empty()) return {};
    return {item.data() + first[i], std::size_t(first[i + 1] - first[i])};
  }
};

struct Range {  // bytes of the memory
  std::int64_t begin, end;
};

enum class At : std::int32_t { issue, start, end };  // a moment of a row that the issue of another one follows

struct Spec {
  // Per row.
  std::int32_t rows = 0, queues = 0;
  std::vector<std::int64_t> op;      // op id
  std::vector<Row> unit;             // last row of what starts as one
  std::vector<std::int32_t> queue;   // who executes it
  std::vector<std::int32_t> issuer;  // who issues it: a host thread, or the queue itself
  std::vector<std::int64_t> gap_ns;  // between the last moment in `issue_after` and the issue
  std::vector<std::int64_t> duration_ns;
  std::vector<std::uint8_t> on_host; // a host thread executes it
  std::vector<std::uint8_t> copies;  // moves bytes from its first read to its first write, and so on
  Lists issue_after[3];              // by `At`: rows
  std::vector<std::uint8_t> issues;  // whether it is ever issued

  // Per unit, by its row; all name units.
  Lists members;  // rows, ascending; empty for a unit of one row
  Lists sources;  // end before it starts
  Lists any_of;   // one of them ends before it starts
  Lists parents;  // start before it starts, end after it
  std::vector<Row> schedule;  // reference order: u starts, ~u ends (units with children)

  // Accesses: those of row r are [access_first[r], access_first[r + 1]), in order.
  std::vector<std::int64_t> access_first;
  std::vector<std::int32_t> root;         // of each access
  std::vector<Mode> mode;
  std::vector<std::int64_t> range_first;  // its ranges, disjoint and ascending
  std::vector<Range> ranges;

  // Life: units.
  Lists allocs, frees;  // per access: must have ended before it starts; must not end before it does
  Lists destroys;       // per row: must not have ended before it starts

  // Memory.
  std::int64_t bytes = 0;
  std::vector<std::int32_t> root_id;
  std::vector<Range> root_range;      // of each root
  std::vector<std::int32_t> last_root;  // what the host reads at the end
  std::vector<Range> last_range;

  // Derived by `complete`.
  Lists targets, any_targets, children, then_issue[3];

  std::int64_t accesses() const { return std::int64_t(root.size()); }
  Span<Range> ranges_of(std::int64_t access) const {
    return {ranges.data() + range_first[access], std::size_t(range_first[access + 1] - range_first[access])};
  }
  Span<Row> rows_of(const Row& u) const {
    const Span<Row> found = members.of(u);
    return found.empty() ? Span<Row>{&u, 1} : found;
  }
  bool open(Row u) const { return !children.of(u).empty(); }  // has children

  // Fills what is derived. Throws std::invalid_argument where lists do not fit.
  void complete();
};

}  // namespace tapedelay::threads
