#include "clocks.h"

#include <algorithm>

#include "../pages.h"

namespace tapedelay::check {

namespace {

// Raises `clock` to at least `other`.
void join(Clock& clock, const Clock& other) {
  const std::size_t count = other.size();
  if (clock.size() < count) clock.resize(count, 0);
  std::int32_t* to = clock.data();
  const std::int32_t* from = other.data();
  for (std::size_t i = 0; i < count; i++) to[i] = to[i] > from[i] ? to[i] : from[i];
}

}  // namespace

// --- chains ---

Chains::Chains(const Contract& contract, std::size_t tried)
    : contract_(contract), queue_(contract.columns().ops.queue.data), tried_(tried) {
  const std::size_t rows = std::size_t(contract.rows()), queues = std::size_t(contract.columns().queues.rows);
  reserve_pages(position_, rows);
  position_.assign(rows, kNotEnded);
  last_.assign(queues, 0);
  bool loose = false;
  for (std::int32_t q = 0; q < std::int32_t(queues); q++) {
    loose = loose || !contract.in_order(q);
    links_.push_back({q, q, q, kNull});
  }
  if (loose && rows != 0) chain_.assign(queue_, queue_ + rows);
  if (chain_.empty()) links_.clear();
}

void Chains::unlink(std::int32_t chain) {
  Link& link = links_[chain];
  links_[link.before].after = link.after;
  links_[link.after].before = link.before;
}

void Chains::find(Row row, const Clock& clock) {
  const std::int32_t queue = queue_[row];
  std::int32_t chain = continued(row);
  if (chain == kNull) {
    std::int32_t at = links_[queue].after;
    for (std::size_t i = 0; i < tried_ && at != queue; i++, at = links_[at].after) {
      if (position_[links_[at].tail] <= (std::size_t(at) < clock.size() ? clock[at] : 0)) {
        chain = at;
        break;
      }
    }
  }
  if (chain == kNull) {
    chain = count();
    last_.push_back(0);
    links_.push_back({queue, queue, queue, kNull});
  } else {
    unlink(chain);
  }
  chain_[row] = chain;
  Link& link = links_[chain];
  link.tail = row;
  link.after = queue;
  link.before = links_[queue].before;
  links_[link.before].after = chain;
  links_[queue].before = chain;
}

// The chain that ends with something that the row waits for by name, or -1.
std::int32_t Chains::continued(Row row) const {
  for (const Row source : contract_.sources(contract_.unit(row))) {
    for (const Row before : contract_.rows_of(source)) {
      const std::int32_t chain = chain_[before];
      if (std::size_t(chain) >= std::size_t(contract_.columns().queues.rows) && links_[chain].queue == queue_[row] &&
          links_[chain].tail == before) {
        return chain;
      }
    }
  }
  return kNull;
}

// --- what is assumed ---

Assumed assumptions(const Contract& contract, const std::vector<std::uint8_t>& unseen) {
  Assumed found;
  const QueueColumns& queues = contract.columns().queues;
  bool devices = false;
  for (std::int32_t h = 0; h < queues.rows; h++) {
    if (!contract.host(h)) {
      devices = devices || unseen[h];
      continue;
    }
    if (!unseen[h]) continue;
    std::vector<std::int32_t> others;
    for (std::int32_t o = 0; o < queues.rows; o++) {
      if (o != h && contract.host(o) && (queues.process.get(o) == queues.process.get(h) || unseen[o])) {
        others.push_back(o);
      }
    }
    if (!others.empty()) found.meets.emplace(h, std::move(others));
  }
  if (!contract.unresolved().empty() || devices) {
    found.waits.assign(std::size_t(contract.rows()), 0);
    for (const Row r : contract.unresolved()) found.waits[r] = 1;
  }
  if (devices) {
    // Any op of such a queue may have waited for anything.
    bool any = !contract.unresolved().empty();
    for (Row r = 0; r < contract.rows(); r++) {
      const std::int32_t q = contract.columns().ops.queue.get(r);
      if (unseen[q] && !contract.host(q)) found.waits[r] = 1, any = true;
    }
    if (!any) found.waits.clear();
  }
  return found;
}

// --- clocks ---

Clocks::Clocks(const Contract& contract, const Chains& chains, const Assumed* assumed)
    : c_(contract), chains_(chains), assumed_(assumed) {
  const std::size_t rows = std::size_t(contract.rows());
  reserve_pages(state_, rows);
  state_.assign(rows, 0);
  bool any_of = false;
  for (Row u = 0; u < contract.rows(); u++) {
    for (const Row s : contract.sources(u)) state_[s]++;
    for (const Row s : contract.any_of(u)) state_[s]++, any_of = true;
  }
  if (any_of) ended_.assign(rows, 0);
  if (assumed_ == nullptr) return;
  done_.assign(rows, 0);
  watch_all_ = !assumed->waits.empty();
  watch_.assign(std::size_t(contract.columns().queues.rows), 0);
  for (const auto& [host, others] : assumed->meets) {
    for (const std::int32_t o : others) watch_[o] = 1;
  }
}

std::int32_t Clocks::taken() {
  if (free_.empty()) {
    slots_.emplace_back();
    return std::int32_t(slots_.size()) - 1;
  }
  const std::int32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

std::int32_t Clocks::copied(const Clock& clock) {
  const std::int32_t slot = taken();
  slots_[slot].clock.assign(clock.begin(), clock.end());
  return slot;
}

// One unit less needs the clock of a unit that has ended.
void Clocks::used(Row unit) {
  const std::int32_t slot = std::int32_t(state_[unit]);
  Slot& s = slots_[slot];
  if (--s.uses == 0 && s.recent == 0) freed(slot);
}

const Clock& Clocks::start(Row unit) {
  current_ = -1;
  for (const Row source : c_.sources(unit)) {
    const std::int32_t slot = std::int32_t(state_[source]);
    Slot& other = slots_[slot];
    if (current_ >= 0) {
      Clock& clock = slots_[current_].clock;
      const std::size_t at = std::size_t(chains_.chain(source));
      if (at >= clock.size() || clock[at] < chains_.position(source)) join(clock, other.clock);
      used(source);
    } else if (other.uses == 1 && assumed_ == nullptr) {
      other.uses = 0;
      current_ = slot;  // nobody else needs it
    } else {
      current_ = copied(other.clock);
      used(source);
    }
  }
  if (current_ < 0) {
    current_ = taken();
    slots_[current_].clock.clear();
  }
  Clock& clock = slots_[current_].clock;
  for (const Row parent : c_.parents(unit)) join(clock, slots_[opened_[parent]].clock);
  const Span<Row> records = c_.any_of(unit);
  if (!records.empty()) shared(records, clock);
  if (assumed_ != nullptr) assume(unit, clock);
  if (clock.size() < std::size_t(chains_.count())) clock.resize(std::size_t(chains_.count()), 0);
  if (c_.has_children(unit)) {
    const std::int32_t opened = copied(clock), inside = copied(clock);
    opened_[unit] = opened, inside_[unit] = inside;
  }
  return slots_[current_].clock;
}

// What all records that have ended have in common.
void Clocks::shared(Span<Row> records, Clock& clock) {
  Clock common;
  bool any = false;
  for (const Row record : records) {
    if (!ended_[record]) continue;
    const Clock& other = slots_[state_[record]].clock;
    if (!any) {
      common = other, any = true;
      continue;
    }
    if (common.size() > other.size()) common.resize(other.size());
    for (std::size_t i = 0; i < common.size(); i++) common[i] = std::min(common[i], other[i]);
  }
  for (const Row record : records) {
    if (ended_[record]) used(record);
  }
  join(clock, common);
}

const Clock& Clocks::end_parent(Row unit) {
  const auto inside = inside_.find(unit), opened = opened_.find(unit);
  const std::int32_t slot = inside->second;
  freed(opened->second);
  inside_.erase(inside), opened_.erase(opened);
  return keep(unit, slot);
}

const Clock& Clocks::keep(Row unit, std::int32_t slot) {
  Slot& s = slots_[slot];
  if (s.clock.size() < std::size_t(chains_.count())) s.clock.resize(std::size_t(chains_.count()), 0);
  for (const Row row : c_.rows_of(unit)) s.clock[chains_.chain(row)] = chains_.position(row);
  s.uses = state_[unit];
  s.recent = 0;
  state_[unit] = std::uint32_t(slot);
  if (!ended_.empty()) ended_[unit] = 1;
  for (const Row parent : c_.parents(unit)) join(slots_[inside_[parent]].clock, s.clock);
  if (assumed_ != nullptr) remember(unit, slot);
  if (s.uses == 0 && s.recent == 0) freed(slot);
  return s.clock;
}

void Clocks::remember(Row unit, std::int32_t slot) {
  for (const Row row : c_.rows_of(unit)) {
    done_[row] = 1;
    const std::int32_t chain = chains_.chain(row);
    if (!watch_all_ && !(std::size_t(chain) < watch_.size() && watch_[chain])) continue;
    if (recent_.size() <= std::size_t(chain)) recent_.resize(std::size_t(chain) + 1);
    if (recent_[chain].empty()) recent_chains_.push_back(chain);
    recent_[chain].push_back({row, chains_.position(row), slot});
    slots_[slot].recent++;
  }
  const Row low = low_;
  while (low_ < c_.rows() && done_[low_]) low_++;
  if (low_ == low) return;
  // Every row to come is at or after `low_`: of the rows below it only the last per chain matters.
  for (const Row row : c_.rows_of(unit)) {
    const std::size_t chain = std::size_t(chains_.chain(row));
    if (chain >= recent_.size()) continue;
    std::deque<Recent>& recent = recent_[chain];
    while (recent.size() > 1 && recent[1].row < low_) {
      Slot& s = slots_[recent.front().slot];
      if (--s.recent == 0 && s.uses == 0) freed(recent.front().slot);
      recent.pop_front();
    }
  }
}

void Clocks::assume(Row unit, Clock& clock) {
  const OpColumns& ops = c_.columns().ops;
  for (const Row row : c_.rows_of(unit)) {
    if (!assumed_->waits.empty() && assumed_->waits[row]) {
      // Most of it is what the wait for everything before this one has found.
      if (row < everything_to_) everything_.clear();
      everything_to_ = row;
      for (const std::int32_t chain : recent_chains_) meet(everything_, row, chain);
      join(clock, everything_);
      continue;
    }
    // To issue an op is something that the thread does: it may have met others just before.
    for (const std::int32_t thread : {ops.queue.get(row), ops.issuer.get(row)}) {
      const auto found = assumed_->meets.find(thread);
      if (found == assumed_->meets.end()) continue;
      for (const std::int32_t other : found->second) meet(clock, row, other);
    }
  }
}

// Raises a clock to what has ended on a chain in rows before this one.
void Clocks::meet(Clock& clock, Row row, std::int32_t chain) {
  if (std::size_t(chain) >= recent_.size()) return;
  const std::deque<Recent>& recent = recent_[chain];
  for (auto at = recent.rbegin(); at != recent.rend(); ++at) {
    if (at->row >= row) continue;
    if (std::size_t(chain) >= clock.size() || clock[chain] < at->position) join(clock, slots_[at->slot].clock);
    return;
  }
}

}  // namespace tapedelay::check
