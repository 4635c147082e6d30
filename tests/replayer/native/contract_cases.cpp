// Edges and the reference order on random columns.
#include <set>

#include "cases.h"
#include "core_tape.h"
#include "made.h"

namespace tapedelay {
namespace {

// Calls f for a few hundred random tapes; what is part of itself is no tape.
template <class F>
void each_tape(F f) {
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    Made made(seed, 1 + std::int32_t(seed * 3 % 200));
    try {
      const CoreTape tape(made.columns, "made");
      f(made, tape);
    } catch (const BadTape& e) {
      EXPECT(std::string(e.what()).find("part of") != std::string::npos);
    }
  }
}

CASE(reference_order_takes_every_ready_unit_after_its_sources) {
  std::size_t stuck = 0, started = 0;
  each_tape([&](Made&, const CoreTape& tape) {
    const Contract& c = tape.contract;
    std::set<Row> begun, ended;
    for (const std::int32_t code : tape.order().schedule) {
      if (code < 0) {
        for (Row child : c.children(~code)) EXPECT(ended.count(child) == 1);
        EXPECT(ended.insert(~code).second);
        continue;
      }
      for (Row source : c.sources(code)) EXPECT(ended.count(source) == 1);
      for (Row parent : c.parents(code)) EXPECT(begun.count(parent) == 1 && ended.count(parent) == 0);
      EXPECT(begun.insert(code).second);
      if (!c.has_children(code)) EXPECT(ended.insert(code).second);
    }
    for (Row unit : tape.order().stuck) EXPECT(begun.count(unit) == 0);
    std::size_t units = 0;
    for (Row row = 0; row < c.rows(); ++row) units += c.is_unit(row);
    EXPECT(units == begun.size() + tape.order().stuck.size());
    stuck += tape.order().stuck.size(), started += begun.size();
  });
  EXPECT(stuck > 100 && started > 1000);
}

CASE(ranges_lie_in_their_hulls) {
  std::size_t spans = 0;
  each_tape([&](Made&, const CoreTape& tape) {
    Ranges ranges(tape.contract, tape.buffers);
    for (Row row = 0; row < tape.contract.rows(); ++row)
      for (const Access& a : ranges.of(row)) {
        EXPECT(a.begin < a.end);
        std::int64_t last = a.begin - 1;
        for (const Bytes b : a.spans) {
          EXPECT(b.begin > last && b.begin < b.end && b.end <= a.end);
          last = b.end;
          ++spans;
        }
      }
  });
  EXPECT(spans > 100);
}

}  // namespace
}  // namespace tapedelay

int main(int argc, char** argv) { return run_cases(argc, argv); }
