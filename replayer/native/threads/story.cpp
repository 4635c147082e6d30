#include "story.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "history.h"

namespace tapedelay::threads {
namespace {

constexpr std::size_t kParts = 16;
constexpr Row kNobody = -2;
constexpr std::int64_t kLast = INT64_MAX;  // event of the reads at the end

using Runs = std::vector<Run>;
using Pieces = std::vector<History::Piece>;

struct Fact {
  const Wrong* wrong;
  std::int64_t event, at_ns;
  std::int64_t place;  // at one event: order
  Runs expected;
  Pieces ids, expected_ids;
};

// Whose value it is; several bits of a word may be marks.
struct Who {
  Row writer;
  bool torn;
};
using Names = std::unordered_map<Word, Who>;

class Teller {
 public:
  Teller(const Spec& spec, Oracle& oracle, const RunResult& result) : spec_(spec), oracle_(oracle), result_(result) {}

  Story tell(std::size_t limit) {
    Story story;
    story.count = result_.wrong_count;
    if (result_.wrong.empty()) return story;
    date();
    for (const Fact& f : facts_)
      if (f.wrong->row < 0) last_.push_back(f.wrong);
    facts_.resize(std::min(facts_.size(), std::max<std::size_t>(limit, 1)));
    explain();
    History history(spec_);
    play(history);
    reference();
    for (Fact& f : facts_) story.wrong.push_back(told(f, history));
    story.chain = std::move(chain_);
    return story;
  }

 private:
  static bool of_value(const Wrong& w) { return w.fault == Fault::stale || w.fault == Fault::torn; }

  Row unit_of(const Wrong& w) const { return w.row < 0 ? -1 : spec_.unit[w.row]; }

  Span<Range> ranges(const Wrong& w) const {
    return w.row < 0 ? Span<Range>{&spec_.last_range[w.access], 1} : spec_.ranges_of(w.access);
  }

  // When each became a fact.
  void date() {
    std::vector<std::pair<std::int64_t, Row>> starts;
    for (Row u = 0; u < spec_.rows; ++u)
      if (result_.start_event[u] >= 0) starts.push_back({result_.start_event[u], u});
    std::sort(starts.begin(), starts.end());
    for (const Wrong& w : result_.wrong) {
      Fact f{&w, w.row < 0 ? kLast : w.event, w.at_ns, 0, {}, {}, {}};
      // At one access: what writes in flight do to it, what it does to reads in flight, old values.
      if (of_value(w) && w.row >= 0) f.place = 3 * place(w.row, w.access) + (marked(w) ? 0 : 2);
      if (w.late && w.fault == Fault::torn) {
        const Row unit = spec_.unit[w.row];
        auto it = std::upper_bound(starts.begin(), starts.end(), std::make_pair(result_.start_event[unit], spec_.rows));
        for (; it != starts.end() && it->first < w.event; ++it)
          if (const std::int64_t by = writes_in(it->second, w.access); by >= 0 && !kin(spec_, it->second, unit)) {
            f.event = it->first;
            f.at_ns = result_.start_ns[it->second];
            f.place = 3 * by + 1;
            break;
          }
      } else if (w.late && w.by >= 0) {
        f.event = result_.end_event[w.by];
        f.at_ns = result_.done_ns[w.by];
      }
      facts_.push_back(std::move(f));
    }
    // At one start first what its accesses meet, in their order, then lifes.
    const auto key = [](const Fact& f) { return std::make_tuple(f.event, std::max(int(f.wrong->fault), 1), f.place); };
    std::stable_sort(facts_.begin(), facts_.end(), [&](const Fact& a, const Fact& b) { return key(a) < key(b); });
  }

  static bool marked(const Wrong& w) {
    return std::any_of(w.saw.begin(), w.saw.end(), [](const Run& r) { return !r.part && (r.value & kMarks & ~kTorn); });
  }

  // The number of an access among those of its unit.
  std::int64_t place(Row row, std::int64_t access) const {
    std::int64_t found = access - spec_.access_first[row];
    for (const Row other : spec_.rows_of(spec_.unit[row]))
      if (other < row) found += spec_.access_first[other + 1] - spec_.access_first[other];
    return found;
  }

  // The number of the first access of a unit that writes where another access is; -1: none.
  std::int64_t writes_in(Row unit, std::int64_t access) const {
    for (const Row row : spec_.rows_of(unit))
      for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a)
        if (writes(spec_.mode[a]))
          for (const Range& r : spec_.ranges_of(a))
            for (const Range& m : spec_.ranges_of(access))
              if (r.begin < m.end && m.begin < r.end) return place(row, a);
    return -1;
  }

