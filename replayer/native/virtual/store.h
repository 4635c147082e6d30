// What stands in memory: one value per cell, with the weighted sum of any range in logarithmic time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cells.h"

namespace tapedelay {

// Digests: the weight of a range of bytes.
struct ByBytes {
  const std::uint64_t* weights;
  ByBytes(const Cells& cells, const RootCells& root) : weights(cells.weights().data() + root.border) {}
  std::uint64_t operator()(std::uint32_t begin, std::uint32_t end) const { return weights[end] - weights[begin]; }
};
// Counts: the number of cells.
struct ByCells {
  ByCells(const Cells&, const RootCells&) {}
  std::uint64_t operator()(std::uint32_t begin, std::uint32_t end) const { return end - begin; }
};

// A node whose cells all hold one value says so and its children are not kept: that is also how a run begins.
template <class Weight>
class Store {
 public:
  explicit Store(const Cells& cells) : cells_(cells), leaves_(cells.leaves()), nodes_(cells.nodes()) {}

  void fill(std::int32_t root, std::uint64_t value) {
    const RootCells& r = cells_.roots()[root];
    nodes_[r.node[r.levels]] = {value * Weight(cells_, r)(0, r.cells), value, true};
  }
  // Sum of value * weight.
  std::uint64_t sum(std::int32_t root, std::uint32_t begin, std::uint32_t end) const {
    const View v(*this, root);
    return v.sum(v.root.levels, 0, begin, end);
  }
  void set(std::int32_t root, std::uint32_t begin, std::uint32_t end, std::uint64_t value) {
    Writer v(*this, root);
    v.set(v.root.levels, 0, begin, end, value);
  }
  // value = f(value) for each piece of one value.
  template <class F>
  void change(std::int32_t root, std::uint32_t begin, std::uint32_t end, F f) {
    Writer v(*this, root);
    v.change(v.root.levels, 0, begin, end, f);
  }
  // f(begin, end, value) for each piece of one value, ascending; neighbours may have the same.
  template <class F>
  void each(std::int32_t root, std::uint32_t begin, std::uint32_t end, F f) const {
    const View v(*this, root);
    v.each(v.root.levels, 0, begin, end, f);
  }

 private:
  struct Node {
    std::uint64_t sum, value;
    bool one;  // all cells hold `value`
  };

  template <class Leaf, class Nodes>
  struct Base {
    const RootCells& root;
    const Weight weight;
    Leaf* const leaf;
    Nodes* const all;

    Nodes& node(int level, std::uint32_t i) const { return all[root.node[level] + i]; }
    std::uint32_t first(int level, std::uint32_t i) const {
      return std::uint32_t(std::uint64_t(i) << (kFanBits * level));
    }
    std::uint32_t last(int level, std::uint32_t i) const {
      return std::uint32_t(std::min<std::uint64_t>(std::uint64_t(i + 1) << (kFanBits * level), root.cells));
    }
  };

  struct View : Base<const std::uint64_t, const Node> {
    View(const Store& s, std::int32_t r)
        : Base<const std::uint64_t, const Node>{s.cells_.roots()[r], Weight(s.cells_, s.cells_.roots()[r]),
                                                s.leaves_.data() + s.cells_.roots()[r].leaf, s.nodes_.data()} {}

    std::uint64_t sum(int level, std::uint32_t i, std::uint32_t begin, std::uint32_t end) const {
      const Node& n = this->node(level, i);
      if (begin == this->first(level, i) && end == this->last(level, i)) return n.sum;
      if (n.one) return n.value * this->weight(begin, end);
      std::uint64_t found = 0;
      if (level == 1) {
        for (std::uint32_t c = begin; c < end; ++c) found += this->leaf[c] * this->weight(c, c + 1);
        return found;
      }
      const int shift = kFanBits * (level - 1);
      std::uint32_t low = begin >> shift, high = (end - 1) >> shift;
      if (low == high) return sum(level - 1, low, begin, end);
      if (begin != this->first(level - 1, low)) {
        found += sum(level - 1, low, begin, this->last(level - 1, low));
        ++low;
      }
      if (end != this->last(level - 1, high)) found += sum(level - 1, high, this->first(level - 1, high), end);
      else ++high;
      for (std::uint32_t c = low; c < high; ++c) found += this->node(level - 1, c).sum;
      return found;
    }

