#include "engine.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <queue>
#include <stdexcept>
#include <string>
#include <thread>

#ifdef __linux__
#include <sys/prctl.h>
#endif

namespace tapedelay::threads {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(50);  // how often the calling thread looks around
constexpr std::int64_t kSpinNs = 10'000;               // shorter waits cost more than they take
constexpr std::int64_t kForever = std::int64_t(1) << 62;

std::int64_t clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

std::int64_t plus(std::int64_t a, std::int64_t b) { return a > kForever - b ? kForever : a + b; }

}  // namespace

struct Engine::Lane {
  struct Task {
    std::int64_t at_ns;
    std::int64_t number;  // ties: first come, first served; for turns their number
    Do what;
    Row row;
    bool operator>(const Task& other) const {
      return at_ns != other.at_ns ? at_ns > other.at_ns : number > other.number;
    }
  };
  using Heap = std::priority_queue<Task, std::vector<Task>, std::greater<Task>>;

  std::thread thread;
  std::mutex mutex;
  std::condition_variable woken;
  std::vector<Task> inbox;  // guarded by `mutex`

  // The thread's own.
  std::vector<Task> taken;
  std::deque<Task> todo;
  Heap timers, turns;  // `turns`: by the number of their turn
  std::int64_t numbers = 0;
  Found found;
};

Engine::Engine(const Spec& spec, bool values) : spec_(spec), values_(values), oracle_(spec) {
  plan();
  if (values) oracle_.learn();
  lane_.assign(std::size_t(spec.queues), -1);
  const auto add = [&](std::int32_t queue) {
    if (lane_[queue] >= 0) return;
    lane_[queue] = std::int32_t(lanes_.size());
    lanes_.push_back(std::make_unique<Lane>());
  };
  for (Row row = 0; row < spec.rows; ++row) {
    add(spec.queue[row]);
    add(spec.issuer[row]);
  }
  try {
    for (auto& lane : lanes_) lane->thread = std::thread([this, own = lane.get()] { serve(*own); });
  } catch (...) {
    close();
    throw;
  }
}

Engine::~Engine() { close(); }

void Engine::close() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  for (auto& lane : lanes_)
    if (lane->thread.joinable()) lane->thread.join();
}

// What each run starts with: how much each start and issue waits for, and what never happens.
void Engine::plan() {
  const std::size_t n = std::size_t(spec_.rows);
  starts_.assign(n, 0);
  ends_.assign(n, 0);
  for (const Row u : spec_.schedule) {
    if (u >= 0) starts_[u] = 1;
    if (u < 0 || !spec_.open(u)) ends_[u < 0 ? ~u : u] = 1;
  }
  start_needs_.assign(n, 0);
  issue_needs_.assign(n, 0);
  parts_needs_.assign(n, 0);
  duration_ns_.assign(n, 0);
  for (Row row = 0; row < spec_.rows; ++row) {
    for (const Lists& after : spec_.issue_after) issue_needs_[row] += std::int32_t(after.of(row).size());
    issue_needs_[row] += !spec_.issues[row];
    steps_ += spec_.issues[row];
    const Row unit = spec_.unit[row];
    ++start_needs_[unit];  // its issue
    duration_ns_[unit] = std::max(duration_ns_[unit], spec_.duration_ns[row]);
    if (unit != row) continue;
    start_needs_[unit] += std::int32_t(spec_.sources.of(unit).size() + spec_.parents.of(unit).size());
    start_needs_[unit] += !spec_.any_of.of(unit).empty();
    start_needs_[unit] += !starts_[unit];  // what it waits for may be no edge
    parts_needs_[unit] = std::int32_t(spec_.children.of(unit).size());
    steps_ += starts_[unit] + ends_[unit];
  }
  for (Row row = 0; row < spec_.rows; ++row)
    if (starts_[spec_.unit[row]] && !spec_.issues[row])
      throw std::invalid_argument("row " + std::to_string(row) + " starts without being issued");
  start_left_.reset(new std::atomic<std::int32_t>[n]);
  issue_left_.reset(new std::atomic<std::int32_t>[n]);
  parts_left_.reset(new std::atomic<std::int32_t>[n]);
  any_left_.reset(new std::atomic<std::uint8_t>[n]);
  if (!spec_.members.item.empty()) ready_ns_.reset(new std::atomic<std::int64_t>[n]);
  delayed_.assign(n, 0);
}