  // What the reads see in the reference order, and whose values all that is.
  void explain() {
    std::unordered_map<std::int64_t, Fact*> reads, last;
    for (Fact& f : facts_)
      if (of_value(*f.wrong)) (f.wrong->row < 0 ? last : reads)[f.wrong->access] = &f;
    oracle_.explain(
        [&](std::int64_t access, const Oracle::Look& look) {
          const auto it = reads.find(access);
          if (it != reads.end()) it->second->expected = look();
        },
        [&](std::int64_t number, const Oracle::Look& look) {
          const auto it = last.find(number);
          if (it != last.end()) it->second->expected = look();
        });
    const Who nobody{kNobody, false};
    for (const Fact& f : facts_) {
      for (const Run& r : f.wrong->saw) saw_names_[r.value & ~kMarks] = nobody;
      for (const Run& r : f.expected) expected_names_[r.value & ~kMarks] = nobody;
    }
    const auto name = [](Names& names, Word value, Who who) {
      const auto it = names.find(value & ~kMarks);
      if (it != names.end()) it->second = who;
    };
    for (const std::int32_t root : spec_.root_id)
      for (Names* names : {&saw_names_, &expected_names_}) name(*names, initial_value(root), {-1, false});
    for (Row row = 0; row < spec_.rows; ++row) {
      if (spec_.unit[row] == row) {
        name(saw_names_, progress_value(row), {row, true});
        name(saw_names_, torn_value(row), {row, true});
      }
      for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a) {
        if (!writes(spec_.mode[a]) || spec_.mode[a] == Mode::reduce) continue;
        name(saw_names_, oracle_.wrote(a), {row, false});
        name(expected_names_, oracle_.reference(a), {row, false});
      }
    }
  }

  void play(History& history) {
    std::vector<std::pair<std::int64_t, Row>> events;
    for (Row u = 0; u < spec_.rows; ++u) {
      if (result_.start_event[u] >= 0) events.push_back({result_.start_event[u], u});
      if (result_.end_event[u] >= 0) events.push_back({result_.end_event[u], ~u});
    }
    std::sort(events.begin(), events.end());
    history.begin(false);
    std::size_t next = 0;
    const auto see = [&](Fact& f) {
      if (of_value(*f.wrong))
        for (const Range& r : ranges(*f.wrong)) history.pieces(r, unit_of(*f.wrong), f.ids);
    };
    const auto look = [&](std::int64_t event) {
      for (; next < facts_.size() && facts_[next].event <= event; ++next) {
        const Wrong& w = *facts_[next].wrong;
        if (!w.late) see(facts_[next]);
        if (next > 0 || w.row < 0 || !of_value(w)) continue;
        follows_ = true;
        history.follow(spec_.unit[w.row]);
        if (spec_.on_host[w.row]) chain_.assign(1, w.row);
      }
    };
    for (const auto& [event, code] : events) {
      if (code >= 0 && follows_ && chain_.empty()) host_reads(history, code);
      const std::size_t first = next;
      look(event);
      if (code >= 0)
        history.start(code);
      else
        history.end(~code);
      // What tears a read has started by then.
      for (std::size_t i = first; i < next; ++i)
        if (facts_[i].wrong->late) see(facts_[i]);
    }
    look(kLast);
    if (facts_.front().wrong->row < 0) chain_.assign(1, -1);
    for (const Wrong* w : last_) {
      if (!follows_ || !chain_.empty()) break;
      const Row writer = history.tainted(spec_.last_range[w->access]);
      if (writer >= 0) chain_ = path(history, -1, writer);
    }
  }

