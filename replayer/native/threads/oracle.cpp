#include "oracle.h"

#include <algorithm>
#include <unordered_set>

namespace tapedelay::threads {
namespace {

bool plain_write(Mode m) { return m == Mode::write || m == Mode::update || m == Mode::may_write; }
bool looks(Mode m) { return m == Mode::read || m == Mode::update || m == Mode::may_write; }

bool overlap(const Range& a, const Range& b) { return a.begin < b.end && b.begin < a.end; }

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

// What a reduce adds to parts of words while it is in flight: there are no marks.
Word part_mark(std::int64_t access) { return mixed((Word(6) << 60) + Word(access)); }

}  // namespace

Oracle::Oracle(const Spec& spec)
    : spec_(spec), memory_(spec), ended_(std::size_t(spec.rows)) {
  const std::size_t n = std::size_t(spec.accesses());
  expected_.assign(n, 0);
  seen_.assign(n, 0);
  wrote_.assign(n, 0);
  folded_.assign(std::size_t(spec.rows), 0);
  last_.assign(spec.last_range.size(), 0);
  flags_.assign(n, 0);
  told_.assign(spec.destroys.item.size(), 0);
  prepare();
}

// --- what units write, by themselves and with what they are part of ---

void Oracle::prepare() {
  std::vector<Range> writes, reduces;
  std::vector<std::pair<Range, Row>> open;  // what units with children write, each byte of one once
  for (Row u = 0; u < spec_.rows; ++u) {
    if (spec_.unit[u] != u) continue;
    writes.clear();
    reduces.clear();
    for (const Row row : spec_.rows_of(u))
      for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a) {
        for (const Range& r : spec_.ranges_of(a)) {
          if (plain_write(spec_.mode[a])) writes.push_back(r);
          if (spec_.mode[a] == Mode::reduce) reduces.push_back(r);
        }
      }
    if (writes.empty() && reduces.empty()) continue;
    std::int64_t size = 0, kept = 0;
    for (const Range& r : writes) size += r.end - r.begin;
    std::vector<Range> once = merged(writes);
    for (const Range& r : once) kept += r.end - r.begin;
    bool tangled = kept != size;
    std::vector<Range> all = once;
    all.insert(all.end(), reduces.begin(), reduces.end());
    all = merged(std::move(all));
    const auto meets = [](const std::vector<Range>& in, const Range& r) {
      const auto it = std::partition_point(in.begin(), in.end(), [&](const Range& x) { return x.end <= r.begin; });
      return it != in.end() && overlap(*it, r);
    };
    for (const Range& r : reduces) tangled = tangled || meets(once, r);
    for (const Row row : spec_.rows_of(u))
      for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a)
        if (looks(spec_.mode[a]))
          for (const Range& r : spec_.ranges_of(a)) flags_[a] |= meets(all, r) ? kOwn : 0;
    if (spec_.open(u))
      for (const Range& r : once) open.push_back({r, u});
    if (!tangled) continue;
    Tangle& tangle = tangles_[u];
    tangle.writes = once;
    for (const Row row : spec_.rows_of(u))
      for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a)
        if (spec_.mode[a] == Mode::reduce) {
          tangle.reduces.emplace_back();
          for (const Range& r : spec_.ranges_of(a)) without(r, once, tangle.reduces.back());
        }
  }
  for (Row u = 0; u < spec_.rows; ++u)
    if (spec_.open(u))
      for (const Row row : spec_.rows_of(u))
        for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a)
          if (judged(a)) before_[a];
  if (open.empty()) return;

  // Whole words only: parts of words have no marks.
  for (auto& [r, u] : open) r = {(r.begin + 7) & ~std::int64_t(7), r.end & ~std::int64_t(7)};
  std::unordered_map<Row, std::vector<Range>> of;
  for (const auto& [r, u] : open)
    if (r.begin < r.end) of[u].push_back(r);
  for (Row u = 0; u < spec_.rows; ++u) {
    if (spec_.unit[u] != u || spec_.parents.of(u).empty()) continue;
    std::vector<Row> above(spec_.parents.of(u).begin(), spec_.parents.of(u).end());
    std::vector<std::pair<std::int64_t, int>> borders;
    for (std::size_t i = 0; i < above.size(); ++i) {
      for (const Row p : spec_.parents.of(above[i]))
        if (std::find(above.begin(), above.end(), p) == above.end()) above.push_back(p);
      const auto it = of.find(above[i]);
      if (it == of.end()) continue;
      std::vector<Range> mine;
      for (const Row row : spec_.rows_of(u))
        for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a)
          for (const Range& r : spec_.ranges_of(a)) mine.push_back({r.begin & ~std::int64_t(7), (r.end + 7) & ~std::int64_t(7)});
      for (const Range& m : merged(std::move(mine)))
        for (auto o = std::partition_point(it->second.begin(), it->second.end(),
                                           [&](const Range& x) { return x.end <= m.begin; });
             o != it->second.end() && o->begin < m.end; ++o) {
          borders.push_back({std::max(o->begin, m.begin), 1});
          borders.push_back({std::min(o->end, m.end), -1});
        }
    }
    if (borders.empty()) continue;
    std::sort(borders.begin(), borders.end());
    std::vector<Cover>& cover = covers_[u];
    Word depth = 0;
    for (std::size_t i = 0; i < borders.size(); ++i) {
      depth += Word(borders[i].second);
      if (depth && i + 1 < borders.size() && borders[i].first < borders[i + 1].first)
        cover.push_back({borders[i].first, borders[i + 1].first, depth});
    }
  }
}

