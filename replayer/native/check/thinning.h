// Which of several pairs are reported: the latest, and what is more certain than all later ones.
#pragma once

#include <cstdint>
#include <vector>

#include "common.h"

namespace tapedelay::check {

// Of what is added under one key, a later one stands for earlier ones that are no more certain.
template <class Key, class Value>
class Thinned {
 public:
  bool empty() const { return best_.empty(); }
  void clear() { best_.clear(), index_.clear(); }

  // Adds a value that stands at `rank`; of one rank and certainty the first one stays.
  void add(const Key& key, Certainty certainty, std::int32_t rank, const Value& value) {
    Place& known = find(key).places[int(certainty)];
    if (known.rank < rank) known = {rank, value};
  }

  // Calls back with (key, certainty, value): keys as they came, per key the most certain first.
  template <class F>
  void each(F call) const {
    for (const Best& best : best_) {
      std::int32_t latest = -1;
      for (int c = int(Certainty::sure); c >= 0; c--) {
        const Place& found = best.places[c];
        if (found.rank <= latest) continue;
        latest = found.rank;
        call(best.key, Certainty(c), found.value);
      }
    }
  }

 private:
  struct Place {
    std::int32_t rank = -1;
    Value value{};
  };
  struct Best {
    Key key;
    Place places[3];
  };

  Best& find(const Key& key) {
    const auto [at, added] = index_.emplace(key, best_.size());
    if (added) best_.push_back({key, {}});
    return best_[at->second];
  }

  std::vector<Best> best_;
  std::unordered_map<Key, std::size_t, typename Key::Hash> index_;
};

inline std::size_t mixed(std::size_t seed, std::uint64_t value) {
  std::uint64_t x = (seed ^ value) * 0x9E3779B97F4A7C15ull;
  return std::size_t(x ^ (x >> 29));
}

}  // namespace tapedelay::check
