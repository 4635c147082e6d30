#include "oracle.h"

#include <algorithm>

namespace tapedelay::threads {
namespace {

bool plain_write(Mode m) { return m == Mode::write || m == Mode::update || m == Mode::may_write; }
bool looks(Mode m) { return m == Mode::read || m == Mode::update || m == Mode::may_write; }

std::vector<Range> merged(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> found;
  for (const Range& r : ranges) {
    if (!found.empty() && r.begin <= found.back().end)
      found.back().end = std::max(found.back().end, r.end);
    else
      found.push_back(r);
  }
  return found;
}

std::int64_t size_of(const std::vector<Range>& ranges) {
  std::int64_t size = 0;
  for (const Range& r : ranges) size += r.end - r.begin;
  return size;
}

// What of `range` is in none of `others` (disjoint, ascending).
void without(Range range, const std::vector<Range>& others, std::vector<Range>& found) {
  for (const Range& o : others) {
    if (o.end <= range.begin) continue;
    if (o.begin >= range.end) break;
    if (range.begin < o.begin) found.push_back({range.begin, o.begin});
    range.begin = std::max(range.begin, o.end);
  }
  if (range.begin < range.end) found.push_back(range);
}

bool meets(const std::vector<Range>& in, const Range& r) {
  const auto it = std::partition_point(in.begin(), in.end(), [&](const Range& x) { return x.end <= r.begin; });
  return it != in.end() && it->begin < r.end;
}

// What a reduce adds to parts of words while it is in flight: there are no marks.
Word part_mark(std::int64_t access) { return mixed((Word(6) << 60) + Word(access)); }

}  // namespace

Oracle::Oracle(const Spec& spec) : spec_(spec), memory_(spec), family_(spec), ended_(std::size_t(spec.rows)) {
  const std::size_t n = std::size_t(spec.accesses());
  expected_.assign(n, 0);
  seen_.assign(n, 0);
  wrote_.assign(n, 0);
  folded_.assign(std::size_t(spec.rows), 0);
  last_.assign(spec.last_range.size(), 0);
  flags_.assign(n, 0);
  told_.assign(spec.destroys.item.size(), 0);
  find_tangles();
}

void Oracle::find_tangles() {
  std::vector<Range> writes, reduces;
  for (Row u = 0; u < spec_.rows; ++u) {
    if (spec_.unit[u] != u) continue;
    writes.clear();
    reduces.clear();
    each(u, [&](Row, std::int64_t a) {
      for (const Range& r : spec_.ranges_of(a)) {
        if (plain_write(spec_.mode[a])) writes.push_back(r);
        if (spec_.mode[a] == Mode::reduce) reduces.push_back(r);
      }
    });
    if (writes.empty() && reduces.empty()) continue;
    const std::vector<Range> once = merged(writes);
    std::vector<Range> all = once;
    all.insert(all.end(), reduces.begin(), reduces.end());
    all = merged(std::move(all));
    each(u, [&](Row, std::int64_t a) {
      for (const Range& r : spec_.ranges_of(a))
        if (looks(spec_.mode[a]) && meets(all, r)) flags_[a] |= kOwn;
    });
    if (size_of(once) == size_of(writes) &&
        std::none_of(reduces.begin(), reduces.end(), [&](const Range& r) { return meets(once, r); }))
      continue;
    Tangle& tangle = tangles_[u];
    tangle.writes = once;
    each(u, [&](Row, std::int64_t a) {
      if (spec_.mode[a] != Mode::reduce) return;
      tangle.reduces.emplace_back();
      for (const Range& r : spec_.ranges_of(a)) without(r, once, tangle.reduces.back());
    });
  }
}

const Oracle::Tangle* Oracle::tangle(Row unit) const {
  if (tangles_.empty()) return nullptr;
  const auto it = tangles_.find(unit);
  return it == tangles_.end() ? nullptr : &it->second;
}

// --- the reference order ---

void Oracle::reset() {
  for (std::size_t r = 0; r < spec_.root_id.size(); ++r)
    memory_.fill(spec_.root_range[r], initial_value(spec_.root_id[r]));
  family_.reset();
  for (auto& e : ended_) e.store(0, std::memory_order_relaxed);
  for (auto& f : flags_) f &= kOwn;
  std::fill(told_.begin(), told_.end(), 0);
}

// A unit with children reads as it starts and writes as it ends; nothing is in flight beside another.
void Oracle::play(Pass pass) {
  Found none;
  reset();
  for (const Row u : spec_.schedule) {
    if (u >= 0) start(u, {0, 0, true}, pass, none);
    if (u < 0 || !spec_.open(u)) end(u < 0 ? ~u : u, {0, 0, true}, pass, none);
  }
}

void Oracle::learn() {
  reads_ = std::int64_t(last_.size());
  play(Pass::learn);
  for (std::size_t i = 0; i < last_.size(); ++i) last_[i] = memory_.digest(spec_.last_range[i]);
  reference_ = wrote_;
}

void Oracle::explain(const See& read, const See& last) {
  const std::vector<Word> wrote = wrote_;
  explain_ = read;
  play(Pass::explain);
  explain_ = nullptr;
  wrote_ = wrote;
  for (std::size_t i = 0; i < last_.size(); ++i)
    last(std::int64_t(i), [&] {
      std::vector<Run> runs;
      memory_.look(spec_.last_range[i], runs);
      return runs;
    });
}

void Oracle::last_reads(const Moment& at, Found& found) {
  for (std::size_t i = 0; i < last_.size(); ++i) {
    if (memory_.digest(spec_.last_range[i]) == last_[i]) continue;
    Wrong wrong{-1, std::int64_t(i), Fault::stale, false, -1, at.ns, at.event, {}};
    memory_.look(spec_.last_range[i], wrong.saw);
    found.add(std::move(wrong));
  }
}

// --- start ---

void Oracle::start(Row unit, const Moment& at, Found& found) { start(unit, at, Pass::run, found); }

void Oracle::start(Row unit, const Moment& at, Pass pass, Found& found) {
  folded_[unit] = 0;
  if (pass == Pass::run && family_.any())
    for (const std::int64_t access : family_.start(unit).torn) torn(unit, access, false, at, found);
  for (const Row row : spec_.rows_of(unit)) read(row, at, pass, found);
  if (pass != Pass::run) return;
  use(unit, false, at, found);
  if (at.instant || spec_.open(unit)) return;
  mark(unit);
  // What the unit itself has marked is no news as it ends.
  each(unit, [&](Row, std::int64_t a) {
    if (looks(spec_.mode[a]) && (flags_[a] & kOwn)) seen_[a] = digest(a);
  });
}

Word Oracle::digest(std::int64_t access) const {
  Word sum = 0;
  for (const Range& r : spec_.ranges_of(access)) sum += memory_.digest(r);
  return sum;
}

std::vector<Run> Oracle::look(std::int64_t access, const Found& found) const {
  std::vector<Run> runs;
  if (!found.looks()) return runs;
  for (const Range& r : spec_.ranges_of(access)) memory_.look(r, runs);
  return runs;
}

void Oracle::read(Row row, const Moment& at, Pass pass, Found& found) {
  Word& folded = folded_[spec_.unit[row]];
  for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a) {
    if (!looks(spec_.mode[a])) continue;
    const Word sum = digest(a);
    seen_[a] = sum;
    folded = mixed(folded ^ sum) + 1;
    if (!judged(a)) continue;
    if (pass == Pass::learn) {
      expected_[a] = sum;
      ++reads_;
    } else if (pass == Pass::explain) {
      explain_(a, [&] { return look(a, found); });
    } else if (sum != expected_[a] && !(flags_[a] & kBadValue)) {
      flags_[a] |= kBadValue;
      found.add({row, a, Fault::stale, false, -1, at.ns, at.event, look(a, found)});
    }
  }
}

