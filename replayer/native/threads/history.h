// Who wrote what stands in memory as ops start and end in a given order: versions that do not depend on values.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "marks.h"
#include "spec.h"

namespace tapedelay::threads {

class History {
 public:
  using Id = std::uint64_t;
  struct Version {
    Row writer;  // -1: nobody
    bool torn;
  };
  struct Piece {
    std::int64_t begin, end;  // real bytes
    Id id;
    Row flying;  // row that writes there at that time; -1
  };

  explicit History(const Spec& spec);

  // `alone`: nothing else is in flight beside any unit, as in the reference order.
  void begin(bool alone);
  void start(Row unit);
  void end(Row unit);

  // What stands in a range for a read of `unit`.
  void pieces(Range range, Row unit, std::vector<Piece>& found) const;
  Version version(Id id) const;

  // Follows what came out of one read, from now on.
  void follow(Row unit);
  Row tainted(Range range) const;  // row that wrote it, or -1
  Row tainted_by(Row unit) const { return from_[unit]; }  // row whose output the unit read; see below
  static constexpr Row kClean = -2, kFirst = -1;

 private:
  struct Flight {
    Row unit;
    std::vector<std::pair<Range, Row>> torn;  // bytes, and the other unit
  };
  std::size_t cell(std::int64_t byte) const;
  Row flying(Range range, Row unit) const;
  void put(Range range, Id id);

  const Spec& spec_;
  std::vector<std::int64_t> borders_;
  std::vector<Id> id_;
  std::vector<Row> taint_;
  std::vector<Row> from_;
  bool alone_ = false, following_ = false;
  std::vector<Flight> flights_;
  std::vector<Word> kept_;  // per unit: ids of old content that it may keep
  std::unordered_map<Id, Version> made_;
};

}  // namespace tapedelay::threads