void Engine::check_pin(Span<Row> pin) const {
  const std::size_t n = std::size_t(spec_.rows);
  std::vector<std::int64_t> start(n, -1), end(n, -1), issue(n, -1);
  const auto expect = [](bool holds, const std::string& what) {
    if (!holds) throw std::invalid_argument(what);
  };
  std::size_t events = 0;
  for (std::size_t u = 0; u < n; ++u) events += std::size_t(starts_[u] + ends_[u]);
  expect(pin.size() == events, std::to_string(pin.size()) + " events instead of " + std::to_string(events));
  for (std::size_t i = 0; i < pin.size(); ++i) {
    const Row u = pin[i] < 0 ? ~pin[i] : pin[i];
    expect(u < spec_.rows && spec_.unit[u] == u && (pin[i] < 0 ? ends_ : starts_)[u],
           "event " + std::to_string(i) + " is of row " + std::to_string(u));
    std::int64_t& at = pin[i] < 0 ? end[u] : start[u];
    expect(at < 0, "row " + std::to_string(u) + " twice");
    at = std::int64_t(i);
  }
  for (Row row = 0; row < spec_.rows; ++row) {
    for (const Row other : spec_.issue_after[0].of(row)) issue[row] = std::max(issue[row], issue[other]);
    for (const Row other : spec_.issue_after[1].of(row)) issue[row] = std::max(issue[row], start[spec_.unit[other]]);
    for (const Row other : spec_.issue_after[2].of(row)) issue[row] = std::max(issue[row], end[spec_.unit[other]]);
    const Row unit = spec_.unit[row];
    const std::string name = "row " + std::to_string(row);
    if (start[unit] >= 0) expect(issue[row] < start[unit], name + " starts before its issue");
    if (unit != row || start[row] < 0) continue;
    expect(end[row] < 0 || start[row] < end[row], name + " ends before its start");
    for (const Row s : spec_.sources.of(row))
      expect(end[s] >= 0 && end[s] < start[row], name + " starts before the end of row " + std::to_string(s));
    for (const Row p : spec_.parents.of(row)) {
      expect(start[p] >= 0 && start[p] < start[row], name + " starts before row " + std::to_string(p));
      expect(end[p] < 0 || end[row] < end[p], name + " ends after row " + std::to_string(p));
    }
    const Span<Row> any = spec_.any_of.of(row);
    expect(any.empty() || std::any_of(any.begin(), any.end(),
                                      [&](Row s) { return end[s] >= 0 && end[s] < start[row]; }),
           name + " starts before all that it waits for");
  }
}

void Engine::prepare(Span<Delay> delays, const RunOptions& options) {
  for (const Delay& d : delays_) delayed_[d.row] = 0;
  delays_.assign(delays.begin(), delays.end());
  std::sort(delays_.begin(), delays_.end(), [](const Delay& a, const Delay& b) {
    return a.row != b.row ? a.row < b.row : a.place < b.place;
  });
  longest_delay_ns_ = 0;
  for (const Delay& d : delays_) {
    if (d.row < 0 || d.row >= spec_.rows || d.ns < 0) {
      delays_.clear();
      throw std::invalid_argument("a delay of row " + std::to_string(d.row));
    }
    longest_delay_ns_ = std::max(longest_delay_ns_, d.ns);
  }
  for (const Delay& d : delays_) delayed_[d.row] = 1;
  options_ = options;
  const std::size_t n = std::size_t(spec_.rows);
  for (std::size_t i = 0; i < n; ++i) {
    start_left_[i].store(start_needs_[i], std::memory_order_relaxed);
    issue_left_[i].store(issue_needs_[i], std::memory_order_relaxed);
    parts_left_[i].store(parts_needs_[i], std::memory_order_relaxed);
    any_left_[i].store(1, std::memory_order_relaxed);
    if (ready_ns_) ready_ns_[i].store(0, std::memory_order_relaxed);
  }
  if (pinned()) {
    start_turn_.assign(n, -1);
    end_turn_.assign(n, -1);
    turn_lane_.assign(options.pin.size(), 0);
    for (std::size_t i = 0; i < options.pin.size(); ++i) {
      const Row code = options.pin[i], u = code < 0 ? ~code : code;
      (code < 0 ? end_turn_ : start_turn_)[u] = std::int64_t(i);
      turn_lane_[i] = lane_[spec_.queue[u]];
    }
  }
  turn_.store(0, std::memory_order_relaxed);
  event_.store(0, std::memory_order_relaxed);
  ended_.store(0, std::memory_order_relaxed);
  left_.store(steps_, std::memory_order_relaxed);
  stopped_.store(steps_ == 0, std::memory_order_relaxed);
  result_ = RunResult{};
  for (auto* times : {&result_.issue_ns, &result_.start_ns, &result_.done_ns, &result_.end_ns,
                      &result_.start_event, &result_.end_event})
    times->assign(n, -1);
  for (auto& lane : lanes_) {
    lane->inbox.clear();
    lane->todo.clear();
    lane->timers = {};
    lane->turns = {};
    lane->found = {};
  }
  for (Row row = 0; row < spec_.rows; ++row)
    if (issue_needs_[row] == 0) {
      Lane& lane = lane_of(spec_.issuer[row]);
      lane.todo.push_back({0, 0, Do::follow, row});
    }
  if (values_) oracle_.reset();
}