// A read and a write of what it reads were in flight at once.
void Oracle::torn(Row unit, std::int64_t access, bool late, const Moment& at, Found& found) {
  folded_[unit] = mixed(folded_[unit] ^ kTorn);
  if (!judged(access) || (flags_[access] & kBadValue)) return;
  flags_[access] |= kBadValue;
  Row row = unit;
  for (const Row r : spec_.rows_of(unit))
    if (spec_.access_first[r] <= access && access < spec_.access_first[r + 1]) row = r;
  found.add({row, access, Fault::torn, late, -1, at.ns, at.event, look(access, found)});
}

// Whether what the unit uses is there; `late`: whether it has gone since it started.
void Oracle::use(Row unit, bool late, const Moment& at, Found& found) {
  each(unit, [&](Row row, std::int64_t a) {
    Row by = -1;
    for (const Row other : spec_.frees.of(a))
      if (ended(other)) by = other;
    bool gone = by >= 0;
    if (!late)
      for (const Row other : spec_.allocs.of(a)) gone = gone || !ended(other);
    if (!gone || (flags_[a] & kBadMemory)) return;
    flags_[a] |= kBadMemory;
    found.add({row, a, Fault::freed, late, by, at.ns, at.event, {}});
  });
  for (const Row row : spec_.rows_of(unit)) {
    const Span<Row> destroys = spec_.destroys.of(row);
    for (const Row& other : destroys) {
      std::uint8_t& told = told_[std::size_t(&other - spec_.destroys.item.data())];
      if (told || !ended(other)) continue;
      told = 1;
      found.add({row, -1, Fault::destroyed, late, other, at.ns, at.event, {}});
    }
  }
}