Span<Cover> Oracle::cover(Row unit) const {
  if (covers_.empty()) return {};
  const auto it = covers_.find(unit);
  return it == covers_.end() ? Span<Cover>{} : Span<Cover>(it->second);
}

// --- the reference order ---

void Oracle::reset() {
  for (std::size_t r = 0; r < spec_.root_id.size(); ++r) memory_.fill(spec_.root_range[r], initial_value(spec_.root_id[r]));
  for (auto& e : ended_) e.store(0, std::memory_order_relaxed);
  for (auto& f : flags_) f &= kOwn;
  std::fill(told_.begin(), told_.end(), 0);
}

void Oracle::learn() {
  std::vector<Wrong> none;
  reset();
  reads_ = std::int64_t(last_.size());
  for (const Row u : spec_.schedule) {
    if (u >= 0) start(u, {}, Pass::learn, none);
    if (u < 0 || !spec_.open(u)) end(u < 0 ? ~u : u, {}, Pass::learn, none);
  }
  std::vector<Run> runs;
  for (std::size_t i = 0; i < last_.size(); ++i) {
    runs.clear();
    last_[i] = memory_.digest(spec_.last_range[i], {}, runs);
  }
  reference_ = wrote_;
}

void Oracle::explain(const std::function<void(std::int64_t, const std::vector<Run>&)>& read,
                     const std::function<void(std::int64_t, const std::vector<Run>&)>& last) {
  std::vector<Wrong> none;
  const std::vector<Word> wrote = wrote_;
  reset();
  explain_ = read;
  for (const Row u : spec_.schedule) {
    if (u >= 0) start(u, {}, Pass::explain, none);
    if (u < 0 || !spec_.open(u)) end(u < 0 ? ~u : u, {}, Pass::explain, none);
  }
  explain_ = nullptr;
  std::vector<Run> runs;
  for (std::size_t i = 0; i < last_.size(); ++i) {
    runs.clear();
    memory_.digest(spec_.last_range[i], {}, runs);
    last(std::int64_t(i), runs);
  }
  wrote_ = wrote;
}

void Oracle::last_reads(const Moment& at, std::vector<Wrong>& found) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < last_.size(); ++i) {
    runs.clear();
    if (memory_.digest(spec_.last_range[i], {}, runs) != last_[i])
      found.push_back({-1, std::int64_t(i), Fault::stale, false, -1, at.ns, at.event, runs});
  }
}

// --- start ---

void Oracle::start(Row unit, const Moment& at, std::vector<Wrong>& found) { start(unit, at, Pass::run, found); }

void Oracle::start(Row unit, const Moment& at, Pass pass, std::vector<Wrong>& found) {
  const Span<Row> rows = spec_.rows_of(unit);
  folded_[unit] = 0;
  for (const Row row : rows) read(row, at, pass, found);
  if (pass == Pass::run) use(unit, false, at, found);
  if (pass != Pass::run || at.instant) return;
  mark(unit);
  // What the unit itself has marked is no news as it ends.
  std::vector<Run> runs;
  for (const Row row : rows)
    for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a) {
      if (looks(spec_.mode[a]) && (flags_[a] & kOwn)) {
        runs.clear();
        seen_[a] = digest(a, unit, runs);
      }
      if (judged(a) && spec_.open(unit)) {
        std::vector<Run>& before = before_.find(a)->second;
        before.clear();
        digest(a, unit, before);
      }
    }
}

