#include "cells.h"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "mix.h"

namespace tapedelay {
namespace {

constexpr std::size_t kMaxCells = std::numeric_limits<std::uint32_t>::max() / 2;

// What decides what an op touches: its access set and, where that is not fixed, its arg and list.
struct Key {
  std::int32_t set, list;
  std::int64_t arg;
  bool operator==(const Key& o) const { return set == o.set && list == o.list && arg == o.arg; }
};
struct KeyHash {
  std::size_t operator()(const Key& k) const {
    return fold(fold(std::uint64_t(k.arg), std::uint32_t(k.list)), std::uint32_t(k.set));
  }
};

Key key_of(const OpColumns& ops, Row row, bool fixed) {
  Key key{ops.access_set.get(row), kNull, 0};
  if (!fixed) key.list = ops.list.get(row), key.arg = ops.arg.get(row, -1);
  return key;
}

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
  const OpColumns& ops = contract.columns().ops;
  std::unordered_map<Key, std::uint32_t, KeyHash> known;
  group_.assign(std::size_t(contract.rows()), 0);
  groups_.assign(1, Group{0, 0});
  const auto add = [&](std::int32_t buffer, std::int64_t begin, std::int64_t end) {
    std::int32_t& root = root_of_[buffer];
    if (root < 0) {
      root = std::int32_t(roots_.size());
      roots_.push_back(RootCells{});
      roots_.back().buffer = buffer;
      borders.emplace_back();
    }
    borders[root].push_back(begin);
    borders[root].push_back(end);
  };
  for (Row row = 0; row < contract.rows(); ++row) {
    if (ops.access_set.get(row) <= 0) continue;
    const auto [it, added] = known.emplace(key_of(ops, row, ranges.fixed(row)), std::uint32_t(groups_.size()));
    group_[row] = it->second;
    if (!added) continue;
    groups_.push_back(Group{0, 0});
    for (const Access& a : ranges.of(row)) {
      if (a.spans.empty()) add(a.root, a.begin, a.end);
      for (const Bytes b : a.spans) add(a.root, b.begin, b.end);
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

std::uint32_t Cells::cell(std::int32_t root, std::int64_t border) const {
  const auto first = borders_.begin() + roots_[root].border;
  return std::uint32_t(std::lower_bound(first, first + roots_[root].cells + 1, border) - first);
}

Touch Cells::touch(const Access& a) {
  Touch t{};
  t.root = root_of_[a.root], t.access = a.row, t.buffer = a.buffer, t.mode = a.mode;
  t.begin = cell(t.root, a.begin), t.end = cell(t.root, a.end);
  t.spans = std::uint32_t(spans_.size()), t.span_count = std::uint32_t(a.spans.size());
  for (const Bytes b : a.spans) spans_.push_back({cell(t.root, b.begin), cell(t.root, b.end)});
  return t;
}

void Cells::place(const Contract& contract, Ranges& ranges) {
  std::uint32_t next = 1;
  for (Row row = 0; row < contract.rows(); ++row) {
    if (group_[row] != next) continue;  // groups are numbered as first seen
    Group& group = groups_[next++];
    group.first = std::uint32_t(touches_.size());
    for (const Access& a : ranges.of(row)) touches_.push_back(touch(a));
    group.count = std::uint32_t(touches_.size()) - group.first;
    if (touches_.size() > kMaxCells || spans_.size() > kMaxCells)
      throw TooMuch("more than " + std::to_string(kMaxCells) + " ranges", "fewer: replay a window of the tape");
  }
}

}  // namespace tapedelay