RunResult Engine::run(Span<Delay> delays, const RunOptions& options, const std::function<bool()>& interrupted) {
  if (!options.pin.empty()) check_pin(options.pin);
  prepare(delays, options);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    failed_ = nullptr;
    playing_ = lanes_.size();
    ++round_;
    origin_ns_ = clock_ns();
  }
  changed_.notify_all();
  const bool asked = wait(interrupted);
  if (failed_) std::rethrow_exception(failed_);
  for (auto& lane : lanes_) {
    result_.wrong_count += lane->found.count;
    for (Wrong& wrong : lane->found.kept) result_.wrong.push_back(std::move(wrong));
  }
  std::stable_sort(result_.wrong.begin(), result_.wrong.end(),
                   [](const Wrong& a, const Wrong& b) { return a.event < b.event; });
  if (asked) {
    result_.finish = Finish::interrupted;
  } else if (left_.load() > 0) {
    result_.finish = Finish::stuck;
    for (auto& lane : lanes_)
      if (!lane->timers.empty() && (result_.late_row < 0 || lane->timers.top().at_ns < result_.late_ns)) {
        result_.finish = Finish::late;
        result_.late_row = lane->timers.top().row;
        result_.late_ns = lane->timers.top().at_ns;
      }
  } else if (values_ && spec_.rows > 0) {
    const std::int64_t last = *std::max_element(result_.end_ns.begin(), result_.end_ns.end());
    Found found;
    oracle_.last_reads({std::max<std::int64_t>(last, 0), event_.load(), true}, found);
    result_.wrong_count += found.count;
    for (Wrong& wrong : found.kept) result_.wrong.push_back(std::move(wrong));
  }
  return std::move(result_);
}

// Returns whether the run was interrupted. All lanes are at rest afterwards.
bool Engine::wait(const std::function<bool()>& interrupted) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto at_rest = [&] { return playing_ == 0; };
  std::int64_t seen = 0, since = clock_ns();
  const std::int64_t limit = plus(options_.timeout_ns, longest_delay_ns_);
  bool asked = false;
  while (!changed_.wait_for(lock, kLook, at_rest)) {
    if (stopped_.load()) continue;
    lock.unlock();
    const std::int64_t ends = ended_.load(std::memory_order_relaxed), time = clock_ns();
    if (ends != seen) {
      seen = ends;
      since = time;
    }
    try {
      asked = interrupted && interrupted();
    } catch (...) {
      asked = true;
    }
    if (asked || time - since >= limit) stop();
    lock.lock();
  }
  return asked;
}

void Engine::stop() {
  stopped_.store(true);
  for (auto& lane : lanes_) {
    { const std::lock_guard<std::mutex> lock(lane->mutex); }
    lane->woken.notify_all();
  }
}

// --- a lane ---

void Engine::serve(Lane& lane) {
#ifdef __linux__
  prctl(PR_SET_TIMERSLACK, 1);  // waits end when they should, not up to 50 us later
#endif
  std::uint64_t round = 0;
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [&] { return closing_ || round_ != round; });
      if (closing_) return;
      round = round_;
    }
    std::exception_ptr failed;
    try {
      play(lane);
    } catch (...) {
      failed = std::current_exception();
      stop();
    }
    bool last = false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (failed) failed_ = failed;
      last = --playing_ == 0;
    }
    if (last) changed_.notify_all();
  }
}

