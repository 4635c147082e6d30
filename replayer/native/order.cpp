// The reference order and what is stuck: the rules of formats/edges/order.py.
#include <algorithm>
#include <queue>
#include <set>

#include "contract.h"
#include "pages.h"

namespace tapedelay {

namespace {

// Whether row order is the reference order: every edge goes forward, past the last part of its source.
class InRowOrder {
 public:
  explicit InRowOrder(const Contract& c) : c_(c) {}

  bool holds() {
    const Row rows = c_.rows();
    if (!c_.never().empty()) return false;
    if (c_.has_family()) {
      last_.resize(std::size_t(rows));
      for (Row u = 0; u < rows; u++) last_[u] = u;
      for (Row u = rows - 1; u >= 0; u--) {
        for (const Row p : c_.parents(u)) {
          if (p >= u) return false;
          last_[p] = std::max(last_[p], last_[u]);
        }
      }
    }
    for (Row u = 0; u < rows; u++) {
      for (const Row s : c_.sources(u)) {
        if (last(s) >= u) return false;
      }
      for (const Row s : c_.any_of(u)) {
        if (last(s) >= u) return false;
      }
    }
    return true;
  }

 private:
  Row last(Row unit) const { return last_.empty() ? unit : last_[unit]; }

  const Contract& c_;
  std::vector<Row> last_;
};

class Ordering {
 public:
  explicit Ordering(const Contract& c) : c_(c), rows_(c.rows()) {}

  Order run() {
    reserve_pages(order_.schedule, std::size_t(rows_));
    if (c_.has_family()) {
      open_.assign(std::size_t(rows_), 0);
      for (Row u = 0; u < rows_; u++) open_[u] = std::uint32_t(c_.children(u).size());
    }
    if (InRowOrder(c_).holds()) {
      for (Row u = 0; u < rows_; u++) {
        if (!c_.is_unit(u)) continue;
        order_.schedule.push_back(u);
        if (!c_.has_children(u)) end_parents(u);
      }
      return std::move(order_);
    }
    search();
    find_stuck();
    return std::move(order_);
  }

 private:
  void end_parents(Row unit) {
    if (!c_.has_family()) return;
    todo_.assign(1, unit);
    while (!todo_.empty()) {
      const Row at = todo_.back();
      todo_.pop_back();
      for (const Row p : c_.parents(at)) {
        if (--open_[p] == 0) {
          order_.schedule.push_back(~p);
          todo_.push_back(p);
        }
      }
    }
  }

  void search() {
    const std::size_t rows = std::size_t(rows_);
    first_.assign(rows + 1, 0);
    missing_.assign(rows, 0), started_.assign(rows, 0), ended_.assign(rows, 0);
    for (Row u = 0; u < rows_; u++) {
      for (const Row s : c_.sources(u)) first_[s + 1]++;
      missing_[u] = std::int64_t(c_.sources(u).size() + c_.parents(u).size() + c_.any_of(u).size());
      if (!c_.any_of(u).empty()) any_missing_[u] = c_.any_of(u).size();
      for (const Row s : c_.any_of(u)) any_targets_[s].push_back(u);
    }
    for (std::size_t r = 0; r < rows; r++) first_[r + 1] += first_[r];
    targets_.resize(first_[rows]);
    {
      std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
      for (Row u = 0; u < rows_; u++) {
        for (const Row s : c_.sources(u)) targets_[next[s]++] = u;
      }
    }
    for (const Row r : c_.never()) missing_[c_.unit(r)]++;
    for (Row u = 0; u < rows_; u++) {
      if (c_.is_unit(u) && missing_[u] == 0) heap_.push(u);
    }
    while (true) {
      while (!heap_.empty()) {
        const Row unit = heap_.top();
        heap_.pop();
        if (started_[unit]) continue;
        started_[unit] = 1;
        if (!any_missing_.empty()) consider(unit);
        order_.schedule.push_back(unit);
        if (c_.has_children(unit)) {
          for (const Row child : c_.children(unit)) ready(child);
        } else {
          end(unit);
        }
      }
      // Start the lowest wait-for-any that only lacks records which cannot come before it.
      if (can_fire_.empty()) break;
      const Row unit = *can_fire_.begin();
      can_fire_.erase(can_fire_.begin());
      missing_[unit] = 0;
      heap_.push(unit);
    }
  }

  void ready(Row unit) {
    if (--missing_[unit] == 0) heap_.push(unit);
    if (!any_missing_.empty()) consider(unit);
  }

  void consider(Row unit) {
    const auto lacking = any_missing_.find(unit);
    if (lacking == any_missing_.end()) return;
    const bool can = !started_[unit] && lacking->second < c_.any_of(unit).size() &&
                     missing_[unit] == std::int64_t(lacking->second);
    if (can) can_fire_.insert(unit);
    else can_fire_.erase(unit);
  }

  void end(Row unit) {
    todo_.assign(1, unit);
    while (!todo_.empty()) {
      const Row at = todo_.back();
      todo_.pop_back();
      ended_[at] = 1;
      for (std::uint32_t i = first_[at]; i < first_[at + 1]; i++) ready(targets_[i]);
      if (!any_targets_.empty()) {
        const auto found = any_targets_.find(at);
        if (found != any_targets_.end()) {
          for (const Row target : found->second) {
            any_missing_[target]--;
            ready(target);
          }
        }
      }
      for (const Row p : c_.parents(at)) {
        if (--open_[p] == 0) {
          order_.schedule.push_back(~p);
          todo_.push_back(p);
        }
      }
    }
  }

