// The check for Python: `replayer/check/judge.py` drives it and makes words of what it finds.
#include "../bind.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "../arrays.h"
#include "ordered.h"
#include "pass.h"

namespace nb = nanobind;

namespace tapedelay::check {

namespace {

using Names = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Flags = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Asks `replayer/check/accepting.py`, once per question.
class PythonAccepting : public Accepting {
 public:
  PythonAccepting(const CoreTape& tape, nb::object asked)
      : ops_(tape.columns.ops), asked_(std::move(asked)), names_(nb::cast<Names>(asked_.attr("names"))),
        tensors_(nb::cast<Flags>(asked_.attr("tensors"))) {
    if (names_.shape(0) != std::size_t(ops_.rows) || tensors_.shape(0) != std::size_t(tape.columns.accesses.rows)) {
      throw nb::value_error("names of ops and accesses do not fit the tape");
    }
  }

  std::int32_t sort(Row row, std::int32_t access) override {
    const bool tensor = access >= 0 && tensors_.data()[access] != 0;
    const SortKey key{ops_.queue.get(row), access, tensor ? -2 : names_.data()[row], ops_.kind.get(row)};
    const auto [at, added] = sorts_.emplace(key, -1);
    if (added) {
      nb::gil_scoped_acquire held;
      at->second = nb::cast<std::int32_t>(asked_.attr("sort")(row, access));
    }
    return at->second;
  }

  bool race(Fault fault, std::int32_t root, std::int32_t first, std::int32_t second) override {
    return accepts(fault, root, -1, first, second);
  }

  bool lifetime(Fault fault, std::int32_t buffer, std::int32_t sync, std::int32_t first, std::int32_t second) override {
    return accepts(fault, buffer, sync, first, second);
  }

 private:
  struct SortKey {
    std::int32_t queue, access, name;
    std::int8_t kind;
    bool operator==(const SortKey& o) const {
      return queue == o.queue && access == o.access && name == o.name && kind == o.kind;
    }
  };
  struct SortHash {
    std::size_t operator()(const SortKey& k) const {
      return mixed(mixed(mixed(std::size_t(k.queue), std::uint64_t(k.access)), std::uint64_t(k.name)),
                   std::uint64_t(k.kind));
    }
  };

  bool accepts(Fault fault, std::int32_t memory, std::int32_t sync, std::int32_t first, std::int32_t second) {
    const auto [at, added] = accepted_.emplace(std::make_tuple(fault, memory, sync, first, second), false);
    if (added) {
      nb::gil_scoped_acquire held;
      at->second = nb::cast<bool>(asked_.attr("accepts")(int(fault), memory, sync, first, second));
    }
    return at->second;
  }

  const OpColumns& ops_;
  nb::object asked_;
  Names names_;
  Flags tensors_;
  std::unordered_map<SortKey, std::int32_t, SortHash> sorts_;
  std::map<std::tuple<Fault, std::int32_t, std::int32_t, std::int32_t, std::int32_t>, bool> accepted_;
};

// A pass and whom it asks.
class PythonPass {
 public:
  PythonPass(const CoreTape& tape, const std::vector<bool>& unseen, const nb::object& accepting,
             const std::vector<std::size_t>& sizes)
      : tape_(tape) {
    const std::vector<std::uint8_t> queues(unseen.begin(), unseen.end());
    if (queues.size() != std::size_t(tape.columns.queues.rows)) throw nb::value_error("one flag per queue is needed");
    if (!accepting.is_none()) accepting_ = std::make_unique<PythonAccepting>(tape, accepting);
    Sizes chosen;
    if (sizes.size() == 4) chosen = {sizes[0], sizes[1], sizes[2], sizes[3]};
    nb::gil_scoped_release free;
    tape.in_tape([&] { pass_ = std::make_unique<Pass>(tape, queues, accepting_.get(), chosen); });
  }

  bool advance(std::int64_t ops) {
    nb::gil_scoped_release free;
    return tape_.in_tape([&] { return pass_->advance(ops); });
  }

  nb::list found() const {
    nb::list pairs;
    for (const Pair& p : pass_->found) {
      const nb::object begin = p.bytes ? nb::cast(p.begin) : nb::none(), end = p.bytes ? nb::cast(p.end) : nb::none();
      pairs.append(nb::make_tuple(int(p.fault), p.first, p.second, p.first_access, p.second_access, p.root, p.sync,
                                  begin, end, p.definite, p.assumed, p.hull));
    }
    return pairs;
  }

  std::int64_t done() const { return pass_->done(); }
  std::int64_t accesses() const { return pass_->accesses(); }