void Engine::play(Lane& lane) {
  while (!stopped_.load(std::memory_order_relaxed)) {
    // What others ask for.
    {
      const std::lock_guard<std::mutex> lock(lane.mutex);
      lane.taken.swap(lane.inbox);
    }
    for (const Lane::Task& task : lane.taken) lane.todo.push_back(task);
    lane.taken.clear();
    // What is due.
    if (!lane.timers.empty()) {
      const std::int64_t time = now();
      while (!lane.timers.empty() && lane.timers.top().at_ns <= time) {
        lane.todo.push_back(lane.timers.top());
        lane.timers.pop();
      }
    }
    if (!lane.todo.empty()) {
      const Lane::Task task = lane.todo.front();
      lane.todo.pop_front();
      handle(lane, task.what, task.row, task.at_ns);
      continue;
    }
    if (pinned() && !lane.turns.empty() && lane.turns.top().number == turn_.load(std::memory_order_acquire)) {
      take_turn(lane);
      continue;
    }
    const std::int64_t due = lane.timers.empty() ? kForever : lane.timers.top().at_ns;
    if (due - now() < kSpinNs) continue;
    std::unique_lock<std::mutex> lock(lane.mutex);
    const auto called = [&] {
      return !lane.inbox.empty() || stopped_.load(std::memory_order_relaxed) ||
             (pinned() && !lane.turns.empty() && lane.turns.top().number == turn_.load(std::memory_order_acquire));
    };
    if (due == kForever)
      lane.woken.wait(lock, called);
    else
      lane.woken.wait_until(lock, Clock::time_point(std::chrono::nanoseconds(plus(origin_ns_, due))), called);
  }
}

void Engine::handle(Lane& lane, Do what, Row row, std::int64_t at_ns) {
  switch (what) {
    case Do::follow: {
      // A thread that is late makes up for it in its gap, not in a delay.
      const std::int64_t due = plus(at_ns, scaled(spec_.gap_ns[row])), extra = delay(row, Place::before_issue);
      later(lane, Do::issue, row, extra == 0 ? due : plus(std::max(due, now()), extra));
      return;
    }
    case Do::issue: {
      result_.issue_ns[row] = now();
      count_down();
      reached(lane, At::issue, row, at_ns);
      one_less(lane, spec_.unit[row], true);
      return;
    }
    case Do::ready: {
      std::int64_t due = at_ns;
      const Span<Row> rows = spec_.rows_of(row);
      for (const Row r : rows) {
        const std::int64_t hold = delay(r, Place::before_start);
        if (hold == 0) continue;
        const std::int64_t from =
            rows.size() == 1 ? now() : std::max(ready_ns_[row].load(std::memory_order_relaxed), result_.issue_ns[r]);
        due = std::max(due, plus(from, hold));
      }
      later(lane, Do::start, row, due);
      return;
    }
    case Do::start:
      if (pinned())
        lane.turns.push({0, start_turn_[row], what, row});
      else
        begin(lane, row, event_.fetch_add(1, std::memory_order_relaxed));
      return;
    case Do::done:
    case Do::parts:
      if (pinned())
        lane.turns.push({0, end_turn_[row], what, row});
      else
        finish(lane, row, event_.fetch_add(1, std::memory_order_relaxed));
      return;
    case Do::leave:
      leave(lane, row);
      return;
  }
}

// At once if it is time, else when it is.
void Engine::later(Lane& lane, Do what, Row row, std::int64_t due_ns) {
  if (due_ns <= now())
    lane.todo.push_front({due_ns, 0, what, row});
  else
    lane.timers.push({due_ns, lane.numbers++, what, row});
}

void Engine::take_turn(Lane& lane) {
  const Lane::Task task = lane.turns.top();
  lane.turns.pop();
  if (task.what == Do::start)
    begin(lane, task.row, task.number);
  else
    finish(lane, task.row, task.number);
  const std::int64_t next = task.number + 1;
  event_.store(next, std::memory_order_relaxed);
  turn_.store(next, std::memory_order_release);
  if (next == std::int64_t(turn_lane_.size())) return;
  Lane& other = *lanes_[std::size_t(turn_lane_[next])];
  if (&other == &lane) return;
  { const std::lock_guard<std::mutex> lock(other.mutex); }
  other.woken.notify_one();
}

