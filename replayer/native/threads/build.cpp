#include "build.h"

#include <algorithm>
#include <stdexcept>

#include "../virtual/cells.h"
#include "../virtual/lives.h"
#include "../virtual/timing.h"

namespace tapedelay::threads {
namespace {

// Appends one list after the other.
class Filling {
 public:
  explicit Filling(Lists& lists) : lists_(lists) { lists_.first.assign(1, 0); }
  void add(std::int32_t item) { lists_.item.push_back(item); }
  void add(Span<Row> items) { lists_.item.insert(lists_.item.end(), items.begin(), items.end()); }
  void next() { lists_.first.push_back(std::int64_t(lists_.item.size())); }

 private:
  Lists& lists_;
};

void edges(const Contract& c, Spec& spec) {
  Filling members(spec.members), sources(spec.sources), any_of(spec.any_of), parents(spec.parents);
  for (Row row = 0; row < spec.rows; ++row) {
    if (c.is_unit(row)) {
      const Span<Row> rows = c.rows_of(row);
      if (rows.size() > 1) members.add(rows);
      sources.add(c.sources(row));
      any_of.add(c.any_of(row));
      parents.add(c.parents(row));
    }
    members.next(), sources.next(), any_of.next(), parents.next();
  }
}

// What issues follow: as in virtual time.
void issues(Timing timing, Spec& spec) {
  timing.run({}, [] {});

  Filling after[3] = {Filling(spec.issue_after[0]), Filling(spec.issue_after[1]), Filling(spec.issue_after[2])};
  const Slot never = slot_of(spec.rows, kIssue);
  const auto add = [&](Slot slot) {
    if (slot == never) return;
    const int moment = int(slot & 3);
    after[moment == kIssue ? 0 : moment == kStart ? 1 : 2].add(Row(slot >> 2));
  };
  for (Row row = 0; row < spec.rows; ++row) {
    add(timing.after(row));
    for (const Slot slot : timing.more_after(row)) add(slot);
    for (Filling& f : after) f.next();
    spec.issues.push_back(timing.at(row, kIssue) >= 0);
  }
}

void accesses(const Placed& placed, Built& built) {
  Spec& spec = built.spec;
  spec.access_first.assign(1, 0);
  spec.range_first.assign(1, 0);
  for (Row row = 0; row < spec.rows; ++row) {
    for (std::int64_t i = placed.first[row]; i < placed.first[row + 1]; ++i) {
      const bool more = i > placed.first[row] && placed.access[i] == placed.access[i - 1];
      if (!more) {
        built.access_row.push_back(placed.access[i]);
        spec.root.push_back(placed.root[i]);
        spec.mode.push_back(Mode(placed.mode[i]));
        spec.range_first.push_back(std::int64_t(spec.ranges.size()));
      }
      spec.ranges.push_back({placed.begin[i], placed.end[i]});
      spec.range_first.back() = std::int64_t(spec.ranges.size());
    }
    spec.access_first.push_back(spec.accesses());
  }
  spec.bytes = placed.bytes;
  for (std::size_t r = 0; r < placed.roots.size(); ++r) {
    spec.root_id.push_back(placed.roots[r]);
    spec.root_range.push_back({placed.root_begin[r], placed.root_end[r]});
  }
}

void lives(const CoreTape& tape, const Order& order, Spec& spec) {
  const Contract& c = tape.contract;
  std::vector<std::uint8_t> runs(std::size_t(spec.rows), 0);
  for (const Row code : order.schedule)
    if (code >= 0) runs[code] = 1;
  const Cells cells(c, tape.buffers);
  const Lives lives(c, tape.buffers, cells, runs);
  for (std::size_t i = 0; i < cells.roots().size(); ++i) {
    if (!lives.alive(std::int32_t(i))) continue;
    const std::int32_t root = cells.roots()[i].buffer;
    const auto at = std::lower_bound(spec.root_id.begin(), spec.root_id.end(), root);
    if (at == spec.root_id.end() || *at != root) throw std::invalid_argument("a root without memory");
    spec.last_root.push_back(root);
    spec.last_range.push_back(spec.root_range[std::size_t(at - spec.root_id.begin())]);
  }
  if (!lives.any()) return;
  const auto kin = [&](Row a, Row b) { return a == b || c.is_ancestor(a, b) || c.is_ancestor(b, a); };
  Filling allocs(spec.allocs), frees(spec.frees), destroys(spec.destroys);
  for (Row row = 0; row < spec.rows; ++row) {
    const Row unit = c.unit(row);
    const Span<Touch> touches = cells.of(row);
    if (std::int64_t(touches.size()) != spec.access_first[row + 1] - spec.access_first[row])
      throw std::invalid_argument("accesses of another tape");
    for (const Touch& t : touches) {
      for (const std::int32_t id : lives.of_buffer(t.buffer)) {
        const Lives::Generation& g = lives.generations()[id];
        if (g.ends_for(row) && !kin(c.unit(g.free), unit)) frees.add(c.unit(g.free));
        if (g.alloc > row && !kin(c.unit(g.alloc), unit)) allocs.add(c.unit(g.alloc));
      }
      frees.next(), allocs.next();
    }
    for (const std::int32_t sync : lives.used_syncs(row)) {
      const Row end = c.unit(lives.destroy(sync));
      if (!kin(end, unit)) destroys.add(end);
    }
    destroys.next();
  }
}

}  // namespace

Built build(const CoreTape& tape, const Placed& placed, Span<std::int64_t> gap_ns, Span<std::int64_t> duration_ns) {
  const Contract& c = tape.contract;
  const OpColumns& ops = tape.columns.ops;
  const Order& order = tape.order();
  Built built;
  Spec& spec = built.spec;
  spec.rows = c.rows();
  spec.queues = std::int32_t(tape.columns.queues.rows);
  spec.gap_ns.assign(gap_ns.begin(), gap_ns.end());
  spec.duration_ns.assign(duration_ns.begin(), duration_ns.end());
  for (Row row = 0; row < spec.rows; ++row) {
    const std::int32_t queue = ops.queue.data[row], issuer = ops.issuer.get(row);
    spec.op.push_back(ops.op.data[row]);
    spec.unit.push_back(c.unit(row));
    spec.queue.push_back(queue);
    spec.issuer.push_back(issuer != kNull && c.host(issuer) ? issuer : queue);
    spec.on_host.push_back(c.host(queue));
    const Kind kind = Kind(ops.kind.data[row]);
    spec.copies.push_back(kind == Kind::copy || kind == Kind::rdma);
  }
  spec.schedule = order.schedule;
  edges(c, spec);
  issues(Timing(c, order, spec.gap_ns.data(), spec.duration_ns.data()), spec);
  accesses(placed, built);
  lives(tape, order, spec);
  spec.complete();
  return built;
}

}  // namespace tapedelay::threads