  // A host thread reads what came out of the first wrong read.
  void host_reads(const History& history, Row unit) {
    for (const Row row : spec_.rows_of(unit))
      for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a) {
        if (!spec_.on_host[row] || !oracle_.judged(a) || !chain_.empty()) continue;
        for (const Range& r : spec_.ranges_of(a)) {
          const Row writer = history.tainted(r);
          if (writer < 0) continue;
          chain_ = path(history, row, writer);
          break;
        }
      }
  }

  std::vector<Row> path(const History& history, Row row, Row writer) const {
    std::vector<Row> found{row};
    for (Row from = history.tainted_by(spec_.unit[writer]); from >= 0; from = history.tainted_by(spec_.unit[writer])) {
      found.push_back(writer);
      writer = from;
    }
    const Row first = facts_.front().wrong->row;
    if (found.back() != first) found.push_back(first);
    std::reverse(found.begin(), found.end());
    return found;
  }

  void reference() {
    expected_versions_.begin(true);
    std::unordered_map<Row, std::vector<Fact*>> at;
    for (Fact& f : facts_)
      if (of_value(*f.wrong)) at[f.wrong->row < 0 ? -1 : spec_.unit[f.wrong->row]].push_back(&f);
    const auto look = [&](Row unit) {
      const auto it = at.find(unit);
      if (it == at.end()) return;
      for (Fact* f : it->second)
        for (const Range& r : ranges(*f->wrong)) expected_versions_.pieces(r, unit_of(*f->wrong), f->expected_ids);
    };
    for (const Row code : spec_.schedule) {
      if (code >= 0) {
        look(code);
        expected_versions_.start(code);
      }
      if (code < 0 || !spec_.open(code)) expected_versions_.end(code < 0 ? ~code : code);
    }
    look(-1);
  }

  static void add(std::vector<Seen>& parts, std::int64_t begin, std::int64_t end, Row writer, State state) {
    if (!parts.empty() && parts.back().end == begin && parts.back().writer == writer && parts.back().state == state)
      parts.back().end = end;
    else if (parts.size() < kParts)
      parts.push_back({begin, end, writer, state});
  }

  // Of a word in parts only the bytes that are asked for count.
  static bool differ(const Run& a, const Run& b, std::int64_t begin, std::int64_t end) {
    if (!a.part) return a.value != b.value;
    const auto bytes = [&](Word value) { return value << (8 * (7 - ((end - 1) & 7))) >> (8 * (8 - (end - begin))); };
    return bytes(a.value) != bytes(b.value);
  }

  // The writer of a value, where it has one.
  static const Who* who(const Names& names, const Run& run) {
    const auto it = run.part ? names.end() : names.find(run.value & ~kMarks);
    return it == names.end() || it->second.writer == kNobody ? nullptr : &it->second;
  }

  Seen seen(const History& history, const Wrong& w, const Run& saw, const History::Piece& is) const {
    const bool marked = w.fault == Fault::torn || saw.part || (saw.value & (kWriters | kReducers));
    if (marked && is.flying >= 0) return {0, 0, is.flying, State::torn};
    if (const Who* named = who(saw_names_, saw))
      return {0, 0, named->writer, named->torn || (saw.value & kMarks) ? State::torn : State::version};
    // What several ops made, or bytes of a word: no value is known for it.
    const History::Version version = history.version(is.id);
    return {0, 0, version.writer, version.torn ? State::torn : State::version};
  }

  Told told(const Fact& f, const History& history) const {
    const Wrong& w = *f.wrong;
    Told out{w.row, w.access, w.fault, f.at_ns, {}, {}, false};
    if (!of_value(w)) return out;
    bool torn = w.fault == Fault::torn, other = false;
    // All four views have the same bytes, each in pieces of its own.
    std::size_t i = 0, j = 0, k = 0, l = 0;
    while (i < w.saw.size() && j < f.expected.size() && k < f.ids.size() && l < f.expected_ids.size()) {
      const Run &saw = w.saw[i], &expected = f.expected[j];
      const History::Piece &is = f.ids[k], &should = f.expected_ids[l];
      const std::int64_t begin = std::max({saw.begin, expected.begin, is.begin, should.begin});
      const std::int64_t end = std::min({saw.end, expected.end, is.end, should.end});
      // What is late is told as it stood when it became a fact: others may have come after that.
      const bool in_flight = w.fault == Fault::torn && is.flying >= 0;
      if (begin < end && (in_flight || (!w.late && differ(saw, expected, begin, end)))) {
        Seen part = seen(history, w, saw, is);
        if (part.state == State::version && is.id == should.id) part.state = State::derived;
        other = other || part.state != State::derived;
        torn = torn || part.state == State::torn;
        add(out.saw, begin, end, part.writer, part.state);
        const Who* named = who(expected_names_, expected);
        const Row writer = named ? named->writer : expected_versions_.version(should.id).writer;
        add(out.expected, begin, end, writer, State::version);
      }
      i += saw.end <= end;
      j += expected.end <= end;
      k += is.end <= end;
      l += should.end <= end;
    }
    if (out.saw.empty() && torn)
      for (const Range& r : ranges(w)) add(out.saw, r.begin, r.end, -1, State::unknown);
    out.derived = !other && !torn;
    if (torn) out.fault = Fault::torn;
    return out;
  }

  const Spec& spec_;
  Oracle& oracle_;
  const RunResult& result_;
  History expected_versions_{spec_};
  std::vector<Fact> facts_;
  std::vector<const Wrong*> last_;
  Names saw_names_, expected_names_;
  std::vector<Row> chain_;
  bool follows_ = false;
};

}  // namespace

Story tell(const Spec& spec, Oracle& oracle, const RunResult& result, std::size_t limit) {
  return Teller(spec, oracle, result).tell(limit);
}

}  // namespace tapedelay::threads