void Engine::begin(Lane& lane, Row unit, std::int64_t event) {
  const bool open = spec_.open(unit);
  const bool instant = !open && (pinned() ? end_turn_[unit] == event + 1 : duration_ns_[unit] == 0);
  const std::int64_t time = now();
  for (const Row row : spec_.rows_of(unit)) result_.start_ns[row] = time;
  result_.start_event[unit] = event;
  if (values_) oracle_.start(unit, {time, event, instant}, lane.found);
  count_down();
  for (const Row row : spec_.rows_of(unit)) reached(lane, At::start, row, time);
  for (const Row child : spec_.children.of(unit)) one_less(lane, child, false);
  if (!open) later(lane, Do::done, unit, plus(time, scaled(duration_ns_[unit])));
}

void Engine::finish(Lane& lane, Row unit, std::int64_t event) {
  const bool instant = !spec_.open(unit) && (pinned() ? start_turn_[unit] + 1 == event : duration_ns_[unit] == 0);
  const std::int64_t time = now();
  for (const Row row : spec_.rows_of(unit)) result_.done_ns[row] = time;
  result_.end_event[unit] = event;
  if (values_) oracle_.end(unit, {time, event, instant}, lane.found);
  later(lane, Do::leave, unit, plus(time, longest(unit, Place::after_end)));
}

void Engine::leave(Lane& lane, Row unit) {
  const std::int64_t time = now();
  for (const Row row : spec_.rows_of(unit)) result_.end_ns[row] = time;
  ended_.fetch_add(1, std::memory_order_relaxed);
  for (const Row target : spec_.targets.of(unit)) one_less(lane, target, false);
  for (const Row target : spec_.any_targets.of(unit))
    if (any_left_[target].exchange(0, std::memory_order_acq_rel)) one_less(lane, target, false);
  for (const Row parent : spec_.parents.of(unit))
    if (parts_left_[parent].fetch_sub(1, std::memory_order_acq_rel) == 1)
      tell(lane, spec_.queue[parent], Do::parts, parent, time);
  for (const Row row : spec_.rows_of(unit)) reached(lane, At::end, row, time);
  count_down();
}

void Engine::reached(Lane& lane, At moment, Row row, std::int64_t at_ns) {
  for (const Row next : spec_.then_issue[int(moment)].of(row))
    if (issue_left_[next].fetch_sub(1, std::memory_order_acq_rel) == 1)
      tell(lane, spec_.issuer[next], Do::follow, next, at_ns);
}

void Engine::one_less(Lane& lane, Row unit, bool by_issue) {
  const std::int64_t time = now();
  if (!by_issue && ready_ns_) {
    std::int64_t known = ready_ns_[unit].load(std::memory_order_relaxed);
    while (known < time && !ready_ns_[unit].compare_exchange_weak(known, time, std::memory_order_relaxed)) {
    }
  }
  if (start_left_[unit].fetch_sub(1, std::memory_order_acq_rel) == 1)
    tell(lane, spec_.queue[unit], Do::ready, unit, time);
}

void Engine::tell(Lane& from, std::int32_t queue, Do what, Row row, std::int64_t at_ns) {
  Lane& to = lane_of(queue);
  if (&to == &from) {
    to.todo.push_back({at_ns, 0, what, row});
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(to.mutex);
    to.inbox.push_back({at_ns, 0, what, row});
  }
  to.woken.notify_one();
}

void Engine::count_down() {
  if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) stop();
}

std::int64_t Engine::now() const { return clock_ns() - origin_ns_; }

std::int64_t Engine::delay(Row row, Place place) const {
  if (!delayed_[row]) return 0;
  std::int64_t sum = 0;
  for (auto it = std::lower_bound(delays_.begin(), delays_.end(), row, [](const Delay& d, Row r) { return d.row < r; });
       it != delays_.end() && it->row == row; ++it)
    if (it->place == place) sum = plus(sum, it->ns);
  return sum;
}

std::int64_t Engine::longest(Row unit, Place place) const {
  std::int64_t found = 0;
  for (const Row row : spec_.rows_of(unit)) found = std::max(found, delay(row, place));
  return found;
}

std::int64_t Engine::scaled(std::int64_t ns) const {
  const double found = double(ns) * options_.time_scale;
  return found < double(kForever) ? std::int64_t(found) : kForever;
}

}  // namespace tapedelay::threads
