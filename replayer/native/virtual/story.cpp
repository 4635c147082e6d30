#include "story.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "identity.h"

namespace tapedelay {
namespace {

constexpr std::size_t kParts = 16;

// A part of what a read saw.
struct Piece {
  std::uint32_t begin, end;
  std::uint64_t id, value;
  Version version;
};
using Pieces = std::vector<Piece>;

void push(Pieces& pieces, const Piece& p) {
  if (!pieces.empty()) {
    Piece& last = pieces.back();
    if (last.end == p.begin && last.id == p.id && last.value == p.value && last.version.torn == p.version.torn &&
        last.version.writer == p.version.writer) {
      last.end = p.end;
      return;
    }
  }
  pieces.push_back(p);
}

// What stands in a range: who wrote it and the value.
void gather(const Identity& ids, const Store<ByBytes>& values, std::int32_t root, std::uint32_t begin,
            std::uint32_t end, Pieces& out) {
  std::vector<Piece> who;
  ids.store().each(root, begin, end, [&](std::uint32_t b, std::uint32_t e, std::uint64_t id) {
    who.push_back({b, e, id, 0, ids.version(id)});
  });
  std::size_t i = 0;
  values.each(root, begin, end, [&](std::uint32_t b, std::uint32_t e, std::uint64_t value) {
    while (b < e) {
      while (who[i].end <= b) ++i;
      const std::uint32_t until = std::min(e, who[i].end);
      push(out, {b, until, who[i].id, value, who[i].version});
      b = until;
    }
  });
}

Pieces gather(const Scene& scene, const Identity& ids, const Store<ByBytes>& values, const Touch& t) {
  Pieces found;
  scene.cells.each_range(t, [&](std::uint32_t b, std::uint32_t e) { gather(ids, values, t.root, b, e, found); });
  return found;
}

constexpr std::uint64_t kInFlight = ~std::uint64_t{0};  // no version's id

// Lays a write in flight over what a read saw.
void overlay(Pieces& pieces, std::uint32_t begin, std::uint32_t end, Row writer) {
  Pieces found;
  for (const Piece& p : pieces) {
    const std::uint32_t b = std::max(begin, p.begin), e = std::min(end, p.end);
    if (b >= e) {
      push(found, p);
      continue;
    }
    if (p.begin < b) push(found, {p.begin, b, p.id, p.value, p.version});
    const bool again = p.id == kInFlight;
    push(found, {b, e, kInFlight, 0, {again ? std::min(p.version.writer, writer) : writer, true}});
    if (e < p.end) push(found, {e, p.end, p.id, p.value, p.version});
  }
  pieces.swap(found);
}

void add(const Scene& scene, std::vector<SeenPart>& parts, std::int32_t root, std::uint32_t begin, std::uint32_t end,
         Row writer, Stands stands) {
  const std::int64_t b = scene.cells.border(root, begin), e = scene.cells.border(root, end);
  if (!parts.empty() && parts.back().end == b && parts.back().writer == writer && parts.back().stands == stands) {
    parts.back().end = e;
  } else if (parts.size() < kParts) {
    parts.push_back({b, e, writer, stands});
  }
}

// Fills in where two views of one range differ.
void compare(const Scene& scene, const Pieces& saw, const Pieces& expected, std::int32_t root, WrongRead& out) {
  bool other = false, torn = false;
  for (std::size_t i = 0, j = 0; i < saw.size() && j < expected.size();) {
    const Piece &a = saw[i], &b = expected[j];
    const std::uint32_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
    if (begin < end && (a.version.torn || a.id != b.id || a.value != b.value)) {
      const bool derived = !a.version.torn && a.id == b.id;
      other = other || !derived;
      torn = torn || a.version.torn;
      add(scene, out.saw, root, begin, end, a.version.writer,
          a.version.torn ? Stands::torn : derived ? Stands::derived : Stands::version);
      add(scene, out.expected, root, begin, end, b.version.writer, Stands::version);
    }
    if (a.end <= b.end) ++i;
    if (b.end <= a.end) ++j;
  }
  out.derived = !other && !torn;
  if (torn) out.kind = Wrong::torn;
}

// What is wrong, before it is known what should have been seen.
struct Fact {
  WrongRead read;
  std::uint32_t seq;
  std::int32_t root;  // index
  Pieces saw;
  std::int64_t number = 0;  // of all facts
};

std::uint64_t key(Row row, std::uint32_t seq) { return std::uint64_t(std::uint32_t(row)) << 32 | seq; }

// Notes the versions that the reads of the reference see.
class Noter : public Silent {
 public:
  Noter(const Scene& scene, Versions& to) : ids(scene), to_(to) {}

