#include "family.h"

#include <algorithm>
#include <utility>

namespace tapedelay::threads {
namespace {

bool above(const Spec& spec, Row ancestor, Row unit) {
  std::vector<Row> found{unit};
  for (std::size_t i = 0; i < found.size(); ++i)
    for (const Row p : spec.parents.of(found[i])) {
      if (p == ancestor) return true;
      if (std::find(found.begin(), found.end(), p) == found.end()) found.push_back(p);
    }
  return false;
}

bool looks(Mode m) { return m == Mode::read || m == Mode::update || m == Mode::may_write; }

}  // namespace

bool kin(const Spec& spec, Row a, Row b) {
  return a == b || (!spec.parents.item.empty() && (above(spec, a, b) || above(spec, b, a)));
}

Family::Family(const Spec& spec) : spec_(spec) {
  for (Row u = 0; u < spec.rows; ++u)
    if (spec.open(u))
      for (const Row row : spec.rows_of(u)) any_ = any_ || spec.access_first[row] < spec.access_first[row + 1];
}

Family::Meeting Family::start(Row unit) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Flight flight{unit, {}};
  for (Flight& other : flights_)
    if ((spec_.open(unit) || spec_.open(other.unit)) && !kin(spec_, unit, other.unit)) meet(flight, other);
  Meeting met{std::exchange(flight.met.torn, {}), flight.met.pieces};
  flights_.push_back(std::move(flight));
  return met;
}

Family::Meeting Family::end(Row unit) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = std::find_if(flights_.begin(), flights_.end(), [&](const Flight& f) { return f.unit == unit; });
  if (at == flights_.end()) return {};
  Meeting met = std::move(at->met);
  flights_.erase(at);
  return met;
}

void Family::meet(Flight& one, Flight& other) const {
  const auto each = [&](Row unit, auto f) {
    for (const Row row : spec_.rows_of(unit))
      for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a) f(a, spec_.mode[a]);
  };
  each(one.unit, [&](std::int64_t a, Mode mine) {
    each(other.unit, [&](std::int64_t b, Mode theirs) {
      if (spec_.root[a] != spec_.root[b] || !(writes(mine) || writes(theirs))) return;
      if (mine == Mode::reduce && theirs == Mode::reduce) return;
      bool met = false;
      for (const Range& r : spec_.ranges_of(a))
        for (const Range& o : spec_.ranges_of(b)) {
          const Range both{std::max(r.begin, o.begin), std::min(r.end, o.end)};
          if (both.begin >= both.end) continue;
          met = true;
          if (!writes(mine) || !writes(theirs)) continue;
          one.met.pieces.push_back(both);
          other.met.pieces.push_back(both);
        }
      if (met && writes(theirs) && looks(mine)) one.met.torn.push_back(a);
      if (met && writes(mine) && looks(theirs)) other.met.torn.push_back(b);
    });
  });
}

}  // namespace tapedelay::threads