 private:
  const CoreTape& tape_;
  std::unique_ptr<PythonAccepting> accepting_;
  std::unique_ptr<Pass> pass_;
};

// A map whose hint is where the last range was put, as in a trace.
class Remembered {
 public:
  explicit Remembered(std::size_t block) : map_(block) {}
  void cover(std::int64_t begin, std::int64_t end, std::int32_t rank) { map_.cover(begin, end, rank, hint_); }
  std::int32_t latest(std::int64_t begin, std::int64_t end) const { return map_.latest(begin, end); }
  std::int32_t top() const { return map_.top(); }
  std::size_t size() const { return map_.size(); }
  std::size_t blocks() const { return map_.blocks(); }

 private:
  LatestMap map_;
  LatestMap::Hint hint_;
};

bool touches(Kind kind) {
  return kind == Kind::host || kind == Kind::kernel || kind == Kind::compute || kind == Kind::copy ||
         kind == Kind::memset || kind == Kind::rdma || kind == Kind::coll;
}

// What the conditions of exactness ask about the ops.
nb::dict facts(const CoreTape& tape) {
  const Contract& c = tape.contract;
  const OpColumns& ops = tape.columns.ops;
  std::int64_t touching = 0, unknown = 0;
  std::vector<std::uint8_t> busy(std::size_t(tape.columns.queues.rows), 0);
  bool waits = false, sets = false;
  {
    nb::gil_scoped_release free;
    // Units some of whose parts have accesses: what those touch is what the whole touches.
    std::vector<std::uint8_t> told;
    std::vector<Row> todo;
    if (c.has_family()) told.assign(std::size_t(c.rows()), 0);
    for (Row r = 0; r < c.rows(); r++) {
      const bool any = ops.access_set.get(r) > 0;
      sets = sets || any;
      if (!any || told.empty()) continue;
      todo.assign(1, c.unit(r));
      while (!todo.empty()) {
        const Row at = todo.back();
        todo.pop_back();
        for (const Row p : c.parents(at)) {
          if (!told[p]) told[p] = 1, todo.push_back(p);
        }
      }
    }
    for (Row r = 0; r < c.rows(); r++) {
      const Kind kind = Kind(ops.kind.get(r));
      waits = waits || kind == Kind::semwait || kind == Kind::semsig || kind == Kind::alloc || kind == Kind::free ||
              kind == Kind::destroy;
      if (!touches(kind) || (!told.empty() && told[c.unit(r)])) continue;
      touching++;
      unknown += ops.access_set.get(r) == kNull;
      busy[ops.queue.get(r)] = 1;
    }
  }
  nb::dict found;
  found["touching"] = touching, found["unknown"] = unknown, found["waits"] = waits, found["sets"] = sets;
  nb::list queues;
  for (std::size_t q = 0; q < busy.size(); q++) {
    if (busy[q]) queues.append(q);
  }
  found["busy"] = queues;
  return found;
}

Array<std::uint8_t> in_order(const CoreTape& tape, const Names& first, const Names& second) {
  if (first.shape(0) != second.shape(0)) throw nb::value_error("pairs need two rows each");
  const Span<Row> a{first.data(), first.shape(0)}, b{second.data(), second.shape(0)};
  for (const Span<Row>& rows : {a, b}) {
    for (const Row row : rows) {
      if (row < 0 || row >= tape.contract.rows()) throw nb::value_error("a row that the tape has not");
    }
  }
  std::vector<std::uint8_t> found;
  {
    nb::gil_scoped_release free;
    found = tape.in_tape([&] { return ordered(tape, a, b); });
  }
  return to_numpy(std::move(found));
}

}  // namespace

void bind(nb::module_& m) {
  nb::class_<PythonPass>(m, "Pass", "One pass of the check over a tape.")
      .def(nb::init<const CoreTape&, const std::vector<bool>&, const nb::object&, const std::vector<std::size_t>&>(),
           nb::arg("tape"), nb::arg("unseen"), nb::arg("accepting").none(),
           nb::arg("sizes") = std::vector<std::size_t>(), nb::keep_alive<1, 2>())
      .def("advance", &PythonPass::advance, nb::arg("ops"))
      .def("found", &PythonPass::found)
      .def_prop_ro("done", &PythonPass::done)
      .def_prop_ro("accesses", &PythonPass::accesses);
  nb::class_<Remembered>(m, "LatestMap", "A map from bytes to the latest op that touched them.")
      .def(nb::init<std::size_t>(), nb::arg("block") = LatestMap::kBlock)
      .def("cover", &Remembered::cover, nb::arg("begin"), nb::arg("end"), nb::arg("rank"))
      .def("latest", &Remembered::latest, nb::arg("begin"), nb::arg("end"))
      .def_prop_ro("top", &Remembered::top)
      .def_prop_ro("size", &Remembered::size)
      .def_prop_ro("blocks", &Remembered::blocks);
  m.def("ordered", &in_order, nb::arg("tape"), nb::arg("first"), nb::arg("second"));
  m.def("check_facts", &facts, nb::arg("tape"));
}

}  // namespace tapedelay::check

namespace tapedelay {

void bind_check(nanobind::module_& m) { check::bind(m); }

}  // namespace tapedelay