  void read(const Use& use, std::uint64_t) {
    ids.read(use);
    if (use.touch->judged()) to_.reads.push_back(ids.digest(*use.touch));
  }
  void write(const Use& use) { ids.write(use); }

  Identity ids;

 private:
  Versions& to_;
};

// The place of a judged read in Versions::reads.
std::size_t number_of(const Scene& scene, const Use& use) {
  std::size_t found = scene.first_read[use.unit];
  for (Row row : scene.contract.rows_of(use.unit)) {
    std::uint32_t seq = 0;
    for (const Touch& t : scene.cells.of(row)) {
      if (row == use.row && seq++ == use.seq) return found;
      found += t.judged() && !t.still;
    }
  }
  return found;
}

// The run: facts in their order, and how the first one comes to the host.
class Teller {
 public:
  Teller(const Scene& scene, std::size_t limit, const Versions* versions)
      : ids(scene), scene_(scene), versions_(versions), limit_(std::max<std::size_t>(limit, 1)), taint_(scene.cells),
        from_(scene.runs.size(), kClean) {
    for (std::size_t i = 0; i < scene.cells.roots().size(); ++i) taint_.fill(std::int32_t(i), 0);
  }
  void play(Pass<Teller>& pass) { pass_ = &pass; }

  void read(const Use& use, std::uint64_t) {
    ids.read(use);
    if (scene_.parts[use.unit] && use.touch->judged() && !full())
      at_start_[use.unit].push_back({key(use.row, use.seq), gather(scene_, ids, pass_->store(), *use.touch)});
    if (first_ == kNobody) return;
    const Row writer = tainted(*use.touch);
    if (writer < 0) return;
    if (from_[use.unit] == kClean) from_[use.unit] = writer;
    // Its own columns say whether a host thread runs it.
    if (chain_.empty() && use.touch->judged() && on_host(use.row)) chain_ = path(use.row, writer);
  }
  void stale(const Use& use, std::int64_t now) { fact(Wrong::stale, use, nullptr, now); }
  void torn(const Use& use, const Use* writer, std::int64_t now) { fact(Wrong::torn, use, writer, now); }
  void freed(const Use& use, std::int64_t now) {
    if (first_ == kNobody) first_ = kNone;
    if (kept(false)) keep({described(Wrong::freed, use, now), use.seq, use.touch->root, {}});
  }
  void destroyed(Row row, std::int64_t now) {
    if (first_ == kNobody) first_ = kNone;
    if (kept(false)) keep({{row, -1, Wrong::destroyed, -1, 0, 0, now, {}, {}, false}, 0, -1, {}});
  }
  void write(const Use& use) {
    ids.write(use);
    if (first_ < 0) return;
    const Touch& t = *use.touch;
    const bool bad = from_[use.unit] != kClean;
    if (!bad && t.mode == Mode::reduce) return;
    scene_.cells.each_range(t, [&](std::uint32_t b, std::uint32_t e) {
      taint_.set(t.root, b, e, bad ? std::uint64_t(use.row) + 1 : 0);
    });
  }
  void torn_bytes(Row unit, Row other, std::int32_t root, std::uint32_t begin, std::uint32_t end) {
    ids.torn(unit, other, root, begin, end);
    if (first_ < 0) return;
    for (Row u : {unit, other})
      if (from_[u] != kClean) taint_.set(root, begin, end, std::uint64_t(u) + 1);
  }

  void ended(Row unit) {
    if (!at_start_.empty()) at_start_.erase(unit);
  }

  // The host's read of a root after all ops.
  void at_end(std::int32_t root, std::int64_t now) {
    const RootCells& r = scene_.cells.roots()[root];
    if (first_ == kNobody) {
      first_ = kNone;
      chain_.assign(1, kAtEnd);
    } else if (chain_.empty() && first_ >= 0) {
      const Row writer = tainted(root, 0, r.cells);
      if (writer >= 0) chain_ = path(kAtEnd, writer);
    }
    if (!kept(versions_ && ids.store().sum(root, 0, r.cells) == versions_->at_end[root])) return;
    keep({{kAtEnd, -1, Wrong::stale, r.buffer, scene_.cells.border(root, 0), scene_.cells.border(root, r.cells), now,
           {}, {}, false}, 0, root, {}});
  }

