// From rows to edges, in one pass: reading, and the edges that follow row order.
#include "contract.h"

#include <algorithm>

#include "pages.h"
#include "resolver.h"

namespace tapedelay {

namespace {

// Limits: formats/limits.py.
constexpr std::int64_t kMaxQueues = 4096;
// Edges per op, beyond what any tape may have: unordered queues that many ops wait for would have edges without end.
constexpr std::uint64_t kMaxEdgesPerRow = 64, kMaxEdges = 1 << 24;

// Bits of `DeviceColumns::blocking_copies`.
constexpr std::int8_t kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 4, kPinnedToDevice = 8,
                      kDeviceToPinned = 16;

std::string str(std::int64_t value) { return std::to_string(value); }

template <class T>
void below(const Column<T>& values, std::int64_t rows, std::int64_t limit, const char* what, bool nullable = true) {
  for (std::int64_t r = 0; r < rows; r++) {
    const std::int64_t v = values.get(r);
    if (v >= limit || v < (nullable ? -1 : 0)) {
      throw BadTape("row " + str(r) + ": " + what + " " + str(v), "a number below " + str(limit));
    }
  }
}

}  // namespace

void Resolver::run() {
  read();
  kinship();
  climb();
  walk();
  semaphores();
  listed_edges();
  merge();
  std::sort(c_.unresolved_.begin(), c_.unresolved_.end());
  c_.unresolved_.erase(std::unique(c_.unresolved_.begin(), c_.unresolved_.end()), c_.unresolved_.end());
}

// --- reading ---

void Resolver::read() {
  const Columns& t = c_.columns_;
  if (ops_.rows >= std::numeric_limits<Row>::max()) throw BadTape(str(ops_.rows) + " ops", "fewer than 2^31");
  c_.rows_ = Row(ops_.rows);
  below(t.buffers.device, t.buffers.rows, t.devices.rows, "device", false);
  if (queues_.rows > kMaxQueues) throw BadTape(str(queues_.rows) + " queues", "at most " + str(kMaxQueues));
  below(queues_.device, queues_.rows, t.devices.rows, "device", false);
  if (ops_.rows != 0) {
    std::int64_t last = ops_.op.get(0);
    bool grow = last >= 0;
    for (Row r = 1; r < c_.rows_ && grow; r++) {
      const std::int64_t op = ops_.op.get(r);
      grow = op > last;
      last = op;
    }
    if (!grow) throw BadTape("op ids do not grow", "strictly increasing ids from row to row");
  }
  below(ops_.queue, ops_.rows, queues_.rows, "queue", false);
  below(ops_.issuer, ops_.rows, queues_.rows, "issuer");
  below(ops_.sync, ops_.rows, t.syncs, "sync");
  dense_ = ops_.rows == 0 || ops_.op.get(ops_.rows - 1) - ops_.op.get(0) == ops_.rows - 1;
  refer(ops_.parent, ops_.rows, "parent");
  refer(ops_.sync_of, ops_.rows, "sync_of");
  for (Row r = 0; r < c_.rows_; r++) {
    const std::int32_t target = ops_.target.get(r);
    if (target == kNull) continue;
    std::int64_t limit = 0;
    const char* what = "";
    if (kind(r) == Kind::alloc || kind(r) == Kind::free) {
      limit = t.buffers.rows, what = "buffer";
    } else if (kind(r) == Kind::sync) {
      const std::int8_t target_kind = ops_.target_kind.get(r);
      if (target_kind == std::int8_t(Target::all)) continue;
      const bool queue = target_kind == std::int8_t(Target::queue);
      limit = queue ? queues_.rows : t.devices.rows, what = queue ? "queue" : "device";
    } else {
      continue;
    }
    if (target < 0 || target >= limit) {
      throw BadTape("row " + str(r) + ": target " + str(target), std::string("a ") + what + " id below " + str(limit));
    }
  }
}

// Row of an op id, or -1.
Row Resolver::row_of(std::int64_t op) const {
  if (ops_.rows == 0) return kNull;
  const std::int64_t first = ops_.op.data[0];
  if (dense_) return op >= first && op - first < ops_.rows ? Row(op - first) : kNull;
  const std::int64_t* end = ops_.op.data + ops_.rows;
  const std::int64_t* found = std::lower_bound(ops_.op.data, end, op);
  return found != end && *found == op ? Row(found - ops_.op.data) : kNull;
}

void Resolver::refer(const Column<std::int64_t>& values, std::int64_t rows, const char* what) const {
  for (std::int64_t r = 0; r < rows && values.data != nullptr; r++) {
    const std::int64_t op = values.get(r);
    if (op != kNull && row_of(op) == kNull) {
      throw BadTape("row " + str(r) + ": " + what + " " + str(op), "the id of an op of this tape");
    }
  }
}

Row Resolver::parent_row(Row row) const {
  const std::int64_t op = ops_.parent.get(row);
  return op == kNull ? kNull : row_of(op);
}

// --- edges ---

// Adds an edge; false where the source is part of what the target is part of (it has only started).
bool Resolver::edge(Row source, Row target, Rule rule) {
  if (source == target) return true;
  if (c_.is_ancestor(source, target)) return false;
  if (target == at_) {
    c_.source_.push_back(source);
    c_.rule_.push_back(rule);
  } else {
    late_.push_back({target, source, rule, at_ == kNull});
  }
  if (c_.source_.size() + late_.size() > kMaxEdges + kMaxEdgesPerRow * std::uint64_t(c_.rows_)) {
    throw BadTape("more than " + str(std::int64_t(kMaxEdgesPerRow)) + " edges per op",
                  "fewer ops that wait for all of a queue that is not in order");
  }
  return true;
}

// Orders `unit` after a tail and keeps in it what the unit does not cover: its own ancestors.
void Resolver::after(std::vector<Row>& tail, Row unit, Rule rule) {
  std::size_t kept = 0;
  for (const Row s : tail) {
    if (!edge(s, unit, rule)) tail[kept++] = s;
  }
  tail.resize(kept);
}

void Resolver::after_all(const std::vector<Row>& tail, Row unit, Rule rule) {
  for (const Row s : tail) edge(s, unit, rule);
}

// `covers`: what the unit comes after needs no edge any more, but for its ancestors.
void Resolver::after_blocked(std::vector<Blocked>& blocked, Row unit, bool covers) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < blocked.size(); i++) {
    const Blocked b = blocked[i];
    if (!edge(b.unit, unit, b.rule) || !covers) blocked[kept++] = b;
  }
  blocked.resize(kept);
}

