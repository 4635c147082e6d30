#include "ordered.h"

#include <algorithm>

#include "clocks.h"
#include "pass.h"

namespace tapedelay::check {

namespace {

// What is asked when a unit starts: whether `other` has ended before.
struct Asked {
  Row unit, other;
  std::uint32_t pair;
  std::uint8_t bit;
};

}  // namespace

std::vector<std::uint8_t> ordered(const CoreTape& tape, Span<Row> first, Span<Row> second) {
  const Contract& contract = tape.contract;
  std::vector<std::uint8_t> found(first.size(), 0);
  std::vector<Asked> asked;
  asked.reserve(2 * first.size());
  for (std::size_t i = 0; i < first.size(); i++) {
    const Row a = first[i], b = second[i];
    asked.push_back({contract.unit(b), a, std::uint32_t(i), kFirstBefore});
    asked.push_back({contract.unit(a), b, std::uint32_t(i), kSecondBefore});
  }
  std::stable_sort(asked.begin(), asked.end(), [](const Asked& a, const Asked& b) { return a.unit < b.unit; });
  std::vector<Row> units;  // the units of `asked`, and where each begins
  std::vector<std::size_t> begins;
  for (std::size_t i = 0; i < asked.size(); i++) {
    if (i == 0 || asked[i].unit != asked[i - 1].unit) units.push_back(asked[i].unit), begins.push_back(i);
  }
  begins.push_back(asked.size());

  Chains chains(contract);
  Clocks clocks(contract, chains);
  for (const Row event : tape.order().schedule) {
    const Row unit = event >= 0 ? event : ~event;
    if (event < 0) {
      for (const Row row : contract.rows_of(unit)) chains.end(row);
      clocks.end_parent(unit);
      continue;
    }
    const Clock& clock = clocks.start(unit);
    for (const Row row : contract.rows_of(unit)) chains.place(row, clock);
    if (chains.count() > contract.columns().queues.rows + kMaxSideBySide) throw side_by_side();
    const auto at = std::lower_bound(units.begin(), units.end(), unit);
    if (at != units.end() && *at == unit) {
      const std::size_t group = std::size_t(at - units.begin());
      for (std::size_t i = begins[group]; i < begins[group + 1]; i++) {
        if (chains.before(asked[i].other, clock)) found[asked[i].pair] |= asked[i].bit;
      }
    }
    if (contract.has_children(unit)) continue;
    for (const Row row : contract.rows_of(unit)) chains.end(row);
    clocks.end(unit);
  }
  return found;
}

}  // namespace tapedelay::check
