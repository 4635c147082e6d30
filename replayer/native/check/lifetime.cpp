#include "lifetime.h"

#include <map>
#include <tuple>

namespace tapedelay::check {

namespace {

constexpr std::size_t kFew = 16;  // uses that are looked through one by one

bool uses_sync(Kind kind) {
  return kind == Kind::record || kind == Kind::wait || kind == Kind::semsig || kind == Kind::semwait ||
         kind == Kind::coll || kind == Kind::compute || kind == Kind::kernel;
}

}  // namespace

void Lifetimes::Uses::put(const Key& key, const Use& use) {
  if (index_ == nullptr) {
    for (auto& [known, latest] : all_) {
      if (known == key) {
        latest = use;
        return;
      }
    }
    all_.emplace_back(key, use);
    if (all_.size() > kFew) {
      index_ = std::make_unique<std::unordered_map<Key, std::size_t, Key::Hash>>();
      for (std::size_t i = 0; i < all_.size(); i++) index_->emplace(all_[i].first, i);
    }
    return;
  }
  const auto [at, added] = index_->emplace(key, all_.size());
  if (added) all_.emplace_back(key, use);
  else all_[at->second].second = use;
}

void Lifetimes::Uses::clear() {
  std::vector<std::pair<Key, Use>>().swap(all_);
  index_.reset();
}

Lifetimes::Lifetimes(const Contract& contract, const Buffers& buffers, Ranges& ranges, const Chains& chains,
                     const Lanes& lanes, const Ranks& ranks, Accepting* accepting)
    : contract_(contract), buffers_(buffers), ranges_(ranges), chains_(chains), lanes_(lanes), ranks_(ranks),
      accepting_(accepting), ops_(contract.columns().ops) {
  read();
}

void Lifetimes::read() {
  of_buffer_.assign(std::size_t(buffers_.rows()), -1);
  for (Row r = 0; r < contract_.rows(); r++) {
    const Kind kind = Kind(ops_.kind.get(r));
    if (kind == Kind::alloc || kind == Kind::free) {
      const std::int32_t buffer = ops_.target.get(r);
      if (buffer == kNull) continue;
      std::int32_t& at = of_buffer_[buffer];
      if (at < 0) {
        memory_ = true;
        at = std::int32_t(things_.size());
        things_.emplace_back();
        things_.back().buffer = buffer;
        things_.back().whole = buffers_.is_whole(buffer);
      }
      Thing& thing = things_[at];
      Row& where = kind == Kind::free ? thing.end : thing.alloc;
      if (where == kNull) where = r;
    } else if (kind == Kind::destroy && ops_.sync.get(r) != kNull) {
      const auto [at, added] = of_sync_.emplace(ops_.sync.get(r), std::int32_t(things_.size()));
      if (!added) continue;
      things_.emplace_back();
      things_.back().sync = ops_.sync.get(r);
      things_.back().end = r;
    }
  }
  for (std::int32_t b = 0; b < buffers_.rows(); b++) {
    const std::int32_t parent = buffers_.parent(b);
    if (of_buffer_[b] < 0 && parent != kNull) of_buffer_[b] = of_buffer_[parent];
  }
  if (!of_sync_.empty()) lists_ = Grouped(contract_.columns().lists.list, contract_.columns().lists.rows);
}

void Lifetimes::visit(Row unit, const std::vector<Row>& rows, Span<Access> accesses, const Clock& clock,
                      const Clock* hopeful, std::vector<Pair>& found) {
  for (const Row row : rows) {
    here_.clear();
    collect(row, rows.size() == 1 ? accesses : ranges_.of(row));
    faults(unit, row, clock, hopeful);
    if (!here_.empty()) join(found);
    if (rows.size() == 1) {
      remember(unit, row);
      return;
    }
  }
  for (const Row row : rows) {
    collect(row, ranges_.of(row));
    remember(unit, row);
  }
}

// Adds `here_`, and joins what is one fault of one pair: definite where one part is.
void Lifetimes::join(std::vector<Pair>& found) const {
  using Same = std::tuple<Row, std::int32_t, std::int32_t, Fault, std::int32_t, std::int32_t>;
  std::map<Same, std::size_t> known;
  for (const Pair& p : here_) {
    const auto [at, added] =
        known.emplace(Same{p.first, p.buffer, p.sync, p.fault, p.accepted.first, p.accepted.second}, found.size());
    if (added) found.push_back(p);
    else found[at->second].definite = found[at->second].definite || p.definite;
  }
}

// Fills `using_` with what a row uses.
void Lifetimes::collect(Row row, Span<Access> accesses) {
  using_.clear();
  if (memory_) {
    for (const Access& a : accesses) {
      for (std::int32_t at = of_buffer_[a.buffer]; at >= 0;) {
        using_.push_back({at, std::int32_t(a.mode), a.observed, a.row});
        const std::int32_t parent = buffers_.parent(things_[at].buffer);
        at = parent == kNull ? -1 : of_buffer_[parent];
      }
    }
  }
  if (of_sync_.empty()) return;
  const auto add = [&](std::int32_t sync) {
    const auto found = of_sync_.find(sync);
    if (found != of_sync_.end()) using_.push_back({found->second, -1, true, -1});
  };
  const Kind kind = Kind(ops_.kind.get(row));
  if (uses_sync(kind)) {
    add(ops_.sync.get(row));
  } else if (kind == Kind::wait_any) {
    const std::int32_t group = lists_.find(ops_.list.get(row));
    if (group < 0) return;
    std::unordered_map<std::int64_t, bool> known;
    for (std::uint32_t i = lists_.first(group); i < lists_.first(group + 1); i++) {
      const std::int64_t sync = contract_.columns().lists.unit.get(lists_.row(i));
      if (sync == std::int32_t(sync) && known.emplace(sync, true).second) add(std::int32_t(sync));
    }
  }
}

void Lifetimes::faults(Row unit, Row row, const Clock& clock, const Clock* hopeful) {
  const Kind kind = Kind(ops_.kind.get(row));
  if ((kind == Kind::alloc || kind == Kind::free) && ops_.target.get(row) != kNull) {
    // An alloc or free of a buffer made a thing of just that buffer.
    Thing& thing = things_[of_buffer_[ops_.target.get(row)]];
    if (kind == Kind::alloc) {
      if (row == thing.alloc) at_alloc(thing, unit, row, clock);
    } else {
      for (const Row first : thing.ended) {
        if (kin(first, unit)) continue;
        fault(thing, first, row, Fault::double_free, true, false, -1);
        break;
      }
      if (row == thing.end) at_end(thing, unit, row, clock, hopeful);
      thing.ended.push_back(row);
    }
  } else if (kind == Kind::destroy && ops_.sync.get(row) != kNull) {
    Thing& thing = things_[of_sync_.at(ops_.sync.get(row))];
    if (row == thing.end) at_end(thing, unit, row, clock, hopeful);
  }
  for (const Using& u : using_) {
    const Thing& thing = things_[u.thing];
    const bool definite = u.definite && !inferred(row);
    if (ranks_.started(thing.end) && !kin(thing.end, unit)) {
      Fault name{};
      if (end_fault(thing, chains_.before(thing.end, clock) || row > thing.end, name)) {
        fault(thing, thing.end, row, name, definite, false, u.access);
      }
    }
    if (row < thing.alloc && ranks_.started(thing.alloc) && !kin(thing.alloc, unit) &&
        !chains_.before(thing.alloc, clock)) {
      const bool assumed = hopeful != nullptr && chains_.before(thing.alloc, *hopeful);
      fault(thing, thing.alloc, row, Fault::use_before_alloc, definite, assumed, u.access);
    }
  }
}

// The fault of a use that does not come before the end; false where it is none.
bool Lifetimes::end_fault(const Thing& thing, bool after, Fault& fault) const {
  if (thing.sync >= 0) {
    fault = after ? Fault::use_after_destroy : Fault::destroy_pending;
    return true;
  }
  fault = after ? Fault::use_after_free : Fault::free_in_flight;
  // Freeing a range of a live buffer is bookkeeping: only its reuse can be wrong, and that is a race.
  return after || thing.whole;
}

void Lifetimes::fault(const Thing& thing, Row first, Row second, Fault name, bool definite, bool assumed,
                      std::int32_t access) {
  Pair pair{};
  pair.first = first, pair.second = second, pair.fault = name;
  pair.buffer = thing.buffer, pair.sync = thing.sync, pair.bytes = false;
  if (thing.sync < 0) {
    pair.root = buffers_.root(thing.buffer);
    const std::int64_t size = buffers_.bytes(thing.buffer);
    if (!thing.whole && size != -1) {
      pair.begin = buffers_.offset(thing.buffer), pair.end = pair.begin + size, pair.bytes = true;
    }
  }
  pair.definite = definite && !inferred(first) && !inferred(second);
  pair.assumed = assumed;
  sides(first, access, pair.first_access, pair.second_access);
  pair.accepted = accepted(thing, first, second, name, access);
  here_.push_back(pair);
}

Accepted Lifetimes::accepted(const Thing& thing, Row first, Row second, Fault fault, std::int32_t access) const {
  if (accepting_ == nullptr) return {};
  std::int32_t one = -1, other = -1;
  sides(first, access, one, other);
  const Accepted sorts{accepting_->sort(first, one), accepting_->sort(second, other)};
  if (sorts.first < 0 || sorts.second < 0) return {};
  return accepting_->lifetime(fault, thing.buffer, thing.sync, sorts.first, sorts.second) ? sorts : Accepted{};
}

// The accesses of two rows: the one that ends or begins something has none.
void Lifetimes::sides(Row first, std::int32_t access, std::int32_t& one, std::int32_t& other) const {
  const Kind kind = Kind(ops_.kind.get(first));
  const bool second_uses = kind == Kind::free || kind == Kind::alloc || kind == Kind::destroy;
  one = second_uses ? -1 : access, other = second_uses ? access : -1;
}

void Lifetimes::at_end(Thing& thing, Row unit, Row row, const Clock& clock, const Clock* hopeful) {
  offers_.clear();
  for (const auto& [key, use] : thing.uses.all()) {
    Fault name{};
    if (end_fault(thing, key.after, name) && !chains_.before(use.row, clock) && !kin(use.row, unit)) {
      offer(thing, use, key.queue, key.mode, name, row, hopeful);
    }
  }
  report(thing, row);
  thing.uses.clear();
}

void Lifetimes::at_alloc(Thing& thing, Row unit, Row row, const Clock& clock) {
  offers_.clear();
  // That the use waited for something unseen would not help: it has not waited for the alloc.
  for (const auto& [key, use] : thing.early.all()) {
    if (!kin(use.row, unit)) offer(thing, use, key.queue, key.mode, Fault::use_before_alloc, row, nullptr);
  }
  for (const Ahead& a : thing.ahead) {
    if (chains_.before(a.use.row, clock) && !kin(a.use.row, unit)) {
      offer(thing, a.use, a.queue, a.mode, Fault::use_before_alloc, row, nullptr);
    }
  }
  report(thing, row);
  thing.early.clear();
  std::vector<Ahead>().swap(thing.ahead);
}

// Adds the fault of an earlier use and an op to what is to be thinned.
void Lifetimes::offer(const Thing& thing, const Use& use, std::int32_t queue, std::int32_t mode, Fault fault, Row row,
                      const Clock* hopeful) {
  Certainty certainty = use.definite && !inferred(row) ? Certainty::sure : Certainty::possible;
  if (hopeful != nullptr && chains_.before(use.row, *hopeful)) certainty = Certainty::unknown;
  const Offer key{queue, mode, fault, accepted(thing, use.row, row, fault, use.access)};
  offers_.add(key, certainty, ranks_.rank(use.row), use);
}

void Lifetimes::report(const Thing& thing, Row row) {
  offers_.each([&](const Offer& offer, Certainty certainty, const Use& use) {
    fault(thing, use.row, row, offer.fault, use.definite, certainty == Certainty::unknown, use.access);
  });
}

// Remembers the uses in `using_`.
void Lifetimes::remember(Row unit, Row row) {
  if (using_.empty()) return;
  const std::int32_t queue = ops_.queue.get(row), chain = chains_.chain(row), depth = lanes_.depth(unit);
  const bool seen = !inferred(row);
  for (const Using& u : using_) {
    Thing& thing = things_[u.thing];
    const bool ends = thing.end != kNull && !ranks_.started(thing.end);
    const bool begins = thing.alloc != kNull && !ranks_.started(thing.alloc);
    if (!ends && !begins) continue;
    const std::int32_t sort = accepting_ == nullptr ? -1 : accepting_->sort(row, u.access);
    const Use use{row, u.definite && seen, u.access, sort};
    Key key{chain, depth, queue, u.mode, sort, row > thing.end, use.definite};
    if (ends) thing.uses.put(key, use);
    if (!begins) continue;
    key.after = false;
    if (row < thing.alloc) thing.early.put(key, use);
    else thing.ahead.push_back({queue, u.mode, use});
  }
}

}  // namespace tapedelay::check
