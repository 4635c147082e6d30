// The check on random columns: what it finds does not depend on the sizes of its tables, and is not ordered.
#include <set>
#include <tuple>
#include <vector>

#include "cases.h"
#include "check/pass.h"
#include "core_tape.h"
#include "made.h"

namespace tapedelay {
namespace {

using Found = std::tuple<Row, Row, int, std::int32_t, std::int64_t, std::int64_t, bool>;

std::vector<Found> check(const CoreTape& tape, const check::Sizes& sizes) {
  std::vector<std::uint8_t> unseen(std::size_t(tape.columns.queues.rows), 0);
  check::Pass pass(tape, unseen, nullptr, sizes);
  std::vector<Found> found;
  for (bool more = true; more;) {
    more = pass.advance(16);
    for (const check::Pair& p : pass.found)
      found.emplace_back(p.first, p.second, int(p.fault), p.root, p.begin, p.end, p.definite);
    pass.found.clear();
  }
  return found;
}

// Units whose end comes before a unit's start, by walking the edges; for tapes without waits for any.
std::set<std::pair<Row, Row>> ordered(const Contract& c) {
  std::set<std::pair<Row, Row>> before;
  for (bool changed = true; changed;) {
    changed = false;
    for (Row u = 0; u < c.rows(); ++u) {
      if (!c.is_unit(u)) continue;
      const auto add = [&](Row a) { changed = before.insert({a, u}).second || changed; };
      for (Row s : c.sources(u)) {
        add(s);
        std::vector<Row> all;
        for (const auto& [a, b] : before)
          if (b == s) all.push_back(a);
        for (Row a : all) add(a);
      }
    }
  }
  return before;
}

CASE(findings_do_not_depend_on_sizes_and_are_not_ordered) {
  std::size_t pairs = 0;
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    Made made(seed, 2 + std::int32_t(seed));
    try {
      const CoreTape tape(made.columns, "made");
      const std::vector<Found> found = check(tape, check::Sizes{});
      check::Sizes small;
      small.block = 2, small.sets = 1, small.tried = 1, small.every = 1;
      EXPECT(check(tape, small) == found);
      const std::set<std::pair<Row, Row>> before = ordered(tape.contract);
      for (const Found& f : found) {
        const Row a = tape.contract.unit(std::get<0>(f)), b = tape.contract.unit(std::get<1>(f));
        EXPECT(before.count({a, b}) == 0);
      }
      pairs += found.size();
    } catch (const BadTape& e) {
      EXPECT(std::string(e.what()).find("part of") != std::string::npos);
    }
  }
  EXPECT(pairs > 300);
}

}  // namespace
}  // namespace tapedelay

int main(int argc, char** argv) { return run_cases(argc, argv); }
