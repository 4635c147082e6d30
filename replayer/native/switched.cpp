// What debugging switches add to the edges: the rules of formats/edges/switched.py.
#include <algorithm>

#include "resolver.h"

namespace tapedelay {

void Resolver::find_switches() {
  const DeviceColumns& t = c_.columns_.devices;
  bool collectives = false;
  for (std::int64_t d = 0; d < t.rows; d++) {
    any_switch_ = any_switch_ || t.blocks.get(d, 0) != 0 || t.drains.get(d, 0) != 0 || t.in_order.get(d, 0) != 0 ||
                  t.launch_in_order.get(d, 0) != 0;
    collectives = collectives || t.collective_waits.get(d, 0) != 0;
  }
  any_switch_ = any_switch_ || collectives;
  if (any_switch_) last_is_collective_.assign(std::size_t(queues_.rows), 0);
  if (collectives) behind_collective_.assign(std::size_t(c_.rows_), 0);
}

bool Resolver::switched(const Column<std::int32_t>& kinds, std::int32_t device, Row row) const {
  const std::int8_t kind = ops_.kind.get(row);
  return kind >= 0 && (kinds.get(device, 0) >> kind & 1) != 0;
}

// What switches say of a row before it becomes the last one of its queue.
void Resolver::before_switched(Row row, Row unit, bool issued) {
  const DeviceColumns& t = c_.columns_.devices;
  const std::int32_t queue = ops_.queue.get(row), device = queues_.device.get(queue);
  if (!c_.in_order(queue) && switched(t.in_order, device, row)) {
    std::vector<Row>& tail = serial_[queue];
    after(tail, unit, Rule::switched);
    tail.insert(tail.begin(), unit);
  }
  if (switched(t.launch_in_order, device, row)) {
    for (const Row parent : c_.parents(unit)) {
      const auto [last, first] = last_part_.emplace(parent, unit);
      if (!first) edge(last->second, unit, Rule::switched);
      last->second = unit;
    }
  }
  if (issued && c_.in_order(queue) && !c_.has_parents(unit) && switched(t.drains, device, row)) {
    std::vector<Blocked>& waiting = blocked_[ops_.issuer.get(row)];
    waiting.erase(std::remove_if(waiting.begin(), waiting.end(), [&](const Blocked& b) { return b.queue == queue; }),
                  waiting.end());
    for (const Row s : tails_[queue]) waiting.push_back({s, Rule::switched, queue});
  }
  if (kind(row) == Kind::record && !behind_collective_.empty()) behind_collective_[row] = last_is_collective_[queue];
}

// The issuer of a wait goes on after the record, where that stands right behind a collective.
void Resolver::waited_for_collective(Row row, Row record) {
  const std::int32_t device = queues_.device.get(ops_.queue.get(row)), on = ops_.queue.get(record);
  if (behind_collective_.empty() || !behind_collective_[record]) return;
  if (c_.columns_.devices.collective_waits.get(device, 0) == 0) return;
  std::vector<Blocked>& waiting = blocked_[ops_.issuer.get(row)];
  const Row unit = c_.unit(record);
  const auto covered = [&](const Blocked& b) { return b.queue == on && c_.in_order(on) && b.unit <= unit; };
  waiting.erase(std::remove_if(waiting.begin(), waiting.end(), covered), waiting.end());
  waiting.push_back({unit, Rule::switched, on});
}

}  // namespace tapedelay
