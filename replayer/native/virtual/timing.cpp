#include "timing.h"

#include <algorithm>

namespace tapedelay {
namespace {

inline std::int64_t later(std::int64_t t, std::int64_t by) { return std::min(t + by, kEndOfTime); }

constexpr std::size_t kPulse = 1 << 16;

}  // namespace

Timing::Timing(const Contract& contract, const Order& order, const std::int64_t* gap_ns,
               const std::int64_t* duration_ns)
    : contract_(contract) {
  const Row rows = contract.rows();
  const auto bounded = [&](const std::int64_t* from) {
    std::vector<std::int64_t> to(rows);
    for (Row row = 0; row < rows; ++row) to[row] = std::min(std::max<std::int64_t>(from[row], 0), kEndOfTime);
    return to;
  };
  gap_ = bounded(gap_ns);
  take_ = bounded(duration_ns);
  hold_.assign(rows, 0);
  tail_.assign(rows, 0);
  times_.assign((static_cast<std::size_t>(rows) << 2) + 4, -1);
  times_[slot_of(rows, kIssue)] = 0;
  flags_.assign(rows, 0);
  plan(contract, order, Issuing(contract));
}

// Writes down the steps of every run: each unit's issue comes before its start, on a thread one after another.
void Timing::plan(const Contract& contract, const Order& order, const Issuing& issuing) {
  const Row rows = contract.rows();
  const Slot never = slot_of(rows, kIssue);
  after_ = issuing.after;
  std::vector<std::uint8_t> issued(rows, 0), started(rows, 0), ended(rows, 0);
  const auto known = [&](Slot slot) {
    const Row row = static_cast<Row>(slot >> 2);
    const auto moment = static_cast<Moment>(slot & 3);
    if (slot == never) return true;
    return (moment == kIssue ? issued : moment == kStart ? started : ended)[row] != 0;
  };
  std::vector<Row> chain;
  // Adds the steps that give a row its issue, or only checks whether that can be known.
  const auto add_issue = [&](Row wanted, bool required) {
    chain.clear();
    for (Row row = wanted;;) {
      chain.push_back(row);
      const Slot before = after_[row];
      if ((before & 3) != kIssue || known(before)) break;
      row = static_cast<Row>(before >> 2);
    }
    for (; !chain.empty(); chain.pop_back()) {
      const Row row = chain.back();
      const auto it = issuing.more.find(row);
      std::vector<Slot> more;
      if (it != issuing.more.end())
        for (Slot slot : it->second) {
          if (known(slot)) more.push_back(slot);
          else if (!required) return;
        }
      if (!known(after_[row])) {
        if (!required) return;
        after_[row] = never;
      }
      if (!more.empty()) more_[row] = std::move(more);
      issued[row] = 1;
      steps_.push_back(row | kIssueOnly);
    }
  };

  steps_.reserve(order.schedule.size());
  for (const std::int32_t code : order.schedule) {
    const Row unit = code >= 0 ? code : ~code;
    const Span<Row> members = contract.rows_of(unit);
    if (code < 0) {
      steps_.push_back(code);
      for (Row row : members) ended[row] = 1;
      continue;
    }
    std::uint8_t& flags = flags_[unit];
    if (members.size() > 1) flags |= kRows;
    if (!contract.parents(unit).empty()) flags |= kParents;
    if (contract.has_children(unit)) flags |= kParts;
    if (!contract.any_of(unit).empty()) {
      flags |= kAny;
      std::vector<Row>& records = any_of_[unit];
      for (Row record : contract.any_of(unit))
        if (ended[record]) records.push_back(record);
    }
    const Slot before = after_[unit];
    const bool simple = members.size() == 1 && !issued[unit] && known(before) && issuing.more.count(unit) == 0;
    if (simple) {
      issued[unit] = 1;
    } else {
      for (Row row : members)
        if (!issued[row]) add_issue(row, true);
      flags |= kIssued;
    }
    steps_.push_back(unit);
    for (Row row : members) {
      started[row] = 1;
      if (!(flags & kParts)) ended[row] = 1;
    }
  }
  // What never starts may be issued all the same.
  for (Row row = 0; row < rows; ++row)
    if (!issued[row]) add_issue(row, false);
}

void Timing::patch(Span<Delay> delays, int sign) {
  for (const Delay& d : delays) {
    std::vector<std::int64_t>& to = d.place == Place::before_issue ? gap_ : d.place == Place::before_start ? hold_ : tail_;
    to[d.row] += sign * std::min(d.ns, kEndOfTime);
  }
}

void Timing::issue(Row row) {
  std::int64_t t = times_[after_[row]];
  const auto it = more_.find(row);
  if (it != more_.end())
    for (Slot slot : it->second) t = std::max(t, times_[slot]);
  times_[slot_of(row, kIssue)] = later(t, gap_[row]);
}

void Timing::start(Row unit) {
  const std::uint8_t flags = flags_[unit];
  std::int64_t* const own = &times_[slot_of(unit, kIssue)];
  if (!(flags & kIssued)) own[kIssue] = later(times_[after_[unit]], gap_[unit]);
  std::int64_t ready = 0;
  for (Row source : contract_.sources(unit)) ready = std::max(ready, times_[slot_of(source, kEnd)]);
  if (!(flags & ~kIssued)) {
    own[kStart] = later(std::max(ready, own[kIssue]), hold_[unit]);
    own[kDone] = later(own[kStart], take_[unit]);
    own[kEnd] = later(own[kDone], tail_[unit]);
    return;
  }
  if (flags & kParents)
    for (Row parent : contract_.parents(unit)) ready = std::max(ready, times_[slot_of(parent, kStart)]);
  if (flags & kAny) {
    const std::vector<Row>& records = any_of_.find(unit)->second;
    std::int64_t first = records.empty() ? 0 : kEndOfTime;
    for (Row record : records) first = std::min(first, times_[slot_of(record, kEnd)]);
    ready = std::max(ready, first);
  }
  std::int64_t begin = 0, take = 0, tail = 0;
  const Span<Row> members = contract_.rows_of(unit);
  for (Row row : members) {
    begin = std::max(begin, later(std::max(ready, times_[slot_of(row, kIssue)]), hold_[row]));
    take = std::max(take, take_[row]);
    tail = std::max(tail, tail_[row]);
  }
  const bool parts = flags & kParts;
  const std::int64_t done = parts ? -1 : later(begin, take);
  for (Row row : members) {
    std::int64_t* const to = &times_[slot_of(row, kIssue)];
    to[kStart] = begin;
    to[kDone] = done;
    to[kEnd] = parts ? -1 : later(done, tail);
  }
}

void Timing::end(Row unit) {
  std::int64_t done = times_[slot_of(unit, kStart)], tail = 0;
  for (Row child : contract_.children(unit)) done = std::max(done, times_[slot_of(child, kEnd)]);
  for (Row row : contract_.rows_of(unit)) tail = std::max(tail, tail_[row]);
  for (Row row : contract_.rows_of(unit)) {
    times_[slot_of(row, kDone)] = done;
    times_[slot_of(row, kEnd)] = later(done, tail);
  }
}

void Timing::run(Span<Delay> delays, const Pulse& pulse) {
  patch(delays, 1);
  std::int64_t total = 0;
  try {
    std::size_t left = kPulse;
    for (const std::int32_t step : steps_) {
      if (step < 0) {
        end(~step);
      } else if (step & kIssueOnly) {
        issue(step & ~kIssueOnly);
      } else {
        start(step);
      }
      if (step < 0) total = std::max(total, times_[slot_of(~step, kEnd)]);
      else if (!(step & kIssueOnly)) total = std::max(total, times_[slot_of(step, kEnd)]);
      if (--left == 0) {
        left = kPulse;
        pulse();
      }
    }
  } catch (...) {
    patch(delays, -1);
    throw;
  }
  patch(delays, -1);
  total_ = total;
}

}  // namespace tapedelay