void Oracle::mark(Row unit) {
  const Word value = progress_value(unit);
  const auto write = [&](const Range& range) {
    memory_.each(
        range,
        [&](std::int64_t w) { memory_.change(w, [&](Word old) { return marks::start_write(old, value); }); },
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t b = begin; b < end; ++b) memory_.set_byte(b, part_of(value, b));
        });
  };
  const auto reduce = [&](const Range& range, std::int64_t access) {
    memory_.each(
        range, [&](std::int64_t w) { memory_.change(w, marks::start_reduce); },
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t b = begin; b < end; ++b) memory_.xor_byte(b, part_of(part_mark(access), b));
        });
  };
  const Tangle* const tangled = tangle(unit);
  if (tangled)
    for (const Range& r : tangled->writes) write(r);
  std::size_t nth = 0;
  each(unit, [&](Row, std::int64_t a) {
    if (plain_write(spec_.mode[a]) && !tangled)
      for (const Range& r : spec_.ranges_of(a)) write(r);
    if (spec_.mode[a] != Mode::reduce) return;
    if (tangled)
      for (const Range& r : tangled->reduces[nth++]) reduce(r, a);
    else
      for (const Range& r : spec_.ranges_of(a)) reduce(r, a);
  });
}

// --- end ---

void Oracle::end(Row unit, const Moment& at, Found& found) { end(unit, at, Pass::run, found); }

void Oracle::end(Row unit, const Moment& at, Pass pass, Found& found) {
  // What has children has marked nothing.
  const bool instant = at.instant || spec_.open(unit);
  Family::Meeting met;
  if (pass == Pass::run) {
    use(unit, true, at, found);
    if (!instant) again(unit, at, found);
    if (family_.any()) met = family_.end(unit);
    for (const std::int64_t access : met.torn) torn(unit, access, true, at, found);
  }
  each(unit, [&](Row row, std::int64_t a) {
    if (writes(spec_.mode[a])) wrote_[a] = output_value(spec_.op[row], a - spec_.access_first[row], folded_[unit]);
  });
  for (const Row row : spec_.rows_of(unit))
    if (spec_.copies[row]) copy(row, unit, instant, at, found);
  write(unit, instant);
  const Word bad = torn_value(unit);
  for (const Range& piece : met.pieces)
    memory_.each(
        piece,
        [&](std::int64_t w) { memory_.change(w, [&](Word old) { return marks::with_value(old, bad, true); }); },
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t b = begin; b < end; ++b) memory_.set_byte(b, part_of(bad, b));
        });
  ended_[unit].store(1, std::memory_order_release);
}

// Reads once more: what has changed since the start was written meanwhile.
void Oracle::again(Row unit, const Moment& at, Found& found) {
  each(unit, [&](Row, std::int64_t a) {
    if (looks(spec_.mode[a]) && digest(a) != seen_[a]) torn(unit, a, true, at, found);
  });
}

// Whether nobody else is or was at these bytes since the unit marked them.
bool Oracle::clean(Range range, Row unit, bool instant) const {
  const Word mine = progress_value(unit);
  bool found = true;
  memory_.each(
      range,
      [&](std::int64_t w) {
        const Word word = memory_.get(w);
        found = found && (instant ? !marks::busy(word) : marks::undisturbed(word, mine));
      },
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t b = begin; b < end && !instant; ++b) found = found && memory_.byte(b) == part_of(mine, b);
      });
  return found;
}

