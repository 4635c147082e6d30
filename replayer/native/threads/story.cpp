#include "story.h"

#include <algorithm>
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
    story.count = std::int64_t(result_.wrong.size());
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
    History kin(spec_);
    for (const Wrong& w : result_.wrong) {
      Fact f{&w, w.row < 0 ? kLast : w.event, w.at_ns, {}, {}, {}};
      if (w.late && w.fault == Fault::torn) {
        const Row unit = spec_.unit[w.row];
        auto it = std::upper_bound(starts.begin(), starts.end(), std::make_pair(result_.start_event[unit], spec_.rows));
        for (; it != starts.end() && it->first < w.event; ++it)
          if (writes_in(it->second, w.access) && !kin.kin(it->second, unit)) {
            f.event = it->first;
            f.at_ns = result_.start_ns[it->second];
            break;
          }
      } else if (w.late && w.by >= 0) {
        f.event = result_.end_event[w.by];
        f.at_ns = result_.done_ns[w.by];
      }
      facts_.push_back(std::move(f));
    }
    std::stable_sort(facts_.begin(), facts_.end(), [](const Fact& a, const Fact& b) { return a.event < b.event; });
  }

  bool writes_in(Row unit, std::int64_t access) const {
    for (const Row row : spec_.rows_of(unit))
      for (std::int64_t a = spec_.access_first[row]; a < spec_.access_first[row + 1]; ++a)
        if (writes(spec_.mode[a]))
          for (const Range& r : spec_.ranges_of(a))
            for (const Range& m : spec_.ranges_of(access))
              if (r.begin < m.end && m.begin < r.end) return true;
    return false;
  }

  // What the reads see in the reference order, and whose values all that is.
  void explain() {
    std::unordered_map<std::int64_t, Fact*> reads, last;
    for (Fact& f : facts_)
      if (of_value(*f.wrong)) (f.wrong->row < 0 ? last : reads)[f.wrong->access] = &f;
    oracle_.explain(
        [&](std::int64_t access, const Runs& runs) {
          const auto it = reads.find(access);
          if (it != reads.end()) it->second->expected = runs;
        },
        [&](std::int64_t number, const Runs& runs) {
          const auto it = last.find(number);
          if (it != last.end()) it->second->expected = runs;
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
    const auto look = [&](std::int64_t event) {
      for (; next < facts_.size() && facts_[next].event <= event; ++next) {
        const Wrong& w = *facts_[next].wrong;
        if (of_value(w))
          for (const Range& r : ranges(w)) history.pieces(r, unit_of(w), facts_[next].ids);
        if (next > 0 || w.row < 0 || !of_value(w)) continue;
        follows_ = true;
        history.follow(spec_.unit[w.row]);
        if (spec_.on_host[w.row]) chain_.assign(1, w.row);
      }
    };
    for (const auto& [event, code] : events) {
      if (code >= 0 && follows_ && chain_.empty()) host_reads(history, code);
      look(event);
      if (code >= 0)
        history.start(code);
      else
        history.end(~code);
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

  static const History::Piece* at(const Pieces& pieces, std::int64_t byte) {
    for (const History::Piece& p : pieces)
      if (p.begin <= byte && byte < p.end) return &p;
    return nullptr;
  }

  static void add(std::vector<Seen>& parts, std::int64_t begin, std::int64_t end, Row writer, State state) {
    if (!parts.empty() && parts.back().end == begin && parts.back().writer == writer && parts.back().state == state)
      parts.back().end = end;
    else if (parts.size() < kParts)
      parts.push_back({begin, end, writer, state});
  }

  // Whether the writer came between the start and the end of the read.
  bool between(const Wrong& w, Row writer) const {
    if (!w.late || writer < 0) return false;
    const std::int64_t start = result_.start_event[spec_.unit[writer]];
    return start > result_.start_event[spec_.unit[w.row]] && start < w.event;
  }

  Told told(const Fact& f, const History& history) const {
    const Wrong& w = *f.wrong;
    Told out{w.row, w.access, w.fault, f.at_ns, {}, {}, false};
    if (!of_value(w)) return out;
    const Word mine = w.row < 0 ? 0 : progress_value(spec_.unit[w.row]);
    bool torn = w.fault == Fault::torn, other = false;
    const auto differ = [&](std::int64_t begin, std::int64_t end, const Run& saw, const Run& expected) {
      if (w.late && !saw.part && (saw.value & ~kMarks) == mine && !(saw.value & kTorn)) return;  // its own mark
      const History::Piece *is = at(f.ids, begin), *should = at(f.expected_ids, begin);
      Seen seen{begin, end, -1, State::unknown};
      const bool marked = saw.part ? is && is->flying >= 0 : (saw.value & kMarks) != 0;
      const auto named = saw.part ? saw_names_.end() : saw_names_.find(saw.value & ~kMarks);
      if (named != saw_names_.end() && named->second.writer != kNobody) {
        seen.writer = named->second.writer;
        seen.state = named->second.torn || marked ? State::torn : State::version;
      } else if (is) {  // what several ops made, or bytes of a word
        const History::Version v = history.version(is->id);
        seen.writer = is->flying >= 0 ? is->flying : v.writer;
        seen.state = v.torn || marked ? State::torn : State::version;
      }
      if (between(w, seen.writer)) seen.state = State::torn;
      const bool same = is && should && is->id == should->id;
      if (seen.state == State::version && same) seen.state = State::derived;
      other = other || seen.state != State::derived;
      torn = torn || seen.state == State::torn;
      add(out.saw, seen.begin, seen.end, seen.writer, seen.state);
      Row should_be = should ? expected_versions_.version(should->id).writer : -1;
      const auto known = expected.part ? expected_names_.end() : expected_names_.find(expected.value & ~kMarks);
      if (known != expected_names_.end() && known->second.writer != kNobody) should_be = known->second.writer;
      add(out.expected, begin, end, should_be, State::version);
    };
    // Borders of versions are borders here: of bytes of one word only the history knows whose they are.
    for (std::size_t i = 0, j = 0; i < w.saw.size() && j < f.expected.size();) {
      const Run &x = w.saw[i], &y = f.expected[j];
      const std::int64_t begin = std::max(x.begin, y.begin), end = std::min(x.end, y.end);
      if (begin < end && x.value != y.value) {
        std::int64_t from = begin;
        for (const History::Piece& p : f.ids)
          if (p.begin > from && p.begin < end) {
            differ(from, p.begin, x, y);
            from = p.begin;
          }
        differ(from, end, x, y);
      }
      if (x.end <= y.end) ++i;
      if (y.end <= x.end) ++j;
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
