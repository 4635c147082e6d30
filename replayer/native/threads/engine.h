// One thread per queue and host thread: each starts what is ready, lets it take its time, and ends it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "oracle.h"
#include "spec.h"

namespace tapedelay::threads {

enum class Place : std::int8_t { before_issue, before_start, after_end };

struct Delay {
  Row row;
  Place place;
  std::int64_t ns;
};

struct RunOptions {
  double time_scale = 1.0;                   // of durations and gaps
  std::int64_t timeout_ns = 20'000'000'000;  // without an end; the longest delay comes on top
  Span<Row> pin;                             // u: starts, ~u: ends; empty: free
};

// stuck: nothing ended for too long, and nothing would have; late: something was still taking its time.
enum class Finish : std::int8_t { done, stuck, late, interrupted };

struct RunResult {
  Finish finish = Finish::done;
  Row late_row = -1;              // what would have gone on next, where it is late
  std::int64_t late_ns = 0;       // and when
  std::vector<std::int64_t> issue_ns, start_ns, done_ns, end_ns;  // per row; -1: never
  std::vector<std::int64_t> start_event, end_event;               // per unit, among all starts and ends; -1: never
  std::vector<Wrong> wrong;                                       // by event, not all if there are very many
  std::int64_t wrong_count = 0;
};

class Engine {
 public:
  // Starts the threads; `values`: judge the reads. Throws std::system_error if there cannot be so many threads.
  Engine(const Spec& spec, bool values);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The calling thread asks `interrupted` now and then. Throws std::invalid_argument where the pin is no order of
  // events of this program.
  RunResult run(Span<Delay> delays, const RunOptions& options, const std::function<bool()>& interrupted);

  Oracle& oracle() { return oracle_; }
  std::size_t threads() const { return lanes_.size(); }

 private:
  struct Lane;
  // What a lane has to do: all that an issue follows is reached, issue; a unit may start, start it; its time is
  // over; its children have ended; those who wait for it may go on.
  enum class Do : std::uint8_t { follow, issue, ready, start, done, parts, leave };

  void plan();
  void check_pin(Span<Row> pin) const;
  void prepare(Span<Delay> delays, const RunOptions& options);
  bool wait(const std::function<bool()>& interrupted);
  void close();

  void serve(Lane& lane);
  void play(Lane& lane);
  void handle(Lane& lane, Do what, Row row, std::int64_t at_ns);
  void later(Lane& lane, Do what, Row row, std::int64_t due_ns);
  void begin(Lane& lane, Row unit, std::int64_t event);
  void finish(Lane& lane, Row unit, std::int64_t event);
  void leave(Lane& lane, Row unit);
  void take_turn(Lane& lane);
  void reached(Lane& lane, At moment, Row row, std::int64_t at_ns);
  void one_less(Lane& lane, Row unit, bool by_issue);
  void tell(Lane& from, std::int32_t queue, Do what, Row row, std::int64_t at_ns);
  void stop();
  void count_down();
  bool pinned() const { return !options_.pin.empty(); }
  std::int64_t now() const;
  std::int64_t delay(Row row, Place place) const;
  std::int64_t longest(Row unit, Place place) const;
  std::int64_t scaled(std::int64_t ns) const;
  Lane& lane_of(std::int32_t queue) { return *lanes_[std::size_t(lane_[queue])]; }

  const Spec& spec_;
  const bool values_;
  Oracle oracle_;
  std::vector<std::int32_t> lane_;  // of each queue; -1
  std::vector<std::unique_ptr<Lane>> lanes_;

  // As each run begins.
  std::vector<std::int32_t> start_needs_, issue_needs_, parts_needs_;
  std::vector<std::uint8_t> starts_, ends_;  // per unit: whether it ever does
  std::vector<std::int64_t> duration_ns_;    // per unit
  std::int64_t steps_ = 0;

  // Of the run.
  RunOptions options_;
  std::vector<Delay> delays_;
  std::vector<std::uint8_t> delayed_;  // per row
  std::int64_t longest_delay_ns_ = 0;
  std::unique_ptr<std::atomic<std::int32_t>[]> start_left_, issue_left_, parts_left_;
  std::unique_ptr<std::atomic<std::uint8_t>[]> any_left_;
  std::unique_ptr<std::atomic<std::int64_t>[]> ready_ns_;  // units of several rows: when all but their issues was there
  std::vector<std::int64_t> start_turn_, end_turn_;
  std::vector<std::int32_t> turn_lane_;
  std::atomic<std::int64_t> turn_{0}, event_{0}, left_{0}, ended_{0};
  std::atomic<bool> stopped_{false};
  std::int64_t origin_ns_ = 0;
  RunResult result_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t round_ = 0;  // counts runs; guarded by mutex_, as the following
  std::size_t playing_ = 0;
  bool closing_ = false;
  std::exception_ptr failed_;
};

}  // namespace tapedelay::threads