// Moves the bytes of a copy, its first read to its first write and so on, and compares what has arrived.
void Oracle::copy(Row row, Row unit, bool instant, const Moment& at, Found& found) {
  if (tangle(unit)) return;
  const Word mine = progress_value(unit);
  const auto move = [&](std::int64_t from, std::int64_t to, std::int64_t size) {
    if (!clean({to, to + size}, unit, instant)) return true;
    memory_.copy(to, from, size);
    const bool apart = to + size <= from || from + size <= to;
    const bool same = !apart || memory_.same(to, from, size);
    // It may have come with marks of others; until it is stamped it is the op's own.
    memory_.each(
        {to, to + size}, [&](std::int64_t w) { memory_.set(w, mine | (instant ? 0 : kWriter)); },
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t b = begin; b < end; ++b) memory_.set_byte(b, part_of(mine, b));
        });
    return same;
  };
  std::int64_t from = spec_.access_first[row], to = from;
  const std::int64_t last = spec_.access_first[row + 1];
  for (;; ++from, ++to) {
    while (from < last && spec_.mode[from] != Mode::read) ++from;
    while (to < last && spec_.mode[to] != Mode::write) ++to;
    if (from == last || to == last) return;
    const Span<Range> sources = spec_.ranges_of(from), targets = spec_.ranges_of(to);
    bool same = true;
    std::int64_t done_from = 0, done_to = 0;  // bytes of the ranges at i and j
    for (std::size_t i = 0, j = 0; i < sources.size() && j < targets.size();) {
      const std::int64_t s = sources[i].begin + done_from, t = targets[j].begin + done_to;
      const std::int64_t size = std::min(sources[i].end - s, targets[j].end - t);
      same = move(s, t, size) && same;
      done_from = s + size == sources[i].end ? (++i, 0) : done_from + size;
      done_to = t + size == targets[j].end ? (++j, 0) : done_to + size;
    }
    if (!same && !instant) torn(unit, from, true, at, found);
  }
}

void Oracle::write(Row unit, bool instant) {
  const Word mine = progress_value(unit), bad = torn_value(unit);
  std::vector<std::int64_t> torn_bytes;  // of words in parts
  // Puts `value` where nobody else was at it; `release`: the unit's mark goes.
  const auto put = [&](const Range& range, Word value, bool release) {
    memory_.each(
        range,
        [&](std::int64_t w) {
          memory_.change(w, [&](Word old) {
            if (instant) return marks::instant_write(old, value, bad);
            return release ? marks::end_write(old, value, bad, mine) : marks::write_again(old, value, bad);
          });
        },
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t b = begin; b < end; ++b) {
            if (release && memory_.byte(b) != part_of(mine, b)) torn_bytes.push_back(b);
            memory_.set_byte(b, part_of(value, b));
          }
        });
  };
  const auto add = [&](const Range& range, Word value, std::int64_t access, bool release) {
    memory_.each(
        range,
        [&](std::int64_t w) {
          memory_.change(w, [&](Word old) {
            return release ? marks::end_reduce(old, value) : marks::instant_reduce(old, value);
          });
        },
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t b = begin; b < end; ++b) {
            const std::uint8_t mark = release ? part_of(part_mark(access), b) : 0;
            memory_.xor_byte(b, part_of(value, b) ^ mark);
          }
        });
  };
  const Tangle* const tangled = instant ? nullptr : tangle(unit);
  if (tangled)
    for (const Range& r : tangled->writes) put(r, mine, true);
  std::size_t nth = 0;
  each(unit, [&](Row, std::int64_t a) {
    if (plain_write(spec_.mode[a]))
      for (const Range& r : spec_.ranges_of(a)) put(r, wrote_[a], !instant && !tangled);
    if (spec_.mode[a] != Mode::reduce) return;
    if (!tangled) {
      for (const Range& r : spec_.ranges_of(a)) add(r, wrote_[a], a, !instant);
      return;
    }
    const std::vector<Range>& alone = tangled->reduces[nth++];
    for (const Range& r : alone) add(r, wrote_[a], a, true);
    for (const Range& r : spec_.ranges_of(a)) {
      std::vector<Range> both;
      without(r, alone, both);
      for (const Range& b : both) add(b, wrote_[a], a, false);
    }
  });
  for (const std::int64_t b : torn_bytes) memory_.set_byte(b, part_of(bad, b));
}

}  // namespace tapedelay::threads
