// One run of values: what stands in memory as ops start and end, and which reads see something else.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "mix.h"
#include "scene.h"
#include "store.h"
#include "timing.h"

namespace tapedelay {

enum class Wrong : std::int8_t { stale, torn, freed, destroyed };

// One access of one op in one run.
struct Use {
  Row unit, row;
  std::uint32_t seq;  // among the row's touches
  const Touch* touch;
};

// What a run tells of itself as it goes; a run that only counts keeps nothing.
struct Silent {
  void read(const Use&, std::uint64_t) {}
  void stale(const Use&, std::int64_t) {}
  void torn(const Use&, const Use*, std::int64_t) {}
  void freed(const Use&, std::int64_t) {}
  void destroyed(Row, std::int64_t) {}
  void write(const Use&) {}
  void torn_bytes(Row, Row, std::int32_t, std::uint32_t, std::uint32_t) {}
  void ended(Row) {}
};

template <class Watch>
class Pass {
 public:
  explicit Pass(const Scene& scene)
      : scene_(scene), store_(scene.cells), air_(scene.cells.roots().size()), writers_(air_.size(), 0),
        slot_(std::size_t(scene.contract.rows()), kNone), begun_(scene.lives.generations().size(), 0),
        ended_(begun_.size(), 0), destroyed_(scene.lives.syncs(), 0) {}

