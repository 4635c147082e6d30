// The virtual backend for Python: replayer/backends/virtual.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <vector>

#include "../arrays.h"
#include "../bind.h"
#include "../core_tape.h"
#include "events.h"
#include "issuing.h"
#include "timing.h"
#include "values.h"

namespace nb = nanobind;

namespace tapedelay {
namespace {

template <class T>
using Input = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Ctrl-C ends a run.
void check_signals() {
  nb::gil_scoped_acquire hold;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

struct Delays {
  Input<std::int32_t> row;
  Input<std::int8_t> place;
  Input<std::int64_t> ns;
};

class Virtual {
 public:
  Virtual(const CoreTape& tape, const Input<std::int64_t>& gap_ns, const Input<std::int64_t>& duration_ns, bool values)
      : tape_(tape) {
    const std::size_t rows = std::size_t(tape.contract.rows());
    if (gap_ns.shape(0) != rows || duration_ns.shape(0) != rows) throw nb::value_error("one gap and duration per row");
    nb::gil_scoped_release free;
    tape.in_tape([&] {
      const Order& order = tape.order();
      timing_ = std::make_unique<Timing>(tape.contract, order, gap_ns.data(), duration_ns.data());
      if (values) values_ = std::make_unique<Values>(tape.contract, tape.buffers, order, check_signals);
      for (const std::int32_t code : order.schedule) {
        codes_.push_back(code);
        if (code >= 0 && !tape.contract.has_children(code)) codes_.push_back(~code);
      }
      parts_.assign(rows, 0);
      for (const std::int32_t code : order.schedule)
        if (code >= 0) parts_[code] = tape.contract.has_children(code);
    });
  }

  std::int64_t reads() const { return values_ ? values_->reads() : 0; }

  nb::tuple run(const Input<std::int32_t>& row, const Input<std::int8_t>& place, const Input<std::int64_t>& ns,
                std::size_t limit) {
    const std::vector<Delay> delays = read(row, place, ns, 0, row.shape(0));
    const std::size_t rows = std::size_t(tape_.contract.rows());
    std::vector<std::int64_t> issue(rows), start(rows), end(rows);
    std::int64_t wrong = 0, total = 0;
    Story story;
    {
      nb::gil_scoped_release free;
      timing_->run(delays, check_signals);
      total = timing_->total_ns();
      for (std::size_t r = 0; r < rows; ++r) {
        issue[r] = timing_->at(Row(r), kIssue);
        start[r] = timing_->at(Row(r), kStart);
        end[r] = timing_->at(Row(r), kEnd);
      }
      if (values_) wrong = values_->wrong(*timing_, check_signals);
      if (wrong != 0) story = values_->story(*timing_, wrong, limit, check_signals);
    }
    nb::list reads, chain;
    for (const WrongRead& w : story.wrong)
      reads.append(nb::make_tuple(w.row, w.access, int(w.kind), w.root, w.begin, w.end, w.at_ns, parts(w.saw),
                                  parts(w.expected), w.derived));
    for (const Row r : story.chain) chain.append(r);
    return nb::make_tuple(to_numpy(std::move(issue)), to_numpy(std::move(start)), to_numpy(std::move(end)), reads,
                          wrong, nb::tuple(chain), total >= kEndOfTime, story.own);
  }

  nb::tuple run_many(const Input<std::int64_t>& first, const Input<std::int32_t>& row, const Input<std::int8_t>& place,
                     const Input<std::int64_t>& ns) {
    const std::size_t runs = first.shape(0) == 0 ? 0 : first.shape(0) - 1;
    std::vector<std::vector<Delay>> plans;
    for (std::size_t i = 0; i < runs; ++i) {
      const std::int64_t begin = first.data()[i], end = first.data()[i + 1];
      if (begin < 0 || end < begin || end > std::int64_t(row.shape(0))) throw nb::value_error("places that ascend");
      plans.push_back(read(row, place, ns, std::size_t(begin), std::size_t(end)));
    }
    std::vector<std::int64_t> wrong(runs, 0), total(runs, 0);
    {
      nb::gil_scoped_release free;
      std::int64_t done = 0;
      for (std::size_t i = 0; i < runs; ++i) {
        timing_->run(plans[i], check_signals);
        total[i] = timing_->total_ns();
        if (values_) wrong[i] = values_->wrong(*timing_, check_signals);
        done += tape_.contract.rows();
        if (done > (1 << 18)) {
          done = 0;
          check_signals();
        }
      }
    }
    return nb::make_tuple(to_numpy(std::move(wrong)), to_numpy(std::move(total)));
  }

  nb::object interleaving(const Input<std::int32_t>& row, const Input<std::int8_t>& place,
                          const Input<std::int64_t>& ns) {
    const std::vector<Delay> delays = read(row, place, ns, 0, row.shape(0));
    std::vector<std::int32_t> found;
    {
      nb::gil_scoped_release free;
      timing_->run(delays, check_signals);
      Events events;
      found = events.sorted(codes_, parts_, *timing_);
    }
    return nb::cast(to_numpy(std::move(found)));
  }

 private:
  std::vector<Delay> read(const Input<std::int32_t>& row, const Input<std::int8_t>& place,
                          const Input<std::int64_t>& ns, std::size_t begin, std::size_t end) const {
    if (place.shape(0) != row.shape(0) || ns.shape(0) != row.shape(0)) throw nb::value_error("arrays of one length");
    std::vector<Delay> found;
    found.reserve(end - begin);
    for (std::size_t i = begin; i < end; ++i) {
      const Delay d{row.data()[i], static_cast<Place>(place.data()[i]), ns.data()[i]};
      if (d.row < 0 || d.row >= tape_.contract.rows()) throw nb::index_error("a delay names a row that is not there");
      if (place.data()[i] < 0 || place.data()[i] > 2 || d.ns < 0) throw nb::value_error("a place below 3, at least 0 ns");
      if (!found.empty() && (found.back().row > d.row || (found.back().row == d.row && found.back().place >= d.place)))
        throw nb::value_error("delays sorted by row and place, one each");
      found.push_back(d);
    }
    return found;
  }
  static nb::tuple parts(const std::vector<SeenPart>& from) {
    nb::list found;
    for (const SeenPart& p : from) found.append(nb::make_tuple(p.begin, p.end, p.writer, int(p.stands)));
    return nb::tuple(found);
  }

  const CoreTape& tape_;
  std::unique_ptr<Timing> timing_;
  std::unique_ptr<Values> values_;
  std::vector<std::int32_t> codes_;  // of every unit
  std::vector<std::uint8_t> parts_;
};

nb::tuple program_times(const CoreTape& tape) {
  std::vector<std::int64_t> gap, duration;
  {
    nb::gil_scoped_release free;
    tape.in_tape([&] {
      gap = Issuing(tape.contract).gap_ns;
      duration = durations(tape.columns.ops);
    });
  }
  return nb::make_tuple(to_numpy(std::move(gap)), to_numpy(std::move(duration)));
}

}  // namespace

void bind_virtual(nb::module_& m) {
  m.def("program_times", &program_times, nb::arg("tape"));
  nb::class_<Virtual>(m, "Virtual")
      .def(nb::init<const CoreTape&, const Input<std::int64_t>&, const Input<std::int64_t>&, bool>(), nb::arg("tape"),
           nb::arg("gap_ns"), nb::arg("duration_ns"), nb::arg("values"), nb::keep_alive<1, 2>())
      .def_prop_ro("reads", &Virtual::reads)
      .def("run", &Virtual::run, nb::arg("row"), nb::arg("place"), nb::arg("ns"), nb::arg("limit"))
      .def("run_many", &Virtual::run_many, nb::arg("first"), nb::arg("row"), nb::arg("place"), nb::arg("ns"))
      .def("interleaving", &Virtual::interleaving, nb::arg("row"), nb::arg("place"), nb::arg("ns"));
}

}  // namespace tapedelay
