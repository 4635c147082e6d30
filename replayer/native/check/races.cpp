#include "races.h"

#include <algorithm>
#include <tuple>

namespace tapedelay::check {

namespace {

constexpr std::size_t kFew = 16;  // chains or traces that are looked through one by one
constexpr std::size_t kKnown = 1 << 16;  // rows of `accesses` whose places are known; a power of two

}  // namespace

Races::Races(const Contract& contract, const Buffers& buffers, Ranges& ranges, const Chains& chains,
             const Lanes& lanes, const Ranks& ranks, const Floor& floor, Accepting* accepting, std::size_t block,
             std::size_t sets)
    : contract_(contract), ranges_(ranges), chains_(chains), lanes_(lanes), ranks_(ranks), accepting_(accepting),
      origin_(contract.columns().ops.origin), floor_(floor), block_(block), parts_(contract, buffers, accepting, sets) {
  memory_.resize(std::size_t(buffers.rows()));
  std::size_t known = 1;
  while (known < kKnown && known < std::size_t(contract.columns().accesses.rows)) known *= 2;
  known_.resize(known);
}

void Races::visit(Row unit, const std::vector<Row>& rows, Span<Access> accesses, const Clock& clock,
                  const Clock* hopeful, std::vector<Pair>& found) {
  if (rows.size() == 1) {
    if (accesses.empty()) return;
    const std::size_t from = found.size();
    const Row row = rows[0];
    look(unit, row, accesses, clock, hopeful, found);
    remember(unit, row, accesses, contract_.has_children(unit) ? kNotEnded : chains_.next(chains_.chain(row)));
    if (found.size() - from >= 2) merge(found, from);
    return;
  }
  const std::size_t from = found.size();
  for (const Row row : rows) look(unit, row, ranges_.of(row), clock, hopeful, found);
  // Members of one chain end one after the other: a position that is too high is only looked at once more.
  for (const Row row : rows) remember(unit, row, ranges_.of(row), kNotEnded);
  if (found.size() - from >= 2) merge(found, from);
}

// Adds the races of the accesses of one row.
void Races::look(Row unit, Row row, Span<Access> accesses, const Clock& clock, const Clock* hopeful,
                 std::vector<Pair>& found) {
  seen_ += std::int64_t(accesses.size());
  if (all_before(clock)) return;
  for (const Access& a : accesses) {
    Memory* memory = memory_[a.root].get();
    if (memory == nullptr) continue;
    candidates(unit, *memory, a, clock);
    if (!candidates_.empty()) pairs(row, a, hopeful, found);
  }
}

// Whether every access so far comes before an op; false where that takes a closer look.
bool Races::all_before(const Clock& clock) const {
  if (contract_.has_family()) return false;
  std::int32_t later = 0;
  for (std::size_t c = 0; c < last_.size(); c++) later |= clock[c] - last_[c];
  return later >= 0;
}

// Fills `candidates_` with the latest accesses that conflict, overlap and are unordered, the newest trace first.
void Races::candidates(Row unit, Memory& memory, const Access& access, const Clock& clock) {
  candidates_.clear();
  const bool all = writes(access.mode);
  const std::int32_t* const at = clock.data();
  const Memory::Group* const groups = memory.groups.data();
  const std::size_t count = memory.groups.size();
  for (std::size_t g = 0; g < count; g++) {
    const std::int32_t known = at[groups[g].chain];
    if ((all ? groups[g].top : groups[g].top_write) > known) search(unit, memory, g, access, known);
  }
  if (candidates_.size() > 1) {
    std::sort(candidates_.begin(), candidates_.end(),
              [](const Candidate& a, const Candidate& b) { return a.trace->number > b.trace->number; });
  }
}

void Races::search(Row unit, Memory& memory, std::size_t group, const Access& access, std::int32_t known) {
  const bool all = writes(access.mode);
  std::int32_t top = 0, top_write = 0;
  for (const Trace* trace : memory.of_group[group]) {
    const std::int32_t last = chains_.position(trace->last);
    top = std::max(top, last);
    if (writes(trace->mode)) top_write = std::max(top_write, last);
    else if (!all) continue;
    if (last <= known || (access.mode == Mode::reduce && trace->mode == Mode::reduce)) continue;
    const std::int32_t rank = access.spans.empty() ? trace->latest.latest(access.begin, access.end)
                                                   : trace->latest.latest_of(access.spans);
    if (rank < 0) continue;
    const Row first = ranks_.row(rank);
    if (chains_.position(first) > known && !kin(first, unit)) candidates_.push_back({trace, first});
  }
  memory.groups[group].top = top, memory.groups[group].top_write = top_write;
}

// The sort of the earlier access where the baseline accepts the two, else -1.
std::int32_t Races::apart(std::int32_t first, Mode mode, std::int32_t second, const Access& access) {
  if (accepting_ == nullptr || first < 0 || second < 0) return -1;
  return accepting_->race(hazard(mode, access.mode), access.root, first, second) ? first : -1;
}

void Races::pairs(Row row, const Access& access, const Clock* hopeful, std::vector<Pair>& found) {
  const bool sure = access.observed && !inferred(row);
  const std::int32_t second = accepting_ == nullptr ? -1 : accepting_->sort(row, access.row);
  thinned_.clear();
  for (const Candidate& c : candidates_) {
    Certainty certainty = sure && c.trace->observed ? Certainty::sure : Certainty::possible;
    if (hopeful != nullptr && (*hopeful)[c.trace->chain] >= chains_.position(c.first)) certainty = Certainty::unknown;
    const Key key{contract_.columns().ops.queue.get(c.first), c.trace->mode,
                  apart(c.trace->sort, c.trace->mode, second, access)};
    thinned_.add(key, certainty, ranks_.rank(c.first), c.first);
  }
  thinned_.each([&](const Key& key, Certainty certainty, Row first) {
    for (const Part& part : parts_.of(first, access.root, key.mode)) {
      if (accepting_ != nullptr && apart(part.sort, key.mode, second, access) != key.apart) continue;
      Common common{};
      if (!part.overlap(access, common)) continue;
      Pair pair{};
      pair.first = first, pair.second = row, pair.fault = hazard(key.mode, access.mode), pair.root = access.root;
      pair.begin = common.begin, pair.end = common.end, pair.hull = common.hull;
      pair.definite = sure && part.observed && !inferred(first);
      pair.assumed = certainty == Certainty::unknown;
      pair.first_access = common.row, pair.second_access = access.row;
      if (key.apart >= 0) pair.accepted = {key.apart, second};
      found.push_back(pair);
    }
  });
}

// Joins what is one pair of ops, hazard and memory: the hull of its bytes, definite where one part is.
void Races::merge(std::vector<Pair>& found, std::size_t from) const {
  using Same = std::tuple<Row, Row, Fault, std::int32_t, std::int32_t, std::int32_t>;
  const auto same = [](const Pair& p) {
    return Same{p.first, p.second, p.fault, p.root, p.accepted.first, p.accepted.second};
  };
  std::vector<std::size_t> order(found.size() - from);
  for (std::size_t i = 0; i < order.size(); i++) order[i] = from + i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return same(found[a]) < same(found[b]); });
  std::vector<std::size_t> kept;  // the first of each, in the order in which they came
  for (std::size_t i = 0; i < order.size(); i++) {
    if (i == 0 || same(found[order[i - 1]]) != same(found[order[i]])) {
      kept.push_back(order[i]);
      continue;
    }
    Pair& known = found[kept.back()];
    const Pair& pair = found[order[i]];
    known.hull = known.hull || pair.hull || pair.begin != known.begin || pair.end != known.end;
    known.begin = std::min(known.begin, pair.begin), known.end = std::max(known.end, pair.end);
    if (pair.definite && !known.definite) {
      known.definite = true;
      known.first_access = pair.first_access, known.second_access = pair.second_access;
    }
  }
  std::sort(kept.begin(), kept.end());
  std::stable_sort(kept.begin(), kept.end(), [&](std::size_t a, std::size_t b) {
    return ranks_.rank(found[a].first) < ranks_.rank(found[b].first);
  });
  std::vector<Pair> merged;
  merged.reserve(kept.size());
  for (const std::size_t i : kept) merged.push_back(found[i]);
  found.resize(from);
  found.insert(found.end(), merged.begin(), merged.end());
}