void Resolver::after_queue(Row unit, std::int32_t queue, std::int32_t waiter, Rule rule) {
  // What an earlier op of the same in-order queue has waited for is covered by program order.
  std::uint32_t known = 0;
  if (c_.in_order(waiter) && !c_.has_parents(unit)) {
    std::uint32_t& waited = waited_[(std::uint64_t(waiter) << 32) | std::uint32_t(queue)];
    known = waited;
    waited = seen_[queue];
  }
  if (known == seen_[queue]) return;
  const std::vector<Row>& from = c_.in_order(queue) ? tails_[queue] : loose_[queue];
  for (std::size_t i = c_.in_order(queue) ? 0 : known; i < from.size(); i++) edge(from[i], unit, rule);
}

void Resolver::walk() {
  const Columns& t = c_.columns_;
  const std::size_t count = std::size_t(queues_.rows);
  tails_.resize(count), loose_.resize(count), seen_.assign(count, 0);
  blocked_.resize(count);
  std::vector<std::vector<std::int32_t>> of_device(std::size_t(t.devices.rows)), default_of(of_device.size());
  std::vector<std::int32_t> not_host;
  std::vector<Row> open;  // of a tail: what the op at hand is part of
  for (std::int32_t q = 0; q < std::int32_t(count); q++) {
    of_device[queues_.device.get(q)].push_back(q);
    if (!c_.host(q)) not_host.push_back(q);
    if (queues_.blocks.get(q) == 1) default_of[queues_.device.get(q)].push_back(q);
  }
  blocking_sets();
  find_switches();
  newest_.assign(std::size_t(t.syncs), kNull);
  reserve_pages(c_.first_, std::size_t(c_.rows_) + 1);
  c_.first_.assign(std::size_t(c_.rows_) + 1, 0);
  // Pages that are not written cost nothing.
  reserve_pages(c_.source_, 3 * std::size_t(c_.rows_) + 64);
  reserve_pages(c_.rule_, 3 * std::size_t(c_.rows_) + 64);

  for (Row row = 0; row < c_.rows_; row++) {
    at_ = row;
    c_.first_[row] = std::uint32_t(c_.source_.size());
    const Row unit = c_.unit(row);
    const std::int32_t queue = ops_.queue.get(row), issuer = ops_.issuer.get(row);
    const bool ordered = c_.in_order(queue);
    if (ordered) {
      open.clear();
      for (const Row s : tails_[queue]) {
        if (!edge(s, unit, Rule::program)) open.push_back(s);
      }
      if (!blocked_[queue].empty()) after_blocked(blocked_[queue], unit, true);
    }
    const bool issued = issuer != kNull && issuer != queue && c_.host(issuer);
    if (issued) {
      after_all(tails_[issuer], unit, Rule::issue);
      after_blocked(blocked_[issuer], unit, false);
    }
    const std::int32_t device = queues_.device.get(queue);
    if (!default_of[device].empty()) {
      for (const std::int32_t other : queues_.blocks.get(queue) == 1 ? of_device[device] : default_of[device]) {
        if (other != queue) after_queue(unit, other, queue, Rule::default_queue);
      }
    }

    if (any_switch_) before_switched(row, unit, issued);
    bool stays = false;
    switch (kind(row)) {
      case Kind::record:
        if (ops_.sync.has(row)) newest_[ops_.sync.get(row)] = row;
        break;
      case Kind::wait: {
        const Row record = wait(row, true);
        if (any_switch_ && issued && record != kNull) waited_for_collective(row, record);
        break;
      }
      case Kind::wait_any: wait_any(row); break;
      case Kind::sync: {
        const std::int32_t target = ops_.target.get(row);
        const std::int8_t what = ops_.target_kind.get(row);
        if (what == std::int8_t(Target::queue) && target != kNull) {
          after_queue(unit, target, queue, Rule::sync);
        } else if (what == std::int8_t(Target::device) && target != kNull) {
          for (const std::int32_t q : of_device[target]) after_queue(unit, q, queue, Rule::sync);
        } else if (what == std::int8_t(Target::all)) {
          for (const std::int32_t q : not_host) after_queue(unit, q, queue, Rule::sync);
        }
        break;
      }
      case Kind::free:
      case Kind::alloc: {
        const std::int32_t target = ops_.target.get(row);
        if (target == kNull) break;
        const bool frees = kind(row) == Kind::free;
        const std::int32_t on = t.buffers.device.get(target);
        const auto& waits = frees ? t.devices.free_synchronises : t.devices.alloc_synchronises;
        if (waits.get(on) != 1) break;
        for (const std::int32_t q : of_device[on]) {
          after_queue(unit, q, queue, frees ? Rule::free_synchronises : Rule::alloc_synchronises);
        }
        stays = true;
        break;
      }
      case Kind::copy: stays = blocks(device, ops_.access_set.get(row)); break;
      default: break;
    }
    Rule why = Rule::blocking_copy;
    if (any_switch_) {
      if (!stays && !c_.has_parents(unit) && switched(t.devices.blocks, device, row)) {
        stays = true, why = Rule::switched;
      }
      last_is_collective_[queue] = kind(row) == Kind::coll;
    }

    if (ordered) {
      tails_[queue].assign(1, unit);
      tails_[queue].insert(tails_[queue].end(), open.begin(), open.end());
    } else {
      loose_[queue].push_back(unit);
    }
    seen_[queue]++;
    if (stays && issued) {
      std::vector<Blocked>& waiting = blocked_[issuer];
      std::size_t kept = 0;
      for (std::size_t i = 0; i < waiting.size(); i++) {
        if (c_.is_ancestor(waiting[i].unit, unit)) waiting[kept++] = waiting[i];
      }
      waiting.resize(kept);
      waiting.insert(waiting.begin(), {unit, why, queue});
    }
  }
  c_.first_[c_.rows_] = std::uint32_t(c_.source_.size());
  at_ = kNull;
}

