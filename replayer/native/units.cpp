// Which ops are one, and which are part of which: collectives joined, parents and all that is above them.
#include <algorithm>
#include <map>

#include "resolver.h"

namespace tapedelay {

namespace {

constexpr std::size_t kMaxAbove = 256;  // formats/limits.py

std::string str(std::int64_t value) { return std::to_string(value); }

}  // namespace

void Resolver::kinship() {
  std::unordered_map<std::int32_t, std::vector<Row>> joint;
  for (Row r = 0; r < c_.rows_; r++) {
    if (kind(r) == Kind::coll && ops_.sync.has(r)) joint[ops_.sync.get(r)].push_back(r);
  }
  for (auto& [sync, rows] : joint) {
    if (rows.size() < 2) continue;
    if (c_.unit_.empty()) {
      c_.unit_.resize(std::size_t(c_.rows_));
      for (Row r = 0; r < c_.rows_; r++) c_.unit_[r] = r;
    }
    for (const Row r : rows) c_.unit_[r] = rows.back();
    const Row unit = rows.back();
    c_.members_.emplace(unit, std::move(rows));
  }
  if (ops_.parent.data == nullptr) return;
  for (Row r = 0; r < c_.rows_; r++) {
    const Row parent = parent_row(r);
    if (parent == kNull) continue;
    const Row child = c_.unit(r), of = c_.unit(parent);
    if (of == child) continue;
    if (c_.parent_.empty()) c_.parent_.assign(std::size_t(c_.rows_), Contract::kNone);
    Row& known = c_.parent_[child];
    if (known == Contract::kNone) {
      known = of;
    } else if (known >= 0) {
      if (known == of) continue;
      c_.several_.push_back({known, of});
      known = ~Row(c_.several_.size() - 1);
    } else {
      std::vector<Row>& all = c_.several_[~known];
      if (std::find(all.begin(), all.end(), of) != all.end()) continue;
      all.push_back(of);
    }
    relations_.emplace_back(of, child);
  }
  if (relations_.empty()) return;
  c_.child_first_.assign(std::size_t(c_.rows_) + 1, 0);
  for (const auto& r : relations_) c_.child_first_[r.first + 1]++;
  for (Row r = 0; r < c_.rows_; r++) c_.child_first_[r + 1] += c_.child_first_[r];
  c_.child_.resize(relations_.size());
  std::vector<std::uint32_t> next(c_.child_first_.begin(), c_.child_first_.end() - 1);
  for (const auto& r : relations_) c_.child_[next[r.first]++] = r.second;
}

// Counts what is above each unit, parents before children, and refuses rings.
void Resolver::climb() {
  if (!c_.has_family()) return;
  std::vector<std::uint16_t> count(std::size_t(c_.rows_), 0);  // 0: not known yet
  std::vector<std::uint8_t> on_path(std::size_t(c_.rows_), 0);
  std::map<std::vector<Row>, std::size_t> shared;
  c_.above_.resize(c_.several_.size());
  std::vector<Row> path, missing;
  for (const auto& relation : relations_) {
    path.assign(1, relation.second);
    while (!path.empty()) {
      const Row unit = path.back();
      if (count[unit] != 0) {
        path.pop_back();
        continue;
      }
      missing.clear();
      for (const Row p : c_.parents(unit)) {
        if (c_.has_parents(p) && count[p] == 0) missing.push_back(p);
      }
      for (const Row p : missing) {
        if (on_path[p]) fault(unit, "is part of itself");
      }
      if (!missing.empty()) {
        on_path[unit] = 1;
        path.insert(path.end(), missing.begin(), missing.end());
        continue;
      }
      const Row parent = c_.parent_[unit];
      std::size_t above = 0;
      if (parent >= 0) {
        above = 1 + std::size_t(count[parent]);
      } else {
        const std::vector<Row>& parents = c_.several_[~parent];
        const auto [known, added] = shared.emplace(parents, std::size_t(~parent));
        if (added) gather(parents, c_.above_[~parent]);
        else c_.above_[~parent] = c_.above_[known->second];
        above = c_.above_[~parent].size();
      }
      if (above > kMaxAbove) fault(unit, "is part of more than " + str(std::int64_t(kMaxAbove)) + " others");
      count[unit] = std::uint16_t(above);
      on_path[unit] = 0;
      path.pop_back();
    }
  }
  std::vector<std::pair<Row, Row>>().swap(relations_);
}

// All that is above units with these parents, each once.
void Resolver::gather(const std::vector<Row>& parents, std::vector<Row>& above) const {
  for (Row p : parents) {
    while (true) {
      above.push_back(p);
      const Row next = c_.parent_[p];
      if (next == Contract::kNone) break;
      if (next < 0) {
        above.insert(above.end(), c_.above_[~next].begin(), c_.above_[~next].end());
        break;
      }
      p = next;
    }
  }
  std::sort(above.begin(), above.end());
  above.erase(std::unique(above.begin(), above.end()), above.end());
}

void Resolver::fault(Row unit, const std::string& what) const {
  throw BadTape("op " + str(ops_.op.get(unit)) + " " + what,
                "an op that is no part of itself, and of at most " + str(std::int64_t(kMaxAbove)) + " others");
}

}  // namespace tapedelay