Races::Trace* Races::trace(Memory& memory, const Access& access, std::int32_t chain, std::int32_t depth, bool observed,
                           std::int32_t sort) {
  std::uint32_t group = 0;
  if (memory.groups.size() <= kFew) {
    while (group < memory.groups.size() && memory.groups[group].chain != chain) group++;
  } else {
    if (memory.group_of.empty()) {
      for (std::uint32_t g = 0; g < memory.groups.size(); g++) memory.group_of.emplace(memory.groups[g].chain, g);
    }
    group = memory.group_of.emplace(chain, std::uint32_t(memory.groups.size())).first->second;
  }
  if (group == memory.groups.size()) {
    memory.groups.push_back({chain});
    memory.of_group.emplace_back();
  }
  const auto is = [&](const Trace* t) {
    return t->chain == chain && t->depth == depth && t->mode == access.mode && t->observed == observed &&
           t->sort == sort;
  };
  std::vector<Trace*>& traces = memory.of_group[group];
  std::vector<Trace*>* among = &traces;
  if (traces.size() > kFew) {
    const auto hash = [](const Trace* t) {
      return mixed(mixed(mixed(std::size_t(t->chain), std::uint64_t(t->depth)), std::uint64_t(t->sort)),
                   (std::uint64_t(t->mode) << 1) | std::uint64_t(t->observed));
    };
    if (traces.size() == kFew + 1) {
      for (Trace* t : traces) {
        std::vector<Trace*>& bucket = memory.found[hash(t)];
        if (std::find(bucket.begin(), bucket.end(), t) == bucket.end()) bucket.push_back(t);
      }
    }
    Trace wanted;
    wanted.chain = chain, wanted.depth = depth, wanted.sort = sort;
    wanted.mode = access.mode, wanted.observed = observed;
    among = &memory.found[hash(&wanted)];
  }
  for (Trace* t : *among) {
    if (is(t)) return t;
  }
  traces_.push_back(std::make_unique<Trace>());
  Trace* made = traces_.back().get();
  made->chain = chain, made->depth = depth, made->sort = sort, made->mode = access.mode, made->observed = observed;
  made->number = memory.traces++, made->group = group, made->memory = &memory;
  made->latest = LatestMap(block_, &floor_);
  traces.push_back(made);
  if (among != &traces) among->push_back(made);
  return made;
}