Word Oracle::digest(std::int64_t access, Row unit, std::vector<Run>& runs) const {
  const Span<Cover> covered = cover(unit);
  Word sum = 0;
  for (const Range& r : spec_.ranges_of(access)) sum += memory_.digest(r, covered, runs);
  return sum;
}

void Oracle::read(Row row, const Moment& at, Pass pass, std::vector<Wrong>& found) {
  static thread_local std::vector<Run> runs;
  const Row unit = spec_.unit[row];
  for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a) {
    if (!looks(spec_.mode[a])) continue;
    runs.clear();
    Word sum = 0;
    const Span<Cover> covered = pass == Pass::run ? cover(unit) : Span<Cover>{};
    for (const Range& r : spec_.ranges_of(a)) sum += memory_.digest(r, covered, runs);
    seen_[a] = sum;
    folded_[unit] = mixed(folded_[unit] ^ sum) + 1;
    if (!judged(a)) continue;
    if (pass == Pass::learn) {
      expected_[a] = sum;
      ++reads_;
    } else if (pass == Pass::explain) {
      explain_(a, runs);
    } else if (sum != expected_[a]) {
      flags_[a] |= kBadValue;
      found.push_back({row, a, Fault::stale, false, -1, at.ns, at.event, runs});
    }
  }
}

// Whether what the unit uses is there; `late`: whether it has gone since it started.
void Oracle::use(Row unit, bool late, const Moment& at, std::vector<Wrong>& found) {
  for (const Row row : spec_.rows_of(unit)) {
    for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a) {
      Row by = -1;
      for (const Row other : spec_.frees.of(a))
        if (ended(other)) by = other;
      bool gone = by >= 0;
      if (!late)
        for (const Row other : spec_.allocs.of(a)) gone = gone || !ended(other);
      if (!gone || (flags_[a] & kBadMemory)) continue;
      flags_[a] |= kBadMemory;
      found.push_back({row, a, Fault::freed, late, by, at.ns, at.event, {}});
    }
    const Span<Row> destroys = spec_.destroys.of(row);
    for (const Row& other : destroys) {
      std::uint8_t& told = told_[std::size_t(&other - spec_.destroys.item.data())];
      if (told || !ended(other)) continue;
      told = 1;
      found.push_back({row, -1, Fault::destroyed, late, other, at.ns, at.event, {}});
    }
  }
}

Word Oracle::hidden(Span<Cover> covered, std::int64_t w) {
  for (const Cover& c : covered)
    if (c.begin <= w * 8 && w * 8 < c.end) return c.hidden;
  return 0;
}

void Oracle::mark(Row unit) {
  const Span<Cover> covered = cover(unit);
  const bool open = spec_.open(unit);
  const Word value = progress_value(unit);
  const auto write = [&](const Range& range) {
    memory_.each(
        range,
        [&](std::int64_t w) {
          const Word own = hidden(covered, w);
          memory_.change(w, [&](Word old) {
            return open ? marks::start_open(old, own) : marks::start_write(old, value, own);
          });
        },
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t b = begin; b < end && !open; ++b) memory_.set_byte(b, part_of(value, b));
        });
  };
  const auto reduce = [&](const Range& range, std::int64_t access) {
    memory_.each(
        range,
        [&](std::int64_t w) {
          const Word own = hidden(covered, w);
          memory_.change(w, [&](Word old) { return marks::start_reduce(old, own); });
        },
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t b = begin; b < end; ++b) memory_.xor_byte(b, part_of(part_mark(access), b));
        });
  };
  const auto tangle = tangles_.empty() ? tangles_.end() : tangles_.find(unit);
  const bool tangled = tangle != tangles_.end();
  if (tangled)
    for (const Range& r : tangle->second.writes) write(r);
  std::size_t at = 0;
  for (const Row row : spec_.rows_of(unit))
    for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a) {
      if (plain_write(spec_.mode[a]) && !tangled)
        for (const Range& r : spec_.ranges_of(a)) write(r);
      if (spec_.mode[a] != Mode::reduce) continue;
      if (tangled)
        for (const Range& r : tangle->second.reduces[at++]) reduce(r, a);
      else
        for (const Range& r : spec_.ranges_of(a)) reduce(r, a);
    }
}

// --- end ---

void Oracle::end(Row unit, const Moment& at, std::vector<Wrong>& found) { end(unit, at, Pass::run, found); }

