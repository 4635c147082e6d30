// The threads backend by itself: made to run under ThreadSanitizer, AddressSanitizer and UBSan.
#include <chrono>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

#include "cases.h"
#include "threads/engine.h"
#include "threads/story.h"

namespace tapedelay::threads {
namespace {

struct Touch {
  std::int32_t root;
  Mode mode;
  std::vector<Range> ranges;  // of the root
};

// Writes a program row by row; roots lie one behind the other, `kRoot` bytes each.
class Maker {
 public:
  static constexpr std::int64_t kRoot = 256;

  explicit Maker(std::int32_t queues, std::int32_t roots = 4) {
    spec.queues = queues;
    spec.bytes = roots * kRoot;
    for (std::int32_t r = 0; r < roots; ++r) {
      spec.root_id.push_back(r);
      spec.root_range.push_back({r * kRoot, (r + 1) * kRoot});
      spec.last_root.push_back(r);
      spec.last_range.push_back(spec.root_range.back());
    }
    spec.access_first.push_back(0);
    spec.range_first.push_back(0);
  }

  Row add(std::int32_t queue, std::vector<Touch> touches, std::vector<Row> sources = {}, std::int64_t ns = 1000) {
    const Row row = spec.rows++;
    spec.op.push_back(row);
    spec.unit.push_back(row);
    spec.queue.push_back(queue);
    spec.issuer.push_back(queue);
    spec.gap_ns.push_back(0);
    spec.duration_ns.push_back(ns);
    spec.on_host.push_back(queue == 0);
    spec.copies.push_back(0);
    spec.issues.push_back(1);
    for (Touch& t : touches) {
      spec.root.push_back(t.root);
      spec.mode.push_back(t.mode);
      for (const Range& r : t.ranges) spec.ranges.push_back({t.root * kRoot + r.begin, t.root * kRoot + r.end});
      spec.range_first.push_back(std::int64_t(spec.ranges.size()));
    }
    spec.access_first.push_back(spec.accesses());
    edges.push_back(std::move(sources));
    above.emplace_back();
    any.emplace_back();
    after.emplace_back();
    return row;
  }

  // Makes rows one unit, named by the last.
  void join(std::vector<Row> rows) {
    joint = std::move(rows);
    for (const Row r : joint) spec.unit[r] = joint.back();
  }

  const Spec& done(bool schedule = true) {
    if (schedule) {
      std::vector<std::vector<Row>> parts(std::size_t(spec.rows));
      for (Row u = 0; u < spec.rows; ++u)
        for (const Row p : above[u]) parts[p].push_back(u);
      for (Row u = 0; u < spec.rows; ++u) {
        if (spec.unit[u] != u) continue;
        spec.schedule.push_back(u);
        for (const Row p : above[u])
          if (parts[p].back() == u) spec.schedule.push_back(~p);
      }
    }
    spec.sources = lists(edges);
    spec.parents = lists(above);
    spec.any_of = lists(any);
    spec.issue_after[0] = lists(after);
    if (!joint.empty()) {
      std::vector<std::vector<Row>> members(std::size_t(spec.rows));
      members[joint.back()] = joint;
      spec.members = lists(members);
    }
    spec.complete();
    return spec;
  }

  Spec spec;
  std::vector<std::vector<Row>> edges, above, any, after;
  std::vector<Row> joint;

