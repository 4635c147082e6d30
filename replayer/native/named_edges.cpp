// Edges that rows name, whatever the row order: semaphores and the rows of `edges`.
#include <algorithm>
#include <limits>

#include "resolver.h"

namespace tapedelay {

void Resolver::semaphores() {
  struct Timeline {
    std::vector<std::int64_t> tops;
    std::vector<Row> rows;
  };
  std::unordered_map<std::int32_t, std::vector<Row>> binary;
  std::unordered_map<std::int32_t, Timeline> timelines;
  bool waits = false;
  for (Row r = 0; r < c_.rows_; r++) {
    waits = waits || kind(r) == Kind::semwait;
    if (kind(r) != Kind::semsig) continue;
    if (!ops_.value.has(r)) {
      binary[ops_.sync.get(r)].push_back(r);
      continue;
    }
    Timeline& t = timelines[ops_.sync.get(r)];
    const std::int64_t value = ops_.value.get(r);
    if (t.tops.empty() || value > t.tops.back()) {  // one that does not raise the maximum is first for nobody
      t.tops.push_back(value);
      t.rows.push_back(r);
    }
  }
  if (!waits) return;
  std::unordered_map<std::int32_t, std::size_t> turn;
  for (Row r = 0; r < c_.rows_; r++) {
    if (kind(r) != Kind::semwait) continue;
    const std::int32_t sync = ops_.sync.get(r);
    Row signal = kNull;
    if (!ops_.value.has(r)) {
      const std::size_t k = turn[sync]++;
      const auto found = binary.find(sync);
      if (found != binary.end() && k < found->second.size()) signal = found->second[k];
    } else if (const auto found = timelines.find(sync); found != timelines.end()) {
      const Timeline& t = found->second;
      const auto at = std::lower_bound(t.tops.begin(), t.tops.end(), ops_.value.get(r));
      if (at != t.tops.end()) signal = t.rows[std::size_t(at - t.tops.begin())];
    }
    if (ops_.sync_of.get(r) != kNull) {
      signal = row_of(ops_.sync_of.get(r));
    } else if (ops_.wait_state.get(r) == std::int8_t(WaitState::unresolved)) {
      c_.unresolved_.push_back(r);
      continue;
    }
    if (signal == kNull) {
      c_.never_.push_back(r);
    } else {
      edge(c_.unit(signal), c_.unit(r), Rule::semaphore);
    }
  }
}

void Resolver::listed_edges() {
  const EdgeColumns& t = c_.columns_.edges;
  refer(t.src, t.rows, "src");
  refer(t.dst, t.rows, "dst");
  for (std::int64_t i = 0; i < t.rows; i++) {
    const Row src = row_of(t.src.get(i)), dst = row_of(t.dst.get(i));
    if (src == kNull || dst == kNull) {
      throw BadTape("row " + std::to_string(i) + ": an edge without an end", "the ids of two ops of this tape");
    }
    edge(c_.unit(src), c_.unit(dst), Rule::edge);
  }
}

// Puts the late edges among those of their targets.
void Resolver::merge() {
  if (late_.empty()) return;
  std::stable_sort(late_.begin(), late_.end(), [](const Late& a, const Late& b) { return a.target < b.target; });
  std::size_t end = c_.source_.size(), to = end + late_.size(), next = late_.size();
  c_.source_.resize(to), c_.rule_.resize(to);
  const auto put = [&](Row source, Rule rule) {
    to--;
    c_.source_[to] = source, c_.rule_[to] = rule;
  };
  for (Row r = c_.rows_ - 1; r >= 0; r--) {
    const std::size_t begin = c_.first_[r];
    c_.first_[r + 1] = std::uint32_t(to);
    while (next > 0 && late_[next - 1].target == r && late_[next - 1].after) {
      next--;
      put(late_[next].source, late_[next].rule);
    }
    while (end > begin) {
      end--;
      put(c_.source_[end], c_.rule_[end]);
    }
    while (next > 0 && late_[next - 1].target == r) {
      next--;
      put(late_[next].source, late_[next].rule);
    }
  }
  c_.first_[0] = std::uint32_t(to);
  std::vector<Late>().swap(late_);
}

}  // namespace tapedelay