  // Units one by one in the reference order: a unit with children reads as it starts and writes as it ends.
  void serial(Watch& watch, const Pulse& pulse) { play(scene_.codes, nullptr, watch, pulse); }
  // As the times say; `events` is the order of `Events`. Returns how many facts there are.
  std::int64_t timed(const std::vector<std::int32_t>& events, const Timing& timing, Watch& watch, const Pulse& pulse) {
    play(events, &timing, watch, pulse);
    return wrong_;
  }
  const Store<ByBytes>& store() const { return store_; }
  // Calls f(use) for what is in flight on a root.
  template <class F>
  void each_in_flight(std::int32_t root, F f) const {
    for (const Air& a : air_[root]) f(use_of(a));
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  enum : std::uint8_t { kBadValue = 1, kBadMemory = 2 };

  struct Air {  // an access in flight
    std::uint32_t begin, end;
    const Touch* touch;
    Row row;
    std::uint32_t slot, mark;
    Mode mode;
  };
  struct Piece {  // bytes that two writes at once leave torn
    Row other;
    std::int32_t root;
    std::uint32_t begin, end;
  };
  struct Flight {
    Row unit = 0;
    bool live = false, torn = false;
    std::uint64_t digest = 0;
    std::vector<std::uint8_t> marks;  // by touch of the unit: what is wrong with it already
    std::vector<Piece> pieces;
  };

  void play(const std::vector<std::int32_t>& events, const Timing* timing, Watch& watch, const Pulse& pulse);
  void reset();
  void start(Row unit, Watch& watch);
  void end(Flight& flight, Watch& watch);
  void collide(Flight& flight, std::uint32_t mark, const Use& use, Watch& watch);
  void bad_read(Flight& flight, std::uint32_t mark, const Use& use, const Use* writer, Watch& watch);
  void enter(Flight& flight, std::uint32_t slot);
  void leave(Flight& flight, std::uint32_t slot);
  void use_memory(Flight& flight, bool starting, Watch& watch);
  void use_syncs(Row unit, std::int32_t only, Watch& watch);
  void end_lives(Row unit, Watch& watch);
  bool gone(const Use& use, bool starting) const;
  Use use_of(const Air& a) const {
    return {flights_[a.slot].unit, a.row, std::uint32_t(a.touch - scene_.cells.of(a.row).begin()), a.touch};
  }
  std::uint64_t digest(const Touch& t) const {
    std::uint64_t found = 0;
    scene_.cells.each_range(t, [&](std::uint32_t b, std::uint32_t e) { found += store_.sum(t.root, b, e); });
    return found;
  }
  // Calls f(use, mark) for each touch of a unit, in the order of rows and accesses.
  template <class F>
  void each_touch(Row unit, F f) const {
    std::uint32_t mark = 0;
    const auto of_row = [&](Row row) {
      std::uint32_t seq = 0;
      for (const Touch& t : scene_.cells.of(row)) f(Use{unit, row, seq++, &t}, mark++);
    };
    if (scene_.is_joint(unit)) {
      for (Row row : scene_.contract.rows_of(unit)) of_row(row);
    } else {
      of_row(unit);
    }
  }

  const Scene& scene_;
  Store<ByBytes> store_;
  std::vector<std::vector<Air>> air_;    // by root
  std::vector<std::uint32_t> writers_;   // by root: writes in flight
  std::vector<std::uint32_t> slot_;      // by unit in flight: its place in flights_
  std::vector<Flight> flights_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> living_;    // flights that use what may end
  std::vector<std::uint8_t> begun_, ended_, destroyed_;
  Flight instant_;
  const Timing* timing_ = nullptr;
  std::int64_t now_ = 0, wrong_ = 0, left_ = 0;  // left_: work until the next pulse
};

template <class Watch>
void Pass<Watch>::reset() {
  const std::vector<RootCells>& roots = scene_.cells.roots();
  for (std::size_t i = 0; i < roots.size(); ++i) {
    store_.fill(std::int32_t(i), initial(roots[i].buffer));
    air_[i].clear();
    writers_[i] = 0;
  }
  free_.clear();
  living_.clear();
  for (std::uint32_t i = 0; i < flights_.size(); ++i) {
    if (flights_[i].live) slot_[flights_[i].unit] = kNone;
    flights_[i].live = false;
    free_.push_back(i);
  }
  std::fill(begun_.begin(), begun_.end(), 0);
  std::fill(ended_.begin(), ended_.end(), 0);
  std::fill(destroyed_.begin(), destroyed_.end(), 0);
  wrong_ = 0;
}

template <class Watch>
void Pass<Watch>::play(const std::vector<std::int32_t>& events, const Timing* timing, Watch& watch,
                       const Pulse& pulse) {
  constexpr std::int64_t kPulse = 1 << 15;
  timing_ = timing;
  reset();
  left_ = kPulse;
  for (const std::int32_t code : events) {
    if (code >= 0) {
      now_ = timing ? timing->at(code, kStart) : 0;
      start(code, watch);
    } else if (slot_[~code] != kNone) {
      now_ = timing ? timing->at(~code, kDone) : 0;
      const std::uint32_t slot = slot_[~code];
      if (timing) leave(flights_[slot], slot);
      end(flights_[slot], watch);
      flights_[slot].live = false;
      slot_[~code] = kNone;
      free_.push_back(slot);
    }
    if (--left_ <= 0) {
      left_ = kPulse;
      pulse();
    }
  }
}

template <class Watch>
void Pass<Watch>::start(Row unit, Watch& watch) {
  const bool lasts = scene_.parts[unit] || (timing_ && timing_->at(unit, kDone) > timing_->at(unit, kStart));
  std::uint32_t slot = kNone;
  if (lasts) {
    if (free_.empty()) {
      free_.push_back(std::uint32_t(flights_.size()));
      flights_.emplace_back();
    }
    slot = free_.back();
    free_.pop_back();
    slot_[unit] = slot;
  }
  Flight& flight = lasts ? flights_[slot] : instant_;
  flight.unit = unit;
  flight.live = lasts;
  flight.torn = false;
  flight.pieces.clear();
  flight.marks.clear();
  flight.digest = kNothingRead;
  std::uint32_t expected = scene_.first_read.empty() ? 0 : scene_.first_read[unit];
  each_touch(unit, [&](const Use& use, std::uint32_t mark) {
    const Touch& t = *use.touch;
    flight.marks.push_back(0);
    if (t.still) return;
    if (timing_ && !air_[t.root].empty() && (t.writes() || writers_[t.root] != 0)) collide(flight, mark, use, watch);
    if (!t.reads()) return;
    const std::uint64_t seen = digest(t);
    flight.digest = fold(flight.digest, seen);
    watch.read(use, seen);
    if (t.judged() && timing_) {
      if (seen != scene_.expected[expected] && !(flight.marks[mark] & kBadValue)) {
        flight.marks[mark] |= kBadValue;
        ++wrong_;
        watch.stale(use, now_);
      }
      ++expected;
    }
  });
  const std::uint8_t lives = timing_ ? scene_.lives.flags(unit) : 0;
  if (lives & Lives::kUsesMemory) use_memory(flight, true, watch);
  if (lives & Lives::kUsesSyncs) use_syncs(unit, -1, watch);
  if (!lasts) {
    end(flight, watch);
    return;
  }
  if (lives & (Lives::kUsesMemory | Lives::kUsesSyncs)) living_.push_back(slot);
  if (timing_) enter(flight, slot);
}

template <class Watch>
void Pass<Watch>::bad_read(Flight& flight, std::uint32_t mark, const Use& use, const Use* writer, Watch& watch) {
  flight.torn = true;
  if (!use.touch->judged() || (flight.marks[mark] & kBadValue)) return;
  flight.marks[mark] |= kBadValue;
  ++wrong_;
  watch.torn(use, writer, now_);
}

// A touch that starts, against all that is in flight on its root.
template <class Watch>
void Pass<Watch>::collide(Flight& flight, std::uint32_t mark, const Use& use, Watch& watch) {
  const Touch& t = *use.touch;
  left_ -= std::int64_t(air_[t.root].size() >> 8);
  for (const Air& a : air_[t.root]) {
    if (a.begin >= t.end || t.begin >= a.end) continue;
    if (!(t.writes() || a.mode != Mode::read) || (t.mode == Mode::reduce && a.mode == Mode::reduce)) continue;
    const Use there = use_of(a);
    const Touch& other = *a.touch;
    if (scene_.kin(there.unit, use.unit)) continue;
    bool meet = false;
    scene_.cells.each_range(t, [&](std::uint32_t b1, std::uint32_t e1) {
      scene_.cells.each_range(other, [&](std::uint32_t b2, std::uint32_t e2) {
        const std::uint32_t begin = std::max(b1, b2), end = std::min(e1, e2);
        if (begin >= end) return;
        meet = true;
        if (t.writes() && other.writes()) {
          flight.pieces.push_back({there.unit, t.root, begin, end});
          flights_[a.slot].pieces.push_back({use.unit, t.root, begin, end});
        }
      });
    });
    if (!meet) continue;
    if (other.writes() && t.reads()) bad_read(flight, mark, use, nullptr, watch);
    if (t.writes() && other.reads()) bad_read(flights_[a.slot], a.mark, there, &use, watch);
  }
}

template <class Watch>
void Pass<Watch>::enter(Flight& flight, std::uint32_t slot) {
  each_touch(flight.unit, [&](const Use& use, std::uint32_t mark) {
    const Touch& t = *use.touch;
    if (t.still) return;
    air_[t.root].push_back(Air{t.begin, t.end, use.touch, use.row, slot, mark, t.mode});
    writers_[t.root] += t.writes();
  });
}

template <class Watch>
void Pass<Watch>::leave(Flight& flight, std::uint32_t slot) {
  each_touch(flight.unit, [&](const Use& use, std::uint32_t mark) {
    if (use.touch->still) return;
    std::vector<Air>& air = air_[use.touch->root];
    std::size_t i = 0;
    while (air[i].slot != slot || air[i].mark != mark) ++i;
    air[i] = air.back();
    air.pop_back();
    writers_[use.touch->root] -= use.touch->writes();
  });
  for (std::size_t i = 0; i < living_.size(); ++i)
    if (living_[i] == slot) {
      living_[i] = living_.back();
      living_.pop_back();
      break;
    }
}

template <class Watch>
void Pass<Watch>::end(Flight& flight, Watch& watch) {
  const std::uint64_t seen = flight.torn ? fold(flight.digest, kTorn) : flight.digest;
  each_touch(flight.unit, [&](const Use& use, std::uint32_t) {
    const Touch& t = *use.touch;
    if (!t.writes()) return;
    const std::uint64_t value = stamp(scene_.op[use.row], use.seq, seen);
    scene_.cells.each_range(t, [&](std::uint32_t b, std::uint32_t e) {
      if (t.mode == Mode::reduce) store_.change(t.root, b, e, [value](std::uint64_t x) { return x ^ value; });
      else store_.set(t.root, b, e, value);
    });
    watch.write(use);
  });
  std::stable_sort(flight.pieces.begin(), flight.pieces.end(),
                   [](const Piece& a, const Piece& b) { return a.other < b.other; });
  for (const Piece& p : flight.pieces) {
    store_.set(p.root, p.begin, p.end, torn_stamp(scene_.op[flight.unit], scene_.op[p.other]));
    watch.torn_bytes(flight.unit, p.other, p.root, p.begin, p.end);
  }
  watch.ended(flight.unit);
  if (timing_ && (scene_.lives.flags(flight.unit) & Lives::kEnds)) end_lives(flight.unit, watch);
}

// Whether memory is not there: its generation has ended, or begins with a later row that has not run yet.
template <class Watch>
bool Pass<Watch>::gone(const Use& use, bool starting) const {
  const Contract& c = scene_.contract;
  for (const std::int32_t id : scene_.lives.of_buffer(use.touch->buffer)) {
    const Lives::Generation& g = scene_.lives.generations()[id];
    if (ended_[id] && g.ends_for(use.row) && !scene_.kin(c.unit(g.free), use.unit)) return true;
    if (starting && g.alloc > use.row && !begun_[id] && !scene_.kin(c.unit(g.alloc), use.unit)) return true;
  }
  return false;
}

template <class Watch>
void Pass<Watch>::use_memory(Flight& flight, bool starting, Watch& watch) {
  each_touch(flight.unit, [&](const Use& use, std::uint32_t mark) {
    if ((flight.marks[mark] & kBadMemory) || !gone(use, starting)) return;
    flight.marks[mark] |= kBadMemory;
    ++wrong_;
    watch.freed(use, now_);
  });
}

// Uses of sync objects that are destroyed; `only` >= 0: of that one.
template <class Watch>
void Pass<Watch>::use_syncs(Row unit, std::int32_t only, Watch& watch) {
  for (Row row : scene_.contract.rows_of(unit))
    for (const std::int32_t sync : scene_.lives.used_syncs(row)) {
      if (!destroyed_[sync] || (only >= 0 && only != sync)) continue;
      if (scene_.kin(scene_.contract.unit(scene_.lives.destroy(sync)), unit)) continue;
      ++wrong_;
      watch.destroyed(row, now_);
    }
}

template <class Watch>
void Pass<Watch>::end_lives(Row unit, Watch& watch) {
  for (Row row : scene_.contract.rows_of(unit)) {
    const std::int32_t alloc = scene_.lives.allocated(row), free = scene_.lives.freed(row);
    if (alloc >= 0) begun_[alloc] = 1;
    if (free >= 0) {
      ended_[free] = 1;
      for (const std::uint32_t slot : living_)
        if (scene_.lives.flags(flights_[slot].unit) & Lives::kUsesMemory) use_memory(flights_[slot], false, watch);
    }
    const std::int32_t sync = scene_.lives.destroyed(row);
    if (sync >= 0) {
      destroyed_[sync] = 1;
      for (const std::uint32_t slot : living_) use_syncs(flights_[slot].unit, sync, watch);
    }
  }
}

}  // namespace tapedelay