void Oracle::end(Row unit, const Moment& at, Pass pass, std::vector<Wrong>& found) {
  // In the reference order nothing is in flight beside anything.
  const bool instant = at.instant || pass != Pass::run;
  if (pass == Pass::run) {
    use(unit, true, at, found);
    if (!at.instant && again(unit, at, found)) folded_[unit] = mixed(folded_[unit] ^ kTorn);
  }
  for (const Row row : spec_.rows_of(unit))
    for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a)
      if (writes(spec_.mode[a]))
        wrote_[a] = output_value(spec_.op[row], a - spec_.access_first[row], folded_[unit]);
  for (const Row row : spec_.rows_of(unit))
    if (spec_.copies[row]) copy(row, unit, instant, at, found);
  write(unit, instant, pass == Pass::run ? cover(unit) : Span<Cover>{});
  ended_[unit].store(1, std::memory_order_release);
}

// Reads once more: what has changed since the start was written meanwhile.
bool Oracle::again(Row unit, const Moment& at, std::vector<Wrong>& found) {
  static thread_local std::vector<Run> runs;
  bool torn = false;
  for (const Row row : spec_.rows_of(unit))
    for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a) {
      if (!looks(spec_.mode[a]) || (spec_.open(unit) && !judged(a))) continue;
      runs.clear();
      if (digest(a, unit, runs) == seen_[a]) continue;
      if (spec_.open(unit) && by_kin(unit, a, before_.find(a)->second, runs)) continue;
      torn = true;
      if (!judged(a) || (flags_[a] & kBadValue)) continue;
      flags_[a] |= kBadValue;
      found.push_back({row, a, Fault::torn, true, -1, at.ns, at.event, runs});
    }
  return torn;
}

std::vector<Row> Oracle::below(Row unit) const {
  std::vector<Row> found(spec_.children.of(unit).begin(), spec_.children.of(unit).end());
  std::unordered_set<Row> known(found.begin(), found.end());
  for (std::size_t i = 0; i < found.size(); ++i)
    for (const Row child : spec_.children.of(found[i]))
      if (known.insert(child).second) found.push_back(child);
  return found;
}

// Whether all that has changed was written by parts of the unit. They have ended.
bool Oracle::by_kin(Row unit, std::int64_t access, const std::vector<Run>& before, const std::vector<Run>& now) const {
  std::unordered_set<Word> values;
  std::vector<Range> reduced;
  const Span<Range> mine = spec_.ranges_of(access);
  for (const Row kin : below(unit))
    for (const Row row : spec_.rows_of(kin))
      for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a) {
        if (plain_write(spec_.mode[a])) values.insert(wrote_[a]);
        if (writes(spec_.mode[a]))
          for (const Range& r : spec_.ranges_of(a))
            for (const Range& m : mine)
              // Of parts of words, and of what is added up, there is no value to know them by.
              if (overlap(r, m) && (spec_.mode[a] == Mode::reduce || ((r.begin | r.end | m.begin | m.end) & 7)))
                reduced.push_back({r.begin & ~std::int64_t(7), (r.end + 7) & ~std::int64_t(7)});
      }
  reduced = merged(std::move(reduced));
  std::size_t i = 0, j = 0;
  while (i < before.size() && j < now.size()) {
    const Run &x = before[i], &y = now[j];
    const std::int64_t begin = std::max(x.begin, y.begin), end = std::min(x.end, y.end);
    if (begin < end && x.value != y.value) {
      std::vector<Range> rest;
      without({begin, end}, reduced, rest);
      if (!rest.empty() && ((y.value & kTorn) || !values.count(y.value & ~kMarks))) return false;
    }
    if (x.end <= y.end) ++i;
    if (y.end <= x.end) ++j;
  }
  return true;
}

// Whether nobody else is or was at these bytes since the unit marked them.
bool Oracle::clean(Range range, Row unit, bool instant) const {
  if (!cover(unit).empty()) return false;  // part of an op that writes as well: word by word
  const Word mine = progress_value(unit);
  bool found = true;
  memory_.each(
      range,
      [&](std::int64_t w) {
        const Word word = memory_.get(w);
        found = found && (instant ? !marks::busy(word, 0) : marks::undisturbed(word, mine, 0));
      },
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t b = begin; b < end && !instant; ++b) found = found && memory_.byte(b) == part_of(mine, b);
      });
  return found;
}

