// Times and values of the virtual backend against plain ones: relaxation until nothing changes, a value for every
// byte, every pair of accesses compared.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "cases.h"
#include "core_tape.h"
#include "made.h"
#include "virtual/values.h"

namespace tapedelay {
namespace {

constexpr std::int64_t kLong = std::int64_t{1} << 40;

struct Plain {
  std::vector<std::int64_t> issue, start, done, end;
};

std::vector<Delay> some_delays(Made& made, Row rows) {
  std::map<std::pair<Row, int>, std::int64_t> found;
  for (std::int32_t i = 0; i < made.number(12); ++i) found[{made.number(rows), made.number(3)}] = made.number(3000);
  std::vector<Delay> delays;
  for (const auto& [at, ns] : found) delays.push_back({at.first, Place(at.second), ns});
  return delays;
}

// Starts of units by the definition. Nothing on a host thread has parts or members here, so a thread's item follows
// the end of the own item before it, else the issue of the item before it.
Plain relaxed(const CoreTape& tape, const std::vector<std::int64_t>& gap, const std::vector<std::int64_t>& take,
              const std::vector<Delay>& delays) {
  const Contract& c = tape.contract;
  const OpColumns& ops = tape.columns.ops;
  const Row rows = c.rows();
  std::vector<std::int64_t> late[3];
  for (auto& l : late) l.assign(std::size_t(rows), 0);
  for (const Delay& d : delays) late[int(d.place)][d.row] = d.ns;
  std::vector<std::uint8_t> runs(std::size_t(rows), 0);
  std::map<Row, std::vector<Row>> any;
  std::vector<std::uint8_t> ended(std::size_t(rows), 0);
  for (const std::int32_t code : tape.order().schedule) {
    if (code >= 0) {
      runs[code] = 1;
      for (Row record : c.any_of(code))
        if (ended[record]) any[code].push_back(record);
    }
    if (code < 0 || !c.has_children(code)) ended[code < 0 ? ~code : code] = 1;
  }
  Plain p;
  p.issue.assign(std::size_t(rows), 0);
  p.start = p.done = p.end = p.issue;
  for (bool changed = true; changed;) {
    changed = false;
    std::vector<std::int64_t> clock(std::size_t(tape.columns.queues.rows), 0);
    for (Row row = 0; row < rows; ++row) {
      const std::int32_t queue = ops.queue.data[row], issuer = ops.issuer.get(row);
      const std::int64_t before = issuer >= 0 ? clock[issuer] : 0;
      const std::int64_t at = before + gap[row] + late[0][row];
      changed = changed || p.issue[row] != at;
      p.issue[row] = at;
      if (issuer >= 0) clock[issuer] = at;
      if (queue == issuer) clock[issuer] = runs[c.unit(row)] ? std::max(at, p.end[c.unit(row)]) : kLong;
    }
    for (Row unit = 0; unit < rows; ++unit) {
      if (!c.is_unit(unit) || !runs[unit]) continue;
      std::int64_t ready = 0, start = 0, longest = 0, tail = 0;
      for (Row s : c.sources(unit)) ready = std::max(ready, p.end[s]);
      for (Row s : c.parents(unit)) ready = std::max(ready, p.start[s]);
      if (any.count(unit) != 0) {
        std::int64_t first = kLong;
        for (Row r : any[unit]) first = std::min(first, p.end[r]);
        ready = std::max(ready, first);
      }
      const Span<Row> span = c.rows_of(unit);
      const std::vector<Row> members(span.begin(), span.end());
      for (Row row : members) {
        start = std::max(start, std::max(ready, p.issue[row]) + late[1][row]);
        longest = std::max(longest, take[row]);
        tail = std::max(tail, late[2][row]);
      }
      std::int64_t done = start + longest;
      if (c.has_children(unit)) {
        done = start;
        for (Row child : c.children(unit)) done = std::max(done, runs[child] ? p.end[child] : kLong);
      }
      if (p.start[unit] != start || p.done[unit] != done) changed = true;
      p.start[unit] = start, p.done[unit] = done, p.end[unit] = done + tail;
    }
  }
  return p;
}

// Bytes of one access of one op.
struct Touched {
  Row row;
  std::uint32_t seq;
  Mode mode;
  std::int32_t root;
  std::vector<std::int64_t> bytes;
};

struct Bytewise {
  const CoreTape& tape;
  std::map<Row, std::vector<Touched>> of;  // by unit
  std::map<std::int32_t, std::map<std::int64_t, std::uint64_t>> memory;

  explicit Bytewise(const CoreTape& t) : tape(t) {
    Ranges ranges(tape.contract, tape.buffers);
    for (Row row = 0; row < tape.contract.rows(); ++row) {
      std::uint32_t seq = 0;
      for (const Access& a : ranges.of(row)) {
        Touched to{row, seq++, a.mode, a.root, {}};
        const auto add = [&](std::int64_t b, std::int64_t e) {
          for (; b < e; ++b) to.bytes.push_back(b), memory[a.root][b] = 0;
        };
        if (a.spans.empty()) add(a.begin, a.end);
        for (const Bytes b : a.spans) add(b.begin, b.end);
        of[tape.contract.unit(row)].push_back(to);
      }
    }
  }