// Adds the edge of a wait and returns the row of its record, or -1.
Row Resolver::wait(Row row, bool newest) {
  if (ops_.sync_of.has(row) && ops_.sync_of.get(row) != kNull) {
    const Row record = row_of(ops_.sync_of.get(row));
    edge(c_.unit(record), c_.unit(row), Rule::event);
    return record;
  }
  const std::int8_t state = ops_.wait_state.get(row);
  if (state == std::int8_t(WaitState::unresolved)) {
    c_.unresolved_.push_back(row);
  } else if (newest && (state == kNull || state == std::int8_t(WaitState::contract)) && ops_.sync.get(row) != kNull) {
    const Row record = newest_[ops_.sync.get(row)];
    if (record != kNull) edge(c_.unit(record), c_.unit(row), Rule::event);
    return record;
  }
  return kNull;
}

void Resolver::wait_any(Row row) {
  const std::int8_t state = ops_.wait_state.get(row);
  if (ops_.sync_of.get(row) != kNull || (state != kNull && state != std::int8_t(WaitState::contract))) {
    wait(row, false);
    return;
  }
  const std::int32_t list = ops_.list.get(row);
  if (list == kNull) return;
  const ListColumns& lists = c_.columns_.lists;
  if (!grouped_) lists_ = Grouped(lists.list, lists.rows), grouped_ = true;
  const std::int32_t group = lists_.find(list);
  if (group < 0) throw BadTape("row " + str(row) + ": list " + str(list), "a list of this tape");
  std::vector<Row> records;
  bool all = true;
  const std::uint32_t begin = lists_.first(group), end = lists_.first(group + 1);
  for (std::uint32_t i = begin; i < end; i++) {
    const std::int64_t sync = lists.unit.get(lists_.row(i));
    if (sync < 0 || sync >= c_.columns_.syncs) {
      throw BadTape("row " + str(i - begin) + ": list " + str(list) + ": sync " + str(sync),
                    "a number below " + str(c_.columns_.syncs));
    }
  }
  std::unordered_map<Row, bool> known;
  for (std::uint32_t i = begin; i < end && all; i++) {
    const Row record = newest_[lists.unit.get(lists_.row(i))];
    all = record != kNull;
    if (all && known.emplace(c_.unit(record), true).second) records.push_back(c_.unit(record));
  }
  if (!all) return;
  if (records.size() == 1) {
    edge(records[0], c_.unit(row), Rule::event);
  } else if (!records.empty()) {
    c_.any_of_[c_.unit(row)] = std::move(records);
  }
}

