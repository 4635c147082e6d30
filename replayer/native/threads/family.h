// Ops with children are in flight while their children run: who meets them is told here, not by marks in memory.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "spec.h"

namespace tapedelay::threads {

// Whether one unit is the other, or part of it.
bool kin(const Spec& spec, Row a, Row b);

class Family {
 public:
  struct Meeting {
    std::vector<std::int64_t> torn;  // accesses of the unit that read what was being written
    std::vector<Range> pieces;       // bytes that it and another one write at once
  };

  explicit Family(const Spec& spec);
  void reset() { flights_.clear(); }

  // Whether any op with children touches anything: else nothing is kept.
  bool any() const { return any_; }
  // Both return what the unit met so far; only meetings of which one side has children are told.
  Meeting start(Row unit);
  Meeting end(Row unit);

 private:
  struct Flight {
    Row unit;
    Meeting met;
  };
  void meet(Flight& one, Flight& other) const;

  const Spec& spec_;
  bool any_ = false;
  std::mutex mutex_;
  std::vector<Flight> flights_;
};

}  // namespace tapedelay::threads