  // In their order: all, or as many as may be told.
  std::vector<Fact>& facts() {
    derived_.resize(std::min(derived_.size(), limit_ - std::min(limit_, facts_.size())));
    std::move(derived_.begin(), derived_.end(), std::back_inserter(facts_));
    derived_.clear();
    std::sort(facts_.begin(), facts_.end(), [](const Fact& a, const Fact& b) { return a.number < b.number; });
    return facts_;
  }
  // How many do not come out of earlier ones; known if versions are.
  std::int64_t own() const { return own_; }
  std::vector<Row>& chain() { return chain_; }

  Identity ids;

 private:
  static constexpr Row kClean = -2, kOrigin = -1;  // in from_
  static constexpr Row kNobody = -1, kNone = -2;   // in first_: no fact yet; the first is no read of a value

  WrongRead described(Wrong kind, const Use& use, std::int64_t now) const {
    const Touch& t = *use.touch;
    return {use.row, t.access, kind, scene_.cells.roots()[t.root].buffer, scene_.cells.begin(t), scene_.cells.end(t),
            now, {}, {}, false};
  }

  void fact(Wrong kind, const Use& use, const Use* writer, std::int64_t now) {
    if (first_ == kNobody) {
      first_ = use.row;
      from_[use.unit] = kOrigin;
      if (on_host(use.row)) chain_.assign(1, use.row);
    }
    if (!kept(kind == Wrong::stale && versions_ && ids.digest(*use.touch) == versions_->reads[number_of(scene_, use)]))
      return;
    Fact f{described(kind, use, now), use.seq, use.touch->root, {}};
    const auto before = at_start_.find(use.unit);  // its parts may have written since
    if (before != at_start_.end())
      for (const auto& [which, pieces] : before->second)
        if (which == key(use.row, use.seq)) f.saw = pieces;
    if (f.saw.empty()) f.saw = gather(scene_, ids, pass_->store(), *use.touch);
    if (kind == Wrong::torn) {
      const auto over = [&](const Use& w) {
        if (!w.touch->writes() || scene_.kin(w.unit, use.unit)) return;
        scene_.cells.each_range(*w.touch, [&](std::uint32_t b, std::uint32_t e) { overlay(f.saw, b, e, w.row); });
      };
      pass_->each_in_flight(use.touch->root, over);
      if (writer != nullptr)  // it has only just started
        for (Row row : scene_.contract.rows_of(writer->unit)) {
          std::uint32_t seq = 0;
          for (const Touch& t : scene_.cells.of(row))
            if (t.root == use.touch->root) over({writer->unit, row, seq++, &t});
        }
    }
    keep(std::move(f));
  }

  bool full() const { return facts_.size() >= limit_; }
  // Counts a fact; whether it is to be kept.
  bool kept(bool derived) {
    ++number_;
    derives_ = derived;
    own_ += !derived;
    return (derived ? derived_ : facts_).size() < limit_;
  }
  void keep(Fact f) {
    f.number = number_;
    (derives_ ? derived_ : facts_).push_back(std::move(f));
  }

  bool on_host(Row row) const { return scene_.contract.host(scene_.contract.columns().ops.queue.data[row]); }

  Row tainted(std::int32_t root, std::uint32_t begin, std::uint32_t end) const {
    if (taint_.sum(root, begin, end) == 0) return -1;
    std::uint64_t found = 0;
    taint_.each(root, begin, end, [&](std::uint32_t, std::uint32_t, std::uint64_t v) { if (!found) found = v; });
    return static_cast<Row>(found) - 1;
  }
  Row tainted(const Touch& t) const {
    Row found = -1;
    scene_.cells.each_range(t, [&](std::uint32_t b, std::uint32_t e) { if (found < 0) found = tainted(t.root, b, e); });
    return found;
  }

  // From the first wrong read on to `row`, which saw what `writer` wrote.
  std::vector<Row> path(Row row, Row writer) const {
    std::vector<Row> found{row};
    while (from_[scene_.contract.unit(writer)] >= 0) {
      found.push_back(writer);
      writer = from_[scene_.contract.unit(writer)];
    }
    if (found.back() != first_) found.push_back(first_);
    std::reverse(found.begin(), found.end());
    return found;
  }

