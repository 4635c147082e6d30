#include "spec.h"

#include <stdexcept>
#include <string>

namespace tapedelay::threads {
namespace {

// The reverse of lists over `count` things.
Lists reversed(const Lists& lists, std::int32_t count, const char* what) {
  Lists found;
  if (lists.item.empty()) return found;
  if (lists.first.size() != std::size_t(count) + 1 || lists.first.front() != 0 ||
      lists.first.back() != std::int64_t(lists.item.size()))
    throw std::invalid_argument(std::string(what) + ": not one list per row");
  found.first.assign(std::size_t(count) + 1, 0);
  for (const std::int32_t i : lists.item) {
    if (i < 0 || i >= count) throw std::invalid_argument(std::string(what) + ": row " + std::to_string(i));
    ++found.first[i + 1];
  }
  for (std::int32_t i = 0; i < count; ++i) found.first[i + 1] += found.first[i];
  std::vector<std::int64_t> at(found.first.begin(), found.first.end() - 1);
  found.item.resize(lists.item.size());
  for (std::int32_t i = 0; i < count; ++i)
    for (const std::int32_t j : lists.of(i)) found.item[at[j]++] = i;
  return found;
}

void expect(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

}  // namespace

void Spec::complete() {
  const std::size_t n = std::size_t(rows);
  expect(op.size() == n && unit.size() == n && queue.size() == n && issuer.size() == n && gap_ns.size() == n &&
             duration_ns.size() == n && copies.size() == n && on_host.size() == n && issues.size() == n &&
             access_first.size() == n + 1,
         "columns are not of one length");
  expect(mode.size() == root.size() && range_first.size() == root.size() + 1 &&
             access_first.back() == accesses() && range_first.back() == std::int64_t(ranges.size()),
         "accesses are not of one length");
  for (std::size_t r = 0; r < n; ++r)
    expect(queue[r] >= 0 && queue[r] < queues && issuer[r] >= 0 && issuer[r] < queues && unit[r] >= Row(r) &&
               unit[r] < rows,
           "a queue or unit that is not there");
  for (const Range& r : ranges) expect(0 <= r.begin && r.begin < r.end && r.end <= bytes, "a range outside");
  for (const Row u : schedule) expect((u < 0 ? ~u : u) < rows, "a schedule of other rows");
  targets = reversed(sources, rows, "sources");
  any_targets = reversed(any_of, rows, "any_of");
  children = reversed(parents, rows, "parents");
  for (int i = 0; i < 3; ++i) then_issue[i] = reversed(issue_after[i], rows, "issue_after");
}

}  // namespace tapedelay::threads
