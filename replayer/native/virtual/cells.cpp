#include "cells.h"

#include <algorithm>
#include <limits>

#include "mix.h"

namespace tapedelay {
namespace {

constexpr std::size_t kMaxCells = std::numeric_limits<std::uint32_t>::max() / 2;

// The group of ops that an access set was last seen with: all of its ops where it is fixed, else those with the
// same arg and list.
struct Last {
  std::uint32_t group = 0;
  std::int32_t list = kNull;
  std::int64_t arg = 0;
};

}  // namespace

Cells::Cells(const Contract& contract, const Buffers& buffers) {
  Ranges ranges(contract, buffers);
  root_of_.assign(std::size_t(buffers.rows()), -1);
  std::vector<std::vector<std::int64_t>> borders;
  cut(contract, ranges, borders);
  lay_out(borders);
  place(contract, ranges);
}

// Gathers the borders of every access and gives each row the group of ops that touch the same.
void Cells::cut(const Contract& contract, Ranges& ranges, std::vector<std::vector<std::int64_t>>& borders) {
  const Columns& columns = contract.columns();
  const OpColumns& ops = columns.ops;
  const Grouped sets(columns.accesses.set, columns.accesses.rows);
  std::vector<Last> lasts(std::size_t(sets.groups()));
  std::vector<Bytes> knowns(std::size_t(columns.accesses.rows), Bytes{-1, -1});
  group_.assign(std::size_t(contract.rows()), 0);
  groups_.assign(1, Group{0, 0});
  const auto root_of = [&](const Access& a) {
    std::int32_t& root = root_of_[a.root];
    if (root < 0) {
      root = std::int32_t(roots_.size());
      roots_.push_back(RootCells{});
      roots_.back().buffer = a.root;
      borders.emplace_back();
    }
    roots_[root].written = roots_[root].written || writes(a.mode);
    return root;
  };
  for (Row row = 0; row < contract.rows(); ++row) {
    const std::int32_t set = ops.access_set.get(row);
    if (set <= 0) continue;
    const std::int32_t number = sets.find(set);
    if (number < 0) ranges.of(row);  // which says what is wrong
    Last& last = lasts[number];
    if (last.group != 0 && (ranges.fixed(row) || (last.arg == ops.arg.get(row) && last.list == ops.list.get(row)))) {
      group_[row] = last.group;
      continue;
    }
    last = {std::uint32_t(groups_.size()), ops.list.get(row), ops.arg.get(row)};
    group_[row] = last.group;
    groups_.push_back(Group{0, 0});
    for (const Access& a : ranges.of(row)) {
      std::vector<std::int64_t>& to = borders[root_of(a)];
      if (!a.spans.empty()) {
        for (const Bytes b : a.spans) to.insert(to.end(), {b.begin, b.end});
        continue;
      }
      Bytes& known = knowns[a.row];
      if (known.begin != a.begin) to.push_back(a.begin);
      if (known.end != a.end) to.push_back(a.end);
      known = {a.begin, a.end};
    }
  }
}

void Cells::lay_out(std::vector<std::vector<std::int64_t>>& borders) {
  std::size_t all = 0;
  for (std::vector<std::int64_t>& b : borders) {
    std::sort(b.begin(), b.end());
    b.erase(std::unique(b.begin(), b.end()), b.end());
    all += b.size();
  }
  if (all > kMaxCells) throw TooMuch(std::to_string(all) + " borders of accesses", "fewer: replay a window of the tape");
  borders_.reserve(all);
  for (std::size_t i = 0; i < roots_.size(); ++i) {
    RootCells& root = roots_[i];
    root.cells = std::uint32_t(borders[i].size()) - 1;
    root.border = std::uint32_t(borders_.size());
    root.leaf = leaves_;
    leaves_ += root.cells;
    std::uint32_t count = root.cells;
    root.levels = 0;
    do {
      count = (count + kFan - 1) >> kFanBits;
      root.node[++root.levels] = nodes_;
      nodes_ += count;
    } while (count > 1);
    borders_.insert(borders_.end(), borders[i].begin(), borders[i].end());
    std::vector<std::int64_t>().swap(borders[i]);
  }
  weights_.resize(borders_.size());
  for (std::size_t i = 0; i < borders_.size(); ++i) weights_[i] = weight(borders_[i]);
}

// A guess that is right, or almost, saves the search.
std::uint32_t Cells::cell(std::int32_t root, std::int64_t border, std::uint32_t near) const {
  const std::int64_t* const first = borders_.data() + roots_[root].border;
  const std::uint32_t count = roots_[root].cells + 1;
  for (std::uint32_t i = near; i < std::min(near + 3, count); ++i)
    if (first[i] == border) return i;
  return std::uint32_t(std::lower_bound(first, first + count, border) - first);
}

Touch Cells::touch(const Access& a, Known& known) {
  Touch t{};
  t.root = root_of_[a.root], t.access = a.row, t.buffer = a.buffer, t.mode = a.mode;
  t.still = !roots_[t.root].written;
  if (known.begin != a.begin) known.cells.begin = cell(t.root, a.begin, known.cells.begin);
  if (known.end != a.end) known.cells.end = cell(t.root, a.end, known.cells.end);
  known.begin = a.begin, known.end = a.end;
  t.begin = known.cells.begin, t.end = known.cells.end;
  t.spans = std::uint32_t(spans_.size()), t.span_count = std::uint32_t(a.spans.size());
  std::uint32_t near = t.begin;
  for (const Bytes b : a.spans) {
    const std::uint32_t begin = cell(t.root, b.begin, near);
    near = cell(t.root, b.end, begin);
    spans_.push_back({begin, near});
  }
  return t;
}

void Cells::place(const Contract& contract, Ranges& ranges) {
  std::vector<Known> knowns(std::size_t(contract.columns().accesses.rows), Known{-1, -1, {0, 0}});
  std::uint32_t next = 1;
  for (Row row = 0; row < contract.rows(); ++row) {
    if (group_[row] != next) continue;  // groups are numbered as first seen
    Group& group = groups_[next++];
    group.first = std::uint32_t(touches_.size());
    for (const Access& a : ranges.of(row)) touches_.push_back(touch(a, knowns[a.row]));
    group.count = std::uint32_t(touches_.size()) - group.first;
    if (touches_.size() > kMaxCells || spans_.size() > kMaxCells)
      throw TooMuch("more than " + std::to_string(kMaxCells) + " ranges", "fewer: replay a window of the tape");
  }
}

}  // namespace tapedelay