 private:
  static Lists lists(const std::vector<std::vector<Row>>& from) {
    Lists found;
    found.first.push_back(0);
    for (const auto& items : from) {
      found.item.insert(found.item.end(), items.begin(), items.end());
      found.first.push_back(std::int64_t(found.item.size()));
    }
    return found;
  }
};

Touch read(std::int32_t root, std::int64_t begin = 0, std::int64_t end = 64) { return {root, Mode::read, {{begin, end}}}; }
Touch write(std::int32_t root, std::int64_t begin = 0, std::int64_t end = 64) {
  return {root, Mode::write, {{begin, end}}};
}
Touch touch(Mode mode, std::int32_t root, std::int64_t begin = 0, std::int64_t end = 64) {
  return {root, mode, {{begin, end}}};
}

RunResult run(Engine& engine, const std::vector<Row>& pin = {}, const std::vector<Delay>& delays = {},
              std::int64_t timeout_ns = 20'000'000'000) {
  RunOptions options;
  options.timeout_ns = timeout_ns;
  options.pin = pin;
  return engine.run(delays, options, [] { return false; });
}

// A write, then a read that nothing orders after it.
Maker unordered() {
  Maker m(3);
  m.add(1, {write(0)});
  m.add(2, {read(0), write(1)});
  return m;
}

CASE(ordered_chain_over_lanes_is_clean) {
  Maker m(4);
  Row last = m.add(1, {write(0)});
  for (int i = 0; i < 60; ++i) last = m.add(1 + i % 3, {touch(Mode::update, 0), read(1), write(2, i % 32, 64 + i)}, {last});
  Engine engine(m.done(), true);
  for (int i = 0; i < 20; ++i) {
    const RunResult result = run(engine);
    EXPECT(result.finish == Finish::done);
    EXPECT(result.wrong.empty());
    for (const std::int64_t end : result.end_ns) EXPECT(end > 0);
  }
}

CASE(a_pinned_order_hits_every_time) {
  Maker m = unordered();
  Engine engine(m.done(), true);
  const std::vector<Row> right{0, ~0, 1, ~1}, early{1, ~1, 0, ~0}, during{0, 1, ~1, ~0}, over{1, 0, ~0, ~1};
  for (int i = 0; i < 200; ++i) {
    EXPECT(run(engine, right).wrong.empty());
    for (const std::vector<Row>& pin : {early, during, over}) {
      const RunResult result = run(engine, pin);
      const Story story = tell(m.spec, engine.oracle(), result, 10);
      EXPECT(story.count == 2);  // the read, and at the end what came out of it
      EXPECT(story.wrong[0].row == 1);
      EXPECT(story.wrong[0].fault == (pin == during ? Fault::torn : Fault::stale));
      EXPECT(story.wrong[0].saw[0].writer == (pin == during ? 0 : -1));
      EXPECT(story.wrong[0].expected[0].writer == 0);
      EXPECT(story.wrong[1].row == -1 && story.wrong[1].derived);
      EXPECT((story.chain == std::vector<Row>{1, -1}));
    }
  }
}

CASE(a_write_during_a_read_tears_it) {
  Maker m(3);
  m.add(1, {read(0), write(1)});
  m.add(2, {write(0, 32, 96)});
  Engine engine(m.done(), true);
  EXPECT(run(engine, {0, ~0, 1, ~1}).wrong.empty());
  for (const std::vector<Row>& pin : {std::vector<Row>{0, 1, ~1, ~0}, std::vector<Row>{0, 1, ~0, ~1}}) {
    const RunResult result = run(engine, pin);
    const Story story = tell(m.spec, engine.oracle(), result, 10);
    EXPECT(story.count == 2 && story.wrong[0].row == 0 && story.wrong[0].fault == Fault::torn);
    EXPECT(story.wrong[0].at_ns == result.start_ns[1]);
    EXPECT(story.wrong[0].saw.size() == 1 && story.wrong[0].saw[0].writer == 1);
    EXPECT(story.wrong[0].saw[0].begin == 32 && story.wrong[0].saw[0].end == 64);
  }
}

CASE(a_pin_that_the_edges_forbid_is_refused) {
  Maker m(3);
  m.add(1, {write(0)});
  m.add(2, {read(0)}, {0});
  Engine engine(m.done(), true);
  const std::vector<std::vector<Row>> bad{{1, ~1, 0, ~0}, {0, 1, ~0, ~1}, {0, ~0, 1}, {0, ~0, 1, 1}, {~0, 0, 1, ~1},
                                          {0, ~0, 1, ~7}, {0, ~0, 7, ~1}};
  for (const std::vector<Row>& pin : bad) {
    bool refused = false;
    try {
      run(engine, pin);
    } catch (const std::invalid_argument&) {
      refused = true;
    }
    EXPECT(refused);
  }
  EXPECT(run(engine, {0, ~0, 1, ~1}).wrong.empty());
}

CASE(two_writes_at_once_leave_torn_bytes) {
  Maker m(4);
  m.add(1, {write(0)});
  m.add(2, {write(0, 32, 96)});
  m.add(3, {read(0, 0, 128)}, {0, 1});
  Engine engine(m.done(), true);
  for (const std::vector<Row>& pin : {std::vector<Row>{0, 1, ~0, ~1, 2, ~2}, std::vector<Row>{0, 1, ~1, ~0, 2, ~2},
                                      std::vector<Row>{1, 0, ~0, ~1, 2, ~2}, std::vector<Row>{1, 0, ~1, ~0, 2, ~2}}) {
    const Story story = tell(m.spec, engine.oracle(), run(engine, pin), 10);
    EXPECT(story.count == 2 && story.wrong[0].row == 2 && story.wrong[0].fault == Fault::torn);
    EXPECT(story.wrong[0].saw.size() == 1 && story.wrong[0].saw[0].begin == 32 && story.wrong[0].saw[0].end == 64);
  }
  EXPECT(run(engine, {0, ~0, 1, ~1, 2, ~2}).wrong.empty());
}

CASE(a_write_inside_a_longer_one_tears_it) {
  Maker m(4);
  m.add(1, {write(0)});
  m.add(2, {write(0)}, {}, 0);
  m.add(3, {write(0)}, {}, 0);
  Engine engine(m.done(), true);
  const Story story = tell(m.spec, engine.oracle(), run(engine, {0, 1, ~1, 2, ~2, ~0}), 10);
  EXPECT(story.count == 1 && story.wrong[0].row == -1 && story.wrong[0].fault == Fault::torn);
}

CASE(reduces_commute_and_writes_do_not_pass_them) {
  Maker m(5);
  m.add(1, {touch(Mode::reduce, 0)});
  m.add(2, {touch(Mode::reduce, 0, 3, 61)});
  m.add(3, {touch(Mode::reduce, 0)});
  m.add(4, {read(0)}, {0, 1, 2});
  Engine engine(m.done(), true);
  EXPECT(run(engine, {2, 1, 0, ~2, ~0, ~1, 3, ~3}).wrong.empty());
  for (int i = 0; i < 30; ++i) EXPECT(run(engine).wrong.empty());

  Maker n(4);
  n.add(1, {touch(Mode::reduce, 0)});
  n.add(2, {write(0)});
  n.add(3, {read(0)}, {0, 1});
  Engine other(n.done(), true);
  EXPECT(run(other, {0, ~0, 1, ~1, 2, ~2}).wrong.empty());
  EXPECT(run(other, {1, ~1, 0, ~0, 2, ~2}).wrong.size() == 2);
  EXPECT(run(other, {0, 1, ~1, ~0, 2, ~2}).wrong.size() == 2);
}

CASE(an_op_that_writes_its_bytes_twice_is_alone) {
  Maker m(3);
  m.add(1, {write(0), write(0, 8, 40), touch(Mode::reduce, 0, 16, 96), touch(Mode::update, 0, 5, 9)});
  m.add(2, {read(0, 0, 128)}, {0});
  Engine engine(m.done(), true);
  for (int i = 0; i < 20; ++i) EXPECT(run(engine).wrong.empty());
}

CASE(copies_move_bytes_of_any_place_and_length) {
  Maker m(3);
  m.add(1, {write(0, 0, 200)});
  for (int i = 0; i < 24; ++i) {
    const Row row = m.add(1 + i % 2, {{0, Mode::read, {{i, i + 20}, {i + 50, i + 61}}}, {1, Mode::write, {{2 * i, 2 * i + 29}}}},
                          {m.spec.rows - 1});
    m.spec.copies[row] = 1;
  }
  const Row same = m.add(1, {{1, Mode::read, {{0, 90}}}, {1, Mode::write, {{30, 120}}}}, {m.spec.rows - 1});
  m.spec.copies[same] = 1;
  Engine engine(m.done(), true);
  for (int i = 0; i < 10; ++i) EXPECT(run(engine).wrong.empty());
}

CASE(a_collective_starts_when_all_of_it_is_issued) {
  Maker m(4);
  const Row a = m.add(1, {write(0)});
  const Row b = m.add(2, {touch(Mode::update, 0, 64, 128), read(1)});
  m.spec.gap_ns[b] = 2'000'000;
  m.join({a, b});
  m.add(3, {read(0, 0, 128)}, {b});
  Engine engine(m.done(), true);
  const RunResult result = run(engine, {}, {{a, Place::before_start, 1'000'000}});
  EXPECT(result.wrong.empty());
  EXPECT(result.start_ns[a] == result.start_ns[b] && result.start_ns[a] >= 2'000'000);
}

CASE(parts_of_an_op_are_no_strangers_to_it) {
  Maker m(4);
  const Row whole = m.add(1, {read(0), touch(Mode::update, 1)});
  for (int i = 0; i < 2; ++i) {
    const Row part = m.add(2, {read(0), touch(Mode::update, 1, i * 32, i * 32 + 32)});
    m.above[part] = {whole};
  }
  m.edges[2] = {1};
  m.add(3, {touch(Mode::update, 1)});
  Engine engine(m.done(), true);
  EXPECT(run(engine, {0, 1, ~1, 2, ~2, ~0, 3, ~3}).wrong.empty());
  const RunResult result = run(engine, {0, 1, ~1, 3, ~3, 2, ~2, ~0});
  EXPECT(!result.wrong.empty());
}

CASE(any_of_several_is_enough) {
  Maker m(4);
  m.add(1, {write(0)}, {}, 50'000'000);
  m.add(2, {write(1)});
  const Row wait = m.add(3, {read(1)});
  m.any[wait] = {0, 1};
  Engine engine(m.done(), true);
  const RunResult result = run(engine);
  EXPECT(result.wrong.empty() && result.end_ns[wait] < result.end_ns[0]);
}

CASE(life_ends) {
  Maker m(4);
  m.add(1, {read(0)}, {}, 3'000'000);
  m.add(2, {}, {}, 0);
  std::vector<std::vector<Row>> frees{{1}}, ends{{1}, {}};
  m.spec.frees.first = {0, 1};
  m.spec.frees.item = {1};
  m.spec.destroys.first = {0, 1, 1};
  m.spec.destroys.item = {1};
  Engine engine(m.done(), true);
  EXPECT(run(engine, {0, ~0, 1, ~1}).wrong.empty());
  for (const std::vector<Row>& pin : {std::vector<Row>{1, ~1, 0, ~0}, std::vector<Row>{0, 1, ~1, ~0}}) {
    const Story story = tell(m.spec, engine.oracle(), run(engine, pin), 10);
    EXPECT(story.count == 2);
    EXPECT(story.wrong[0].fault == Fault::freed && story.wrong[1].fault == Fault::destroyed);
  }
}

CASE(what_never_ends_is_given_up) {
  Maker m(3);
  m.add(1, {write(0)});
  m.add(2, {read(0)});
  m.edges[0] = {1};
  m.edges[1] = {0};
  m.done(false);
  m.spec.schedule = {0, 1};  // the order says that they start, the edges that they do not
  Engine engine(m.spec, false);
  const auto begin = std::chrono::steady_clock::now();
  const RunResult result = run(engine, {}, {}, 200'000'000);
  EXPECT(result.finish == Finish::stuck);
  EXPECT(result.start_ns[0] == -1 && result.issue_ns[0] >= 0);
  EXPECT(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

CASE(what_takes_too_long_is_told_from_what_is_stuck) {
  Maker m(3);
  m.add(1, {write(0)});
  const Row late = m.add(2, {read(0)}, {0});
  m.spec.gap_ns[late] = std::int64_t(1) << 61;
  Engine engine(m.done(), true);
  const RunResult result = run(engine, {}, {}, 200'000'000);
  EXPECT(result.finish == Finish::late && result.late_row == late);
  EXPECT(result.end_ns[0] >= 0);
}

CASE(an_interrupt_leaves_the_engine_usable) {
  Maker m(3);
  const Row slow = m.add(1, {write(0)}, {}, 3'600'000'000'000);
  m.add(2, {read(0)}, {slow});
  Engine engine(m.done(), true);
  int asked = 0;
  RunOptions options;
  EXPECT(engine.run({}, options, [&] { return ++asked == 2; }).finish == Finish::interrupted);
  options.time_scale = 0;
  EXPECT(engine.run({}, options, [] { return false; }).finish == Finish::done);
}

CASE(engines_come_and_go) {
  Maker m = unordered();
  m.done();
  for (int i = 0; i < 50; ++i) Engine engine(m.spec, i % 2 == 0);
  Maker none(1);
  none.done();
  Engine engine(none.spec, true);
  EXPECT(run(engine).finish == Finish::done);
}

// Random programs in which all that conflicts is ordered: clean under any delays.
CASE(random_ordered_programs_are_clean) {
  std::mt19937 random(7);
  const auto pick = [&](int limit) { return int(random() % unsigned(limit)); };
  for (int round = 0; round < 25; ++round) {
    Maker m(5);
    std::vector<std::vector<Touch>> all;
    for (Row row = 0; row < 40; ++row) {
      std::vector<Touch> touches;
      for (int i = pick(4); i >= 0; --i) {
        const std::int64_t begin = pick(100);
        touches.push_back(touch(Mode(pick(5)), pick(3), begin, begin + 1 + pick(60)));
      }
      std::vector<Row> sources;
      for (Row other = 0; other < row; ++other) {
        bool conflict = false;
        for (const Touch& a : touches)
          for (const Touch& b : all[other])
            conflict = conflict || (a.root == b.root && a.ranges[0].begin < b.ranges[0].end &&
                                    b.ranges[0].begin < a.ranges[0].end && (writes(a.mode) || writes(b.mode)) &&
                                    !(a.mode == Mode::reduce && b.mode == Mode::reduce));
        if (conflict) sources.push_back(other);
      }
      all.push_back(touches);
      const Row added = m.add(pick(5), touches, sources, 1000 * pick(20));
      m.spec.copies[added] = pick(2) == 0;
    }
    Engine engine(m.done(), true);
    for (int i = 0; i < 4; ++i) {
      std::vector<Delay> delays;
      for (int d = 0; d < 20; ++d) delays.push_back({pick(40), Place(pick(3)), pick(300'000)});
      const RunResult result = run(engine, {}, delays);
      EXPECT(result.finish == Finish::done);
      EXPECT(result.wrong.empty());
    }
  }
}

// Programs without any order: whatever happens is told, and the engine itself has no race.
CASE(random_races_do_not_break_anything) {
  std::mt19937 random(11);
  const auto pick = [&](int limit) { return int(random() % unsigned(limit)); };
  std::int64_t wrong = 0;
  for (int round = 0; round < 15; ++round) {
    Maker m(6);
    for (Row row = 0; row < 60; ++row) {
      std::vector<Touch> touches;
      for (int i = pick(3); i >= 0; --i) {
        const std::int64_t begin = pick(40);
        touches.push_back(touch(Mode(pick(5)), pick(2), begin, begin + 1 + pick(60)));
      }
      const Row added = m.add(pick(6), touches, {}, pick(3) ? 1000 * pick(40) : 0);
      m.spec.copies[added] = pick(2) == 0;
    }
    Engine engine(m.done(), true);
    for (int i = 0; i < 3; ++i) {
      const RunResult result = run(engine);
      const Story story = tell(m.spec, engine.oracle(), result, 1000);
      EXPECT(story.count == result.wrong_count);
      wrong += story.count;
    }
  }
  EXPECT(wrong > 0);
}

}  // namespace
}  // namespace tapedelay::threads

int main(int argc, char** argv) { return run_cases(argc, argv); }