  void find_stuck() {
    for (Row u = 0; u < rows_; u++) {
      if (c_.is_unit(u) && !started_[u]) order_.stuck.push_back(u);
    }
    if (order_.stuck.empty()) return;
    for (const Row r : c_.never()) {
      if (!started_[c_.unit(r)]) order_.never.push_back(r);
    }
    find_cycles();
  }

  // --- cycles: a unit with children waits as start (node u) and as end (node rows + u) ---

  using Node = std::int64_t;

  Node end_of(Row unit) const { return c_.has_children(unit) ? Node(rows_) + unit : unit; }

  void waits_for(Node node, std::vector<Node>& found) const {
    found.clear();
    if (node >= rows_) {
      const Row unit = Row(node - rows_);
      if (!started_[unit]) found.push_back(unit);
      for (const Row child : c_.children(unit)) {
        if (!ended_[child]) found.push_back(end_of(child));
      }
      return;
    }
    const Row unit = Row(node);
    for (const Row s : c_.sources(unit)) {
      if (!ended_[s]) found.push_back(end_of(s));
    }
    for (const Row p : c_.parents(unit)) {
      if (!started_[p]) found.push_back(p);
    }
    for (const Row s : c_.any_of(unit)) {
      if (!ended_[s]) found.push_back(end_of(s));
    }
  }

  void find_cycles() {
    std::vector<Node> nodes(order_.stuck.begin(), order_.stuck.end());
    if (c_.has_family()) {
      // In the order in which rows name their parents, as formats/edges lists them.
      std::vector<std::uint8_t> named(std::size_t(rows_), 0);
      const Columns& t = c_.columns();
      for (Row r = 0; r < rows_; r++) {
        if (!t.ops.parent.has(r)) continue;
        for (const Row p : c_.parents(c_.unit(r))) {
          if (named[p] || !names(r, p)) continue;
          named[p] = 1;
          if (!ended_[p]) nodes.push_back(Node(rows_) + p);
        }
      }
    }
    components(nodes);
  }

  // Whether the row itself names a row of that unit as its parent.
  bool names(Row row, Row unit) const {
    const std::int64_t op = c_.columns().ops.parent.get(row);
    for (const Row member : c_.rows_of(unit)) {
      if (c_.columns().ops.op.get(member) == op) return true;
    }
    return false;
  }

  struct Frame {
    Node node;
    std::vector<Node> next;
    std::size_t at = 0;
  };

  // Tarjan's algorithm, without recursion.
  void components(const std::vector<Node>& nodes) {
    const std::size_t count = std::size_t(rows_) * (c_.has_family() ? 2 : 1);
    std::vector<std::int32_t> index(count, -1), low(count, 0);
    std::vector<std::uint8_t> on_stack(count, 0);
    std::vector<Node> stack, component;
    std::vector<Frame> work;
    std::int32_t counter = 0;
    const auto enter = [&](Node node) {
      index[node] = low[node] = counter++;
      stack.push_back(node);
      on_stack[node] = 1;
      work.emplace_back();
      work.back().node = node;
      waits_for(node, work.back().next);
    };
    for (const Node root : nodes) {
      if (index[root] >= 0) continue;
      enter(root);
      while (!work.empty()) {
        Frame& frame = work.back();
        const Node node = frame.node;
        if (frame.at < frame.next.size()) {
          const Node other = frame.next[frame.at++];
          if (index[other] < 0) enter(other);
          else if (on_stack[other]) low[node] = std::min(low[node], index[other]);
          continue;
        }
        work.pop_back();
        if (!work.empty()) low[work.back().node] = std::min(low[work.back().node], low[node]);
        if (low[node] != index[node]) continue;
        component.clear();
        while (true) {
          const Node other = stack.back();
          stack.pop_back();
          on_stack[other] = 0;
          component.push_back(other);
          if (other == node) break;
        }
        add_cycle(component);
      }
    }
  }

  void add_cycle(const std::vector<Node>& component) {
    if (component.size() == 1) {
      std::vector<Node> next;
      waits_for(component[0], next);
      if (std::find(next.begin(), next.end(), component[0]) == next.end()) return;
    }
    std::set<Row> rows;
    for (const Node n : component) {
      const Span<Row> of = c_.rows_of(Row(n >= rows_ ? n - rows_ : n));
      rows.insert(of.begin(), of.end());
    }
    order_.cycles.emplace_back(rows.begin(), rows.end());
  }

  const Contract& c_;
  Row rows_;
  Order order_;
  std::vector<std::uint32_t> first_, open_;
  std::vector<Row> targets_, todo_;
  std::vector<std::int64_t> missing_;
  std::vector<std::uint8_t> started_, ended_;
  std::unordered_map<Row, std::size_t> any_missing_;
  std::unordered_map<Row, std::vector<Row>> any_targets_;
  std::set<Row> can_fire_;
  std::priority_queue<Row, std::vector<Row>, std::greater<Row>> heap_;
};

}  // namespace

Order reference_order(const Contract& contract) { return Ordering(contract).run(); }

}  // namespace tapedelay
