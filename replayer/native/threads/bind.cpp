// The threads backend for Python: replayer/backends/threads.py.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <exception>
#include <memory>
#include <vector>

#include "../arrays.h"
#include "../bind.h"
#include "../core_tape.h"
#include "build.h"
#include "engine.h"
#include "story.h"

namespace nb = nanobind;

namespace tapedelay {
namespace {

template <class T>
using Input = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
Span<T> span(const Input<T>& from) {
  return {from.data(), from.shape(0)};
}

class Threads {
 public:
  Threads(const CoreTape& tape, const Input<std::int64_t>& first, const Input<std::int32_t>& root,
          const Input<std::int8_t>& mode, const Input<std::int32_t>& access, const Input<std::int64_t>& begin,
          const Input<std::int64_t>& end, const Input<std::int32_t>& roots, const Input<std::int64_t>& root_begin,
          const Input<std::int64_t>& root_end, std::int64_t bytes, const Input<std::int64_t>& gap_ns,
          const Input<std::int64_t>& duration_ns, bool values) {
    const std::size_t rows = std::size_t(tape.contract.rows()), n = root.shape(0), r = roots.shape(0);
    if (first.shape(0) != rows + 1 || gap_ns.shape(0) != rows || duration_ns.shape(0) != rows)
      throw nb::value_error("one gap, duration and first range per row");
    if (mode.shape(0) != n || access.shape(0) != n || begin.shape(0) != n || end.shape(0) != n ||
        root_begin.shape(0) != r || root_end.shape(0) != r)
      throw nb::value_error("arrays of one length");
    for (std::size_t i = 0; i < rows; ++i)
      if (first.data()[i] > first.data()[i + 1]) throw nb::value_error("first ranges that ascend");
    if (first.data()[0] != 0 || first.data()[rows] != std::int64_t(n)) throw nb::value_error("all ranges have a row");
    const threads::Placed placed{span(first), span(root),  span(mode),       span(access),  span(begin),
                                 span(end),   span(roots), span(root_begin), span(root_end), bytes};
    nb::gil_scoped_release free;
    tape.in_tape([&] {
      built_ = threads::build(tape, placed, span(gap_ns), span(duration_ns));
      engine_ = std::make_unique<threads::Engine>(built_.spec, values);
    });
  }
  ~Threads() { close(); }

  void close() {
    nb::gil_scoped_release free;
    engine_.reset();
  }
  std::size_t lanes() const { return engine_ ? engine_->threads() : 0; }
  std::int64_t reads() const { return engine_ ? engine_->oracle().reads() : 0; }

  nb::tuple run(const Input<std::int32_t>& row, const Input<std::int8_t>& place, const Input<std::int64_t>& ns,
                const Input<std::int32_t>& pin, double time_scale, double timeout_s, std::size_t limit) {
    if (!engine_) throw nb::value_error("closed");
    if (place.shape(0) != row.shape(0) || ns.shape(0) != row.shape(0)) throw nb::value_error("arrays of one length");
    std::vector<threads::Delay> delays;
    for (std::size_t i = 0; i < row.shape(0); ++i) {
      if (place.data()[i] < 0 || place.data()[i] > 2) throw nb::value_error("a place below 3");
      delays.push_back({row.data()[i], threads::Place(place.data()[i]), ns.data()[i]});
    }
    threads::RunOptions options;
    options.time_scale = time_scale;
    options.timeout_ns = std::int64_t(std::min(timeout_s, 1e9) * 1e9);
    options.pin = span(pin);
    std::exception_ptr signal;
    threads::RunResult result;
    threads::Story story;
    {
      nb::gil_scoped_release free;
      result = engine_->run(delays, options, [&] {
        nb::gil_scoped_acquire hold;
        if (PyErr_CheckSignals() == 0) return false;
        signal = std::make_exception_ptr(nb::python_error());
        return true;
      });
      if (!signal) story = threads::tell(built_.spec, engine_->oracle(), result, limit);
    }
    if (signal) std::rethrow_exception(signal);
    nb::list wrong, chain;
    for (const threads::Told& w : story.wrong) {
      std::int32_t access = -1, root = -1;
      threads::Range hull{0, 0};
      if (w.row < 0) {
        root = built_.spec.last_root[w.access];
        hull = built_.spec.last_range[w.access];
      } else if (w.access >= 0) {
        access = built_.access_row[w.access];
        root = built_.spec.root[w.access];
        const Span<threads::Range> ranges = built_.spec.ranges_of(w.access);
        hull = {ranges[0].begin, ranges.back().end};
      }
      wrong.append(nb::make_tuple(w.row, access, int(w.fault), root, hull.begin, hull.end, w.at_ns, parts(w.saw),
                                  parts(w.expected), w.derived));
    }
    for (const Row r : story.chain) chain.append(r);
    return nb::make_tuple(to_numpy(std::move(result.issue_ns)), to_numpy(std::move(result.start_ns)),
                          to_numpy(std::move(result.end_ns)), wrong, story.count, nb::tuple(chain),
                          int(result.finish), result.late_row, result.late_ns);
  }

 private:
  static nb::tuple parts(const std::vector<threads::Seen>& from) {
    nb::list found;
    for (const threads::Seen& p : from) found.append(nb::make_tuple(p.begin, p.end, p.writer, int(p.state)));
    return nb::tuple(found);
  }

  threads::Built built_;
  std::unique_ptr<threads::Engine> engine_;
};

}  // namespace

void bind_threads(nb::module_& m) {
  nb::class_<Threads>(m, "Threads")
      .def(nb::init<const CoreTape&, const Input<std::int64_t>&, const Input<std::int32_t>&, const Input<std::int8_t>&,
                    const Input<std::int32_t>&, const Input<std::int64_t>&, const Input<std::int64_t>&,
                    const Input<std::int32_t>&, const Input<std::int64_t>&, const Input<std::int64_t>&, std::int64_t,
                    const Input<std::int64_t>&, const Input<std::int64_t>&, bool>(),
           nb::arg("tape"), nb::arg("first"), nb::arg("root"), nb::arg("mode"), nb::arg("access"), nb::arg("begin"),
           nb::arg("end"), nb::arg("roots"), nb::arg("root_begin"), nb::arg("root_end"), nb::arg("bytes"),
           nb::arg("gap_ns"), nb::arg("duration_ns"), nb::arg("values"))
      .def_prop_ro("threads", &Threads::lanes)
      .def_prop_ro("reads", &Threads::reads)
      .def("run", &Threads::run, nb::arg("row"), nb::arg("place"), nb::arg("ns"), nb::arg("pin"),
           nb::arg("time_scale"), nb::arg("timeout_s"), nb::arg("limit"))
      .def("close", &Threads::close);
}

}  // namespace tapedelay
