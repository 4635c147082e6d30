#include "issuing.h"

#include <algorithm>

namespace tapedelay {
namespace {

constexpr std::int64_t kNoTime = 1000;

std::int64_t at_least_zero(std::int64_t x) { return x < 0 ? 0 : x; }

// Sum that stays a number whatever a file says.
std::int64_t plus(std::int64_t a, std::int64_t b) {
  std::int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

// Where a thread is: the moment of its last item, in the run and as recorded.
struct At {
  Slot last;
  std::vector<Slot> more;
  std::int64_t recorded_ns;
};

// An op of the thread's own queue whose parts, or other members, the thread runs or issues next.
struct Open {
  Row row, unit;
  std::int64_t recorded_end_ns;
};

// Where a thread was when it left the parts of an op, and how many it had left before.
struct Left {
  std::size_t turn;
  At at;
};

struct Thread {
  At at;
  std::vector<Open> open;
  std::unordered_map<Row, Left> closed;  // by unit
};

}  // namespace

Issuing::Issuing(const Contract& contract) {
  const Columns& columns = contract.columns();
  const OpColumns& ops = columns.ops;
  const Row rows = contract.rows();
  if (rows >= kMaxRows) throw BadTape(std::to_string(rows) + " ops", "at most " + std::to_string(kMaxRows - 1));
  const Slot never = slot_of(rows, kIssue);
  after.assign(rows, never);
  gap_ns.assign(rows, 0);

  std::int64_t origin = INT64_MAX;
  for (Row row = 0; row < rows; ++row)
    if (ops.issue_ns.has(row)) origin = std::min(origin, ops.issue_ns.data[row]);
  if (origin == INT64_MAX) origin = 0;

  std::vector<Thread> threads(columns.queues.rows, Thread{At{never, {}, origin}, {}, {}});
  std::vector<Row> above;

  // Where the thread is for this row; leaves behind what the row is no part of.
  const auto reach = [&](Thread& thread, Row unit) -> At& {
    while (!thread.open.empty()) {
      const Open& top = thread.open.back();
      if (top.unit == unit || contract.is_ancestor(top.unit, unit)) break;
      thread.closed.emplace(top.unit, Left{thread.closed.size(), thread.at});
      thread.at.more.push_back(slot_of(top.row, kEnd));
      thread.at.recorded_ns = std::max(thread.at.recorded_ns, top.recorded_end_ns);
      thread.open.pop_back();
    }
    if (thread.closed.empty()) return thread.at;
    // A part of an op that the thread has left: it cannot follow that op's end, so it follows what came before.
    above.assign(1, unit);
    Left* found = nullptr;
    for (std::size_t i = 0; i < above.size(); ++i) {
      const auto it = thread.closed.find(above[i]);
      if (it != thread.closed.end() && (found == nullptr || it->second.turn < found->turn)) found = &it->second;
      for (Row parent : contract.parents(above[i]))
        if (std::find(above.begin(), above.end(), parent) == above.end()) above.push_back(parent);
    }
    return found == nullptr ? thread.at : found->at;
  };

  for (Row row = 0; row < rows; ++row) {
    const Row unit = contract.unit(row);
    const std::int32_t queue = ops.queue.data[row];
    std::int32_t issuer = ops.issuer.get(row);
    const bool own = contract.host(queue);
    if (issuer == kNull || !contract.host(issuer)) issuer = own ? queue : kNull;
    const bool timed = ops.issue_ns.has(row);
    const std::int64_t issue = timed ? at_least_zero(ops.issue_ns.data[row]) : 0;
    const std::int64_t start = plus(issue, at_least_zero(ops.start_after_issue_ns.get(row, 0)));
    const std::int64_t end = plus(start, at_least_zero(ops.duration_ns.get(row, 0)));
    const bool parts = contract.has_children(unit), joint = contract.rows_of(unit).size() > 1;

    if (issuer == kNull) {
      if (timed) gap_ns[row] = at_least_zero(issue - origin);
    } else {
      Thread& thread = threads[issuer];
      At& at = reach(thread, unit);
      after[row] = at.last;
      if (!at.more.empty()) more[row].swap(at.more);
      if (timed) gap_ns[row] = at_least_zero(issue - at.recorded_ns);
      const bool mine = own && queue == issuer;
      at.last = slot_of(row, !mine || joint ? kIssue : parts ? kStart : kEnd);
      if (timed) {
        const std::int64_t recorded = !mine ? issue : parts ? start : end;
        at.recorded_ns = std::max(at.recorded_ns, recorded);
        thread.at.recorded_ns = std::max(thread.at.recorded_ns, recorded);
      }
      if (mine && (parts || joint)) thread.open.push_back({row, unit, timed ? end : 0});
    }
    if (own && queue != issuer) {  // another thread gave it to this one
      Thread& thread = threads[queue];
      At& at = reach(thread, unit);
      // Later than all before it on that queue. What has several members starts only when all are issued.
      if (!joint) at.more.assign(1, slot_of(row, parts ? kStart : kEnd));
      if (parts || joint) thread.open.push_back({row, unit, 0});
    }
  }
}

std::vector<std::int64_t> durations(const OpColumns& ops) {
  std::vector<std::int64_t> found(ops.rows, 0);
  for (std::int64_t row = 0; row < ops.rows; ++row) {
    switch (static_cast<Kind>(ops.kind.data[row])) {
      case Kind::host: case Kind::kernel: case Kind::compute: case Kind::copy: case Kind::memset: case Kind::rdma:
      case Kind::coll:
        found[row] = at_least_zero(ops.duration_ns.get(row, kNoTime));
        break;
      default:
        break;
    }
  }
  return found;
}

}  // namespace tapedelay