  bool kin(Row a, Row b) const {
    return a == b || tape.contract.is_ancestor(a, b) || tape.contract.is_ancestor(b, a);
  }
  static bool reads(Mode m) { return m == Mode::read || m == Mode::update || m == Mode::may_write; }
  static bool judged(Mode m) { return m == Mode::read || m == Mode::update; }

  struct Result {
    std::map<std::pair<Row, std::uint32_t>, std::uint64_t> seen;
    std::map<std::int32_t, std::uint64_t> last;
    std::set<std::pair<Row, std::uint32_t>> torn;
  };

  // Plays events; `at` has the place of each start and end, or is empty for the reference.
  Result play(const std::vector<std::int32_t>& events, const std::map<std::int32_t, std::size_t>& at) {
    Result r;
    std::map<Row, std::uint64_t> digest;
    const auto place = [&](std::int32_t code) {
      const auto it = at.find(code);
      return it == at.end() ? events.size() : it->second;
    };
    const auto meet = [&](Row a, Row b) {
      return !at.empty() && !kin(a, b) && place(a) < place(~b) && place(b) < place(~a) && at.count(a) && at.count(b);
    };
    for (auto& [root, bytes] : memory)
      for (auto& [b, value] : bytes) value = initial(root);
    for (const auto& [unit, touches] : of)
      for (const auto& [other, others] : of) {
        if (!meet(unit, other)) continue;
        for (const Touched& t : touches)
          for (const Touched& o : others)
            if (reads(t.mode) && writes(o.mode) && common(t, o)) r.torn.insert({t.row, t.seq});
      }
    for (const std::int32_t code : events) {
      const Row unit = code < 0 ? ~code : code;
      if (code >= 0) {
        digest[unit] = kNothingRead;
        for (const Touched& t : of[unit]) {
          if (!reads(t.mode)) continue;
          if (!written(t.root)) continue;
          std::uint64_t sum = 0;
          for (std::int64_t b : t.bytes) sum += memory[t.root][b] * (weight(b + 1) - weight(b));
          r.seen[{t.row, t.seq}] = sum;
          digest[unit] = fold(digest[unit], sum);
        }
        continue;
      }
      bool broken = false;
      for (const Touched& t : of[unit]) broken = broken || r.torn.count({t.row, t.seq}) != 0;
      const std::uint64_t d = broken ? fold(digest[unit], kTorn) : digest[unit];
      for (const Touched& t : of[unit]) {
        if (!writes(t.mode)) continue;
        const std::uint64_t value = stamp(tape.columns.ops.op.data[t.row], t.seq, d);
        for (std::int64_t b : t.bytes) {
          std::uint64_t& byte = memory[t.root][b];
          byte = t.mode == Mode::reduce ? byte ^ value : value;
        }
      }
      for (const auto& [other, others] : of) {
        if (!meet(unit, other)) continue;
        for (const Touched& t : of[unit])
          for (const Touched& o : others) {
            if (!writes(t.mode) || !writes(o.mode) || (t.mode == Mode::reduce && o.mode == Mode::reduce)) continue;
            if (t.root != o.root) continue;
            for (std::int64_t b : t.bytes)
              if (std::count(o.bytes.begin(), o.bytes.end(), b) != 0)
                memory[t.root][b] = torn_stamp(tape.columns.ops.op.data[unit], tape.columns.ops.op.data[other]);
          }
      }
    }
    for (auto& [root, bytes] : memory)
      for (auto& [b, value] : bytes) r.last[root] += value * (weight(b + 1) - weight(b));
    return r;
  }

  static bool common(const Touched& a, const Touched& b) {
    if (a.root != b.root) return false;
    for (std::int64_t x : a.bytes)
      if (std::count(b.bytes.begin(), b.bytes.end(), x) != 0) return true;
    return false;
  }
  bool written(std::int32_t root) const {
    for (const auto& [unit, touches] : of)
      for (const Touched& t : touches)
        if (t.root == root && writes(t.mode)) return true;
    return false;
  }