  const Scene& scene_;
  const Versions* const versions_;
  const std::size_t limit_;
  Store<ByCells> taint_;       // row + 1 of the writer of what came out of the first wrong read
  std::vector<Row> from_;      // by unit: whose tainted output it read
  std::unordered_map<Row, std::vector<std::pair<std::uint64_t, Pieces>>> at_start_;  // of ops with parts in flight
  Row first_ = kNobody;
  std::vector<Fact> facts_, derived_;
  std::int64_t number_ = 0, own_ = 0;
  bool derives_ = false;
  std::vector<Row> chain_;
  const Pass<Teller>* pass_ = nullptr;
};

// The reference: what the wrong reads should have seen. Ends with `Enough` once all is known.
class Expecter : public Silent {
 public:
  struct Enough {};

  Expecter(const Scene& scene, std::vector<Fact>& facts) : ids(scene), scene_(scene) {
    for (Fact& f : facts) {
      to_end_ = to_end_ || f.read.row == kAtEnd;
      if (f.read.row != kAtEnd && (f.read.kind == Wrong::stale || f.read.kind == Wrong::torn))
        wanted_[key(f.read.row, f.seq)] = &f;
    }
  }
  bool enough() const { return wanted_.empty() && !to_end_; }
  void play(Pass<Expecter>& pass) { pass_ = &pass; }

  void read(const Use& use, std::uint64_t) {
    ids.read(use);
    if (!use.touch->judged()) return;
    const auto it = wanted_.find(key(use.row, use.seq));
    if (it == wanted_.end()) return;
    Fact& f = *it->second;
    compare(scene_, f.saw, gather(scene_, ids, pass_->store(), *use.touch), f.root, f.read);
    Pieces().swap(f.saw);
    wanted_.erase(it);
    if (enough()) throw Enough{};
  }
  void write(const Use& use) { ids.write(use); }

  Identity ids;

 private:
  const Scene& scene_;
  std::unordered_map<std::uint64_t, Fact*> wanted_;
  bool to_end_ = false;
  const Pass<Expecter>* pass_ = nullptr;
};

}  // namespace

Versions reference_versions(const Scene& scene, const Pulse& pulse) {
  Versions found;
  Noter noter(scene, found);
  Pass<Noter> serial(scene);
  serial.serial(noter, pulse);
  for (std::size_t i = 0; i < scene.cells.roots().size(); ++i)
    found.at_end.push_back(noter.ids.store().sum(std::int32_t(i), 0, scene.cells.roots()[i].cells));
  return found;
}

Story tell(const Scene& scene, const std::vector<std::int32_t>& events, const Timing& timing, std::size_t limit,
           const Versions* versions, const Pulse& pulse) {
  Teller run(scene, limit, versions);
  Pass<Teller> timed(scene);
  run.play(timed);
  timed.timed(events, timing, run, pulse);
  for (std::size_t i = 0; i < scene.cells.roots().size(); ++i) {
    const std::uint32_t cells = scene.cells.roots()[i].cells;
    if (scene.lives.alive(std::int32_t(i)) && timed.store().sum(std::int32_t(i), 0, cells) != scene.at_end[i])
      run.at_end(std::int32_t(i), timing.total_ns());
  }

  std::vector<Fact>& facts = run.facts();
  Expecter reference(scene, facts);
  Pass<Expecter> serial(scene);
  reference.play(serial);
  if (!reference.enough()) {
    try {
      serial.serial(reference, pulse);
    } catch (const Expecter::Enough&) {  // the rest of the reference tells nothing
    }
  }
  Story story;
  for (Fact& f : facts) {
    if (f.read.row == kAtEnd) {
      Pieces saw, expected;
      const std::uint32_t cells = scene.cells.roots()[f.root].cells;
      gather(run.ids, timed.store(), f.root, 0, cells, saw);
      gather(reference.ids, serial.store(), f.root, 0, cells, expected);
      compare(scene, saw, expected, f.root, f.read);
    }
    story.own += !f.read.derived;
    story.wrong.push_back(std::move(f.read));
  }
  if (versions) story.own = run.own();
  story.chain = std::move(run.chain());
  return story;
}

}  // namespace tapedelay