void Races::remember(Row unit, Row row, Span<Access> accesses, std::int32_t position) {
  if (accesses.empty()) return;
  const std::int32_t chain = chains_.chain(row), depth = lanes_.depth(unit), rank = ranks_.rank(row);
  const bool seen = !inferred(row);
  if (last_.size() <= std::size_t(chain)) last_.resize(std::size_t(chain) + 1, 0);
  last_[chain] = position;
  for (const Access& a : accesses) {
    const std::int32_t sort = accepting_ == nullptr ? -1 : accepting_->sort(row, a.row);
    const bool observed = seen && a.observed;
    Known& known = known_[std::size_t(a.row) & (known_.size() - 1)];
    Trace* t = known.trace;
    if (known.row != a.row || t->chain != chain || t->depth != depth || t->observed != observed || t->sort != sort) {
      if (memory_[a.root] == nullptr) memory_[a.root] = std::make_unique<Memory>();
      t = known.trace = trace(*memory_[a.root], a, chain, depth, observed, sort);
      known.row = a.row;
    }
    t->last = row;
    Memory::Group& group = t->memory->groups[t->group];
    group.top = std::max(group.top, position);  // an op with children may still be open on this chain
    if (writes(a.mode)) group.top_write = std::max(group.top_write, position);
    if (a.spans.empty()) {
      t->latest.cover(a.begin, a.end, rank, known.hint);
    } else {
      for (const Bytes b : a.spans) t->latest.cover(b.begin, b.end, rank);
    }
  }
}

}  // namespace tapedelay::check