    template <class F>
    void each(int level, std::uint32_t i, std::uint32_t begin, std::uint32_t end, F& f) const {
      const Node& n = this->node(level, i);
      if (n.one) {
        f(begin, end, n.value);
      } else if (level == 1) {
        for (std::uint32_t c = begin; c < end; ++c) f(c, c + 1, this->leaf[c]);
      } else {
        const int shift = kFanBits * (level - 1);
        for (std::uint32_t c = begin >> shift; c <= (end - 1) >> shift; ++c)
          each(level - 1, c, std::max(begin, this->first(level - 1, c)), std::min(end, this->last(level - 1, c)), f);
      }
    }
  };

  struct Writer : Base<std::uint64_t, Node> {
    Writer(Store& s, std::int32_t r)
        : Base<std::uint64_t, Node>{s.cells_.roots()[r], Weight(s.cells_, s.cells_.roots()[r]),
                                    s.leaves_.data() + s.cells_.roots()[r].leaf, s.nodes_.data()} {}

    // Gives the children what the node says of all its cells.
    void push(int level, std::uint32_t i, Node& n) {
      n.one = false;
      const std::uint32_t begin = this->first(level, i), end = this->last(level, i);
      if (level == 1) {
        std::fill(this->leaf + begin, this->leaf + end, n.value);
        return;
      }
      const int shift = kFanBits * (level - 1);
      for (std::uint32_t c = begin >> shift; c <= (end - 1) >> shift; ++c)
        this->node(level - 1, c) = {n.value * this->weight(this->first(level - 1, c), this->last(level - 1, c)), n.value,
                                    true};
    }

    // Both return by how much the sum has grown.
    std::uint64_t set(int level, std::uint32_t i, std::uint32_t begin, std::uint32_t end, std::uint64_t value) {
      Node& n = this->node(level, i);
      if (begin == this->first(level, i) && end == this->last(level, i)) {
        const std::uint64_t was = n.sum;
        n = {value * this->weight(begin, end), value, true};
        return n.sum - was;
      }
      if (n.one) {
        if (n.value == value) return 0;
        push(level, i, n);
      }
      std::uint64_t grown = 0;
      if (level == 1) {
        for (std::uint32_t c = begin; c < end; ++c) {
          grown += (value - this->leaf[c]) * this->weight(c, c + 1);
          this->leaf[c] = value;
        }
      } else {
        const int shift = kFanBits * (level - 1);
        for (std::uint32_t c = begin >> shift; c <= (end - 1) >> shift; ++c)
          grown += set(level - 1, c, std::max(begin, this->first(level - 1, c)),
                       std::min(end, this->last(level - 1, c)), value);
      }
      n.sum += grown;
      return grown;
    }

    template <class F>
    std::uint64_t change(int level, std::uint32_t i, std::uint32_t begin, std::uint32_t end, F& f) {
      Node& n = this->node(level, i);
      if (n.one) {
        if (begin == this->first(level, i) && end == this->last(level, i)) {
          const std::uint64_t was = n.sum;
          n.value = f(n.value);
          n.sum = n.value * this->weight(begin, end);
          return n.sum - was;
        }
        push(level, i, n);
      }
      std::uint64_t grown = 0;
      if (level == 1) {
        for (std::uint32_t c = begin; c < end; ++c) {
          const std::uint64_t value = f(this->leaf[c]);
          grown += (value - this->leaf[c]) * this->weight(c, c + 1);
          this->leaf[c] = value;
        }
      } else {
        const int shift = kFanBits * (level - 1);
        for (std::uint32_t c = begin >> shift; c <= (end - 1) >> shift; ++c)
          grown += change(level - 1, c, std::max(begin, this->first(level - 1, c)),
                          std::min(end, this->last(level - 1, c)), f);
      }
      n.sum += grown;
      return grown;
    }
  };

  const Cells& cells_;
  std::vector<std::uint64_t> leaves_;
  std::vector<Node> nodes_;
};

}  // namespace tapedelay