  std::int64_t wrong(const Plain& times) {
    std::vector<std::int32_t> reference;
    for (const std::int32_t code : tape.order().schedule) {
      reference.push_back(code);
      if (code >= 0 && !tape.contract.has_children(code)) reference.push_back(~code);
    }
    std::vector<std::pair<std::pair<std::int64_t, int>, std::int32_t>> keyed;
    for (const std::int32_t code : reference) {
      const Row unit = code < 0 ? ~code : code;
      const bool early = code < 0 && !tape.contract.has_children(unit) && times.done[unit] > times.start[unit];
      keyed.push_back({{code < 0 ? times.done[unit] : times.start[unit], early ? 0 : 1}, code});
    }
    std::stable_sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::int32_t> events;
    std::map<std::int32_t, std::size_t> at;
    for (const auto& k : keyed) {
      at[k.second] = events.size();
      events.push_back(k.second);
    }
    const Result expected = play(reference, {}), got = play(events, at);
    std::int64_t found = 0;
    for (const auto& [unit, touches] : of)
      for (const Touched& t : touches) {
        if (!judged(t.mode) || at.count(unit) == 0) continue;
        const std::pair<Row, std::uint32_t> key{t.row, t.seq};
        const auto a = got.seen.find(key), b = expected.seen.find(key);
        found += got.torn.count(key) != 0 || (a != got.seen.end() && a->second != b->second);
      }
    for (const auto& [root, sum] : expected.last) found += got.last.at(root) != sum;
    return found;
  }
};

CASE(times_and_wrong_reads_are_the_plain_ones) {
  std::int64_t wrong = 0, clean = 0, late = 0;
  const Pulse none = [] {};
  for (std::uint32_t seed = 0; seed < 120; ++seed) {
    Made made(seed, 2 + std::int32_t(seed % 60));
    try {
      const CoreTape tape(made.columns, "made");
      const Row rows = tape.contract.rows();
      const std::vector<std::int64_t> gap = Issuing(tape.contract).gap_ns, take = durations(tape.columns.ops);
      Timing timing(tape.contract, tape.order(), gap.data(), take.data());
      Values values(tape.contract, tape.buffers, tape.order(), none);
      Bytewise plain(tape);
      for (int i = 0; i < 3; ++i) {
        const std::vector<Delay> delays = some_delays(made, rows);
        timing.run(delays, none);
        const Plain p = relaxed(tape, gap, take, delays);
        for (const std::int32_t code : tape.order().schedule) {
          const Row unit = code < 0 ? ~code : code;
          EXPECT(timing.at(unit, kStart) == p.start[unit]);
          if (code < 0 || !tape.contract.has_children(unit)) EXPECT(timing.at(unit, kDone) == p.done[unit]);
        }
        for (Row row = 0; row < rows; ++row) {
          const bool never = timing.at(row, kIssue) < 0;
          EXPECT(never ? p.issue[row] >= kLong : timing.at(row, kIssue) == p.issue[row]);
          late += never;
        }
        const std::int64_t found = values.wrong(timing, none);
        EXPECT(found == plain.wrong(p));
        EXPECT(found == values.wrong(timing, none));
        const Story story = values.story(timing, found, 1000000, none);
        EXPECT(std::int64_t(story.wrong.size()) == found);
        if (found != 0) EXPECT(values.story(timing, found, 1, none).wrong.size() == 1);
        wrong += found != 0, clean += found == 0;
      }
    } catch (const BadTape& e) {
      EXPECT(std::string(e.what()).find("part of") != std::string::npos);
    }
  }
  EXPECT(wrong > 30 && clean > 20 && late > 20);
}

CASE(store_sums_are_the_plain_ones) {
  Made made(7, 300);
  const CoreTape tape(made.columns, "made");
  const Cells cells(tape.contract, tape.buffers);
  Store<ByBytes> store(cells);
  std::vector<std::vector<std::uint64_t>> plain;
  for (std::size_t r = 0; r < cells.roots().size(); ++r) {
    store.fill(std::int32_t(r), 5);
    plain.emplace_back(cells.roots()[r].cells, 5);
  }
  for (int i = 0; i < 20000; ++i) {
    const std::int32_t r = made.number(std::int32_t(plain.size())), count = std::int32_t(plain[r].size());
    const std::uint32_t begin = std::uint32_t(made.number(count));
    const std::uint32_t end = begin + 1 + std::uint32_t(made.number(count - std::int32_t(begin)));
    const std::uint64_t value = std::uint64_t(made.number(1 << 20));
    if (i % 3 == 0) {
      store.set(r, begin, end, value);
      for (std::uint32_t c = begin; c < end; ++c) plain[r][c] = value;
    } else if (i % 3 == 1) {
      store.change(r, begin, end, [&](std::uint64_t x) { return x ^ value; });
      for (std::uint32_t c = begin; c < end; ++c) plain[r][c] ^= value;
    }
    std::uint64_t sum = 0;
    for (std::uint32_t c = begin; c < end; ++c)
      sum += plain[r][c] * (weight(cells.border(r, c + 1)) - weight(cells.border(r, c)));
    EXPECT(store.sum(r, begin, end) == sum);
    std::uint32_t next = begin;
    store.each(r, begin, end, [&](std::uint32_t b, std::uint32_t e, std::uint64_t v) {
      EXPECT(b == next && b < e && plain[r][b] == v && plain[r][e - 1] == v);
      next = e;
    });
    EXPECT(next == end);
  }
}

}  // namespace
}  // namespace tapedelay

int main(int argc, char** argv) { return run_cases(argc, argv); }