void Oracle::copy(Row row, Row unit, bool instant, const Moment& at, std::vector<Wrong>& found) {
  if (spec_.open(unit) || tangles_.count(unit)) return;
  std::int64_t from = spec_.access_first[row], to = from;
  const std::int64_t last = spec_.access_first[row + 1];
  for (;; ++from, ++to) {
    while (from < last && spec_.mode[from] != Mode::read) ++from;
    while (to < last && spec_.mode[to] != Mode::write) ++to;
    if (from == last || to == last) return;
    const Span<Range> sources = spec_.ranges_of(from), targets = spec_.ranges_of(to);
    std::size_t i = 0, j = 0;
    Range s = sources[0], t = targets[0];
    bool same = true;
    for (;;) {
      const std::int64_t size = std::min(s.end - s.begin, t.end - t.begin);
      if (clean({t.begin, t.begin + size}, unit, instant)) {
        memory_.copy(t.begin, s.begin, size);
        const bool apart = t.begin + size <= s.begin || s.begin + size <= t.begin;
        same = same && (!apart || memory_.same(t.begin, s.begin, size));
        // What was copied may carry marks of others; until it is stamped it is the unit's own.
        const Word mine = progress_value(unit);
        memory_.each(
            {t.begin, t.begin + size}, [&](std::int64_t w) { memory_.set(w, mine | (instant ? 0 : kWriter)); },
            [&](std::int64_t begin, std::int64_t end) {
              for (std::int64_t b = begin; b < end; ++b) memory_.set_byte(b, part_of(mine, b));
            });
      }
      s.begin += size;
      t.begin += size;
      if (s.begin == s.end) {
        if (++i == sources.size()) break;
        s = sources[i];
      }
      if (t.begin == t.end) {
        if (++j == targets.size()) break;
        t = targets[j];
      }
    }
    if (!same && !instant && !(flags_[from] & kBadValue)) {
      flags_[from] |= kBadValue;
      found.push_back({row, from, Fault::torn, true, -1, at.ns, at.event, {}});
    }
  }
}

void Oracle::write(Row unit, bool instant, Span<Cover> covered) {
  const bool open = spec_.open(unit);
  const Word mine = progress_value(unit), torn = torn_value(unit);
  // Puts `value` where nobody else was at it; `release`: the unit's mark goes.
  const auto put = [&](const Range& range, Word value, bool release) {
    memory_.each(
        range,
        [&](std::int64_t w) {
          const Word own = hidden(covered, w);
          memory_.change(w, [&](Word old) {
            if (instant) return marks::instant_write(old, value, torn, own);
            if (!release) return marks::write_again(old, value, torn, own);
            return open ? marks::end_open(old, value, torn, own) : marks::end_write(old, value, torn, mine, own);
          });
        },
        [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t b = begin; b < end; ++b) {
            const bool alone = !release || open || memory_.byte(b) == part_of(mine, b);
            memory_.set_byte(b, part_of(alone ? value : torn, b));
          }
        });
  };
  const auto add = [&](const Range& range, Word value, std::int64_t access, bool release) {
    memory_.each(
        range,
        [&](std::int64_t w) {
          const Word own = hidden(covered, w);
          memory_.change(w, [&](Word old) {
            return release ? marks::end_reduce(old, value, own) : marks::instant_reduce(old, value, own);
          });
        },
        [&](std::int64_t begin, std::int64_t end) {
          const Word more = release ? mixed(part_mark(access)) : 0;
          for (std::int64_t b = begin; b < end; ++b)
            memory_.xor_byte(b, std::uint8_t((mixed(value) ^ more) >> (8 * (b & 7))));
        });
  };
  const auto tangle = tangles_.empty() ? tangles_.end() : tangles_.find(unit);
  const bool tangled = tangle != tangles_.end();
  if (tangled && !instant)
    for (const Range& r : tangle->second.writes) put(r, mine, true);
  std::size_t at = 0;
  for (const Row row : spec_.rows_of(unit))
    for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a) {
      if (plain_write(spec_.mode[a]))
        for (const Range& r : spec_.ranges_of(a)) put(r, wrote_[a], !instant && !tangled);
      if (spec_.mode[a] != Mode::reduce) continue;
      if (!tangled || instant) {
        for (const Range& r : spec_.ranges_of(a)) add(r, wrote_[a], a, !instant);
        continue;
      }
      const std::vector<Range>& alone = tangle->second.reduces[at++];
      for (const Range& r : alone) add(r, wrote_[a], a, true);
      for (const Range& r : spec_.ranges_of(a)) {
        std::vector<Range> both;
        without(r, alone, both);
        for (const Range& b : both) add(b, wrote_[a], a, false);
      }
    }
}

}  // namespace tapedelay::threads