// --- what the profiles declare ---

// Finds, per direction, the access sets that are such copies.
void Resolver::blocking_sets() {
  const Columns& t = c_.columns_;
  for (std::int64_t d = 0; d < t.devices.rows; d++) any_blocking_ |= t.devices.blocking_copies.get(d) > 0;
  if (!any_blocking_) return;
  sets_ = Grouped(t.accesses.set, t.accesses.rows);
  directions_.assign(std::size_t(sets_.groups()), 0);
  constexpr int host = 1, pinned = 2, device = 4;
  for (std::int32_t group = 0; group < sets_.groups(); group++) {
    int reads = 0, writes = 0;
    for (std::uint32_t i = sets_.first(group); i < sets_.first(group + 1); i++) {
      const std::int32_t row = sets_.row(i), buffer = t.accesses.buffer.get(row);
      if (buffer != kNull && (buffer < 0 || buffer >= t.buffers.rows)) {
        throw BadTape("access set " + str(sets_.key(group)) + ": buffer " + str(buffer), "a buffer of this tape");
      }
      int side = host;
      if (buffer != kNull) {
        if (t.buffers.pinned.get(buffer) == 1) side = pinned;
        else side = t.devices.host.get(t.buffers.device.get(buffer)) == 1 ? host : device;
      }
      (t.accesses.mode.get(row) == std::int8_t(Mode::read) ? reads : writes) |= side;
    }
    if ((reads & host) && (writes & device)) directions_[group] |= kHostToDevice;
    if ((reads & device) && (writes & host)) directions_[group] |= kDeviceToHost;
    if ((reads & device) && (writes & device)) directions_[group] |= kDeviceToDevice;
    if ((reads & pinned) && (writes & device)) directions_[group] |= kPinnedToDevice;
    if ((reads & device) && (writes & pinned)) directions_[group] |= kDeviceToPinned;
  }
}

bool Resolver::blocks(std::int32_t device, std::int32_t set) const {
  if (!any_blocking_ || set == kNull) return false;
  const std::int8_t declared = c_.columns_.devices.blocking_copies.get(device);
  const std::int32_t group = declared > 0 ? sets_.find(set) : -1;
  return group >= 0 && (directions_[group] & declared) != 0;
}

Contract::Contract(const Columns& columns) : columns_(columns) { Resolver(*this).run(); }

bool Contract::is_above(Row ancestor, Row unit) const {
  while (true) {
    const Row parent = parent_[unit];
    if (parent == kNone) return false;
    if (parent < 0) {
      const std::vector<Row>& all = above_[~parent];
      return std::binary_search(all.begin(), all.end(), ancestor);
    }
    if (parent == ancestor) return true;
    unit = parent;
  }
}

}  // namespace tapedelay
