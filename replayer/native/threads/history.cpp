#include "history.h"

#include <algorithm>

#include "family.h"

namespace tapedelay::threads {
namespace {

constexpr int kSeqBits = 24;
constexpr std::uint64_t kMade = std::uint64_t(1) << 63;

bool overlap(const Range& a, const Range& b) { return a.begin < b.end && b.begin < a.end; }

}  // namespace

History::History(const Spec& spec) : spec_(spec) {
  borders_.reserve(2 * (spec.ranges.size() + spec.root_range.size()));
  for (const std::vector<Range>* ranges : {&spec.ranges, &spec.root_range})
    for (const Range& r : *ranges) {
      borders_.push_back(r.begin);
      borders_.push_back(r.end);
    }
  std::sort(borders_.begin(), borders_.end());
  borders_.erase(std::unique(borders_.begin(), borders_.end()), borders_.end());
}

void History::begin(bool alone) {
  alone_ = alone;
  following_ = false;
  id_.assign(borders_.size(), 0);
  taint_.assign(borders_.size(), -1);
  from_.assign(std::size_t(spec_.rows), kClean);
  kept_.assign(std::size_t(spec_.rows), 0);
  flights_.clear();
  made_.clear();
}

std::size_t History::cell(std::int64_t byte) const {
  return std::size_t(std::lower_bound(borders_.begin(), borders_.end(), byte) - borders_.begin());
}

void History::start(Row unit) {
  Flight flight{unit, {}};
  kept_[unit] = 0;
  for (const Row row : spec_.rows_of(unit))
    for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a) {
      const Mode mode = spec_.mode[a];
      for (const Range& r : spec_.ranges_of(a)) {
        if (mode == Mode::may_write)
          for (std::size_t c = cell(r.begin); c < cell(r.end); ++c) kept_[unit] = mixed(kept_[unit] ^ id_[c]) + c;
        if (following_ && mode != Mode::write && mode != Mode::reduce && from_[unit] == kClean) {
          const Row writer = tainted(r);
          if (writer >= 0) from_[unit] = writer;
        }
        if (alone_ || mode == Mode::read) continue;
        for (Flight& other : flights_) {
          if (kin(spec_, other.unit, unit)) continue;
          for (const Row theirs : spec_.rows_of(other.unit))
            for (std::int64_t b = spec_.access_first[theirs]; b < spec_.access_first[theirs + 1]; ++b) {
              if (!writes(spec_.mode[b]) || (mode == Mode::reduce && spec_.mode[b] == Mode::reduce)) continue;
              for (const Range& o : spec_.ranges_of(b))
                if (overlap(r, o)) {
                  const Range both{std::max(r.begin, o.begin), std::min(r.end, o.end)};
                  flight.torn.push_back({both, other.unit});
                  other.torn.push_back({both, unit});
                }
            }
        }
      }
    }
  flights_.push_back(std::move(flight));
}

void History::put(Range range, Id id) {
  for (std::size_t c = cell(range.begin), e = cell(range.end); c < e; ++c) id_[c] = id;
}

void History::end(Row unit) {
  Flight flight{unit, {}};
  for (std::size_t i = 0; i < flights_.size(); ++i)
    if (flights_[i].unit == unit) {
      flight = std::move(flights_[i]);
      flights_.erase(flights_.begin() + std::ptrdiff_t(i));
      break;
    }
  const bool bad = from_[unit] != kClean;
  for (const Row row : spec_.rows_of(unit))
    for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a) {
      const Mode mode = spec_.mode[a];
      if (!writes(mode)) continue;
      const std::int64_t seq = a - spec_.access_first[row];
      Id id = (Id(row) + 1) << kSeqBits | Id(seq & ((1 << kSeqBits) - 1));
      if (mode == Mode::may_write) {
        id = kMade | mixed(kept_[unit] ^ id);
        made_[id] = {row, false};
      }
      for (const Range& r : spec_.ranges_of(a))
        for (std::size_t c = cell(r.begin), e = cell(r.end); c < e; ++c) {
          if (mode == Mode::reduce) {
            const Version before = version(id_[c]);
            const bool more = (id_[c] & kMade) && !before.torn;
            id_[c] = kMade | (id_[c] ^ mixed(id));
            made_[id_[c]] = {more ? std::max(before.writer, row) : row, before.torn};
          } else {
            id_[c] = id;
          }
          if (following_ && (bad || mode != Mode::reduce)) taint_[c] = bad ? row : -1;
        }
    }
  for (const auto& [range, other] : flight.torn) {
    const Id id = kMade | mixed((Id(std::min(unit, other)) << 32 | Id(std::max(unit, other))) + 1);
    made_[id] = {unit, true};
    put(range, id);
    if (following_)
      for (const Row u : {unit, other})
        if (from_[u] != kClean)
          for (std::size_t c = cell(range.begin), e = cell(range.end); c < e; ++c) taint_[c] = u;
  }
}

History::Version History::version(Id id) const {
  if (!(id & kMade)) return {Row(id >> kSeqBits) - 1, false};
  return made_.find(id)->second;
}

void History::pieces(Range range, Row unit, std::vector<Piece>& found) const {
  for (std::size_t c = cell(range.begin), e = cell(range.end); c < e; ++c) {
    const Row writer = flying({borders_[c], borders_[c + 1]}, unit);
    if (!found.empty() && found.back().end == borders_[c] && found.back().id == id_[c] && found.back().flying == writer)
      found.back().end = borders_[c + 1];
    else
      found.push_back({borders_[c], borders_[c + 1], id_[c], writer});
  }
}

// The lowest row in flight that writes in a range and is no kin of a unit (-1: any).
Row History::flying(Range range, Row unit) const {
  Row found = -1;
  for (const Flight& flight : flights_) {
    if (unit >= 0 && kin(spec_, flight.unit, unit)) continue;
    for (const Row row : spec_.rows_of(flight.unit))
      for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a)
        if (writes(spec_.mode[a]))
          for (const Range& r : spec_.ranges_of(a))
            if (overlap(r, range) && (found < 0 || row < found)) found = row;
  }
  return found;
}

void History::follow(Row unit) {
  following_ = true;
  from_[unit] = kFirst;
}

Row History::tainted(Range range) const {
  for (std::size_t c = cell(range.begin), e = cell(range.end); c < e; ++c)
    if (taint_[c] >= 0) return taint_[c];
  return -1;
}

}  // namespace tapedelay::threads
