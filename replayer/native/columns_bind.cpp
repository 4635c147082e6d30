// Columns from Arrow arrays (the PyCapsule protocol of the C data interface), read in place.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "arrays.h"
#include "bind.h"
#include "core_tape.h"

namespace nb = nanobind;

namespace tapedelay {

namespace {

// As the Arrow C data interface lays them out.
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  std::int64_t flags, n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};
struct ArrowArray {
  std::int64_t length, null_count, offset, n_buffers, n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

template <class T>
constexpr const char* kFormat = sizeof(T) == 8 ? "l" : sizeof(T) == 4 ? "i" : "c";

std::shared_ptr<void> taken(ArrowArray* array) {
  auto* mine = new ArrowArray(*array);
  array->release = nullptr;  // moved
  return {mine, [](void* p) {
            auto* a = static_cast<ArrowArray*>(p);
            if (a->release != nullptr) a->release(a);
            delete a;
          }};
}

// One table of the dictionary that `replayer/columns.py` makes.
class Reader {
 public:
  Reader(const nb::dict& tables, const char* name, std::vector<std::shared_ptr<void>>& keep)
      : columns_(nb::cast<nb::dict>(tables[name])), keep_(keep) {}

  std::int64_t rows() const { return nb::cast<std::int64_t>(columns_["rows"]); }

  // A column that the table has not, or without any value, stays empty.
  template <class T>
  void read(const char* name, Column<T>& column) {
    if (!columns_.contains(name)) return;
    const nb::object array = columns_[name];
    if (array.is_none()) return;
    const nb::tuple capsules = nb::cast<nb::tuple>(array.attr("__arrow_c_array__")());
    const nb::object schema_capsule = capsules[0], array_capsule = capsules[1];
    auto* schema = static_cast<ArrowSchema*>(PyCapsule_GetPointer(schema_capsule.ptr(), "arrow_schema"));
    auto* got = static_cast<ArrowArray*>(PyCapsule_GetPointer(array_capsule.ptr(), "arrow_array"));
    if (schema == nullptr || got == nullptr) throw nb::python_error();
    if (std::strcmp(schema->format, kFormat<T>) != 0 || got->n_buffers != 2 || got->length != rows()) {
      throw nb::type_error(("column " + std::string(name) + " has another type or length").c_str());
    }
    column.data = static_cast<const T*>(got->buffers[1]) + got->offset;
    column.valid = got->null_count == 0 ? nullptr : static_cast<const std::uint8_t*>(got->buffers[0]);
    column.offset = got->offset;
    keep_.push_back(taken(got));
  }

 private:
  nb::dict columns_;
  std::vector<std::shared_ptr<void>>& keep_;
};

Columns read_columns(const nb::dict& tables, std::vector<std::shared_ptr<void>>& keep) {
  Columns c;
  {
    Reader t(tables, "ops", keep);
    OpColumns& o = c.ops;
    o.rows = t.rows();
    t.read("op", o.op), t.read("parent", o.parent), t.read("sync_of", o.sync_of), t.read("value", o.value);
    t.read("arg", o.arg), t.read("issue_ns", o.issue_ns), t.read("duration_ns", o.duration_ns);
    t.read("start_after_issue_ns", o.start_after_issue_ns);
    t.read("queue", o.queue), t.read("issuer", o.issuer), t.read("sync", o.sync), t.read("target", o.target);
    t.read("access_set", o.access_set), t.read("list", o.list);
    t.read("kind", o.kind), t.read("wait_state", o.wait_state), t.read("target_kind", o.target_kind);
    t.read("origin", o.origin);
  }
  {
    Reader t(tables, "queues", keep);
    c.queues.rows = t.rows();
    t.read("device", c.queues.device), t.read("process", c.queues.process), t.read("host", c.queues.host);
    t.read("in_order", c.queues.in_order), t.read("blocks", c.queues.blocks);
  }
  {
    Reader t(tables, "devices", keep);
    c.devices.rows = t.rows();
    t.read("host", c.devices.host), t.read("free_synchronises", c.devices.free_synchronises);
    t.read("alloc_synchronises", c.devices.alloc_synchronises);
    t.read("blocking_copies", c.devices.blocking_copies);
    t.read("blocks", c.devices.blocks), t.read("drains", c.devices.drains);
    t.read("in_order", c.devices.in_order), t.read("launch_in_order", c.devices.launch_in_order);
    t.read("collective_waits", c.devices.collective_waits);
  }
  {
    Reader t(tables, "buffers", keep);
    c.buffers.rows = t.rows();
    t.read("device", c.buffers.device), t.read("parent", c.buffers.parent), t.read("bytes", c.buffers.bytes);
    t.read("parent_offset", c.buffers.parent_offset), t.read("shared_key", c.buffers.shared_key);
    t.read("pinned", c.buffers.pinned);
  }
  {
    Reader t(tables, "accesses", keep);
    AccessColumns& a = c.accesses;
    a.rows = t.rows();
    t.read("set", a.set), t.read("buffer", a.buffer), t.read("offset", a.offset), t.read("bytes", a.bytes);
    t.read("offset_per_arg", a.offset_per_arg), t.read("bytes_per_arg", a.bytes_per_arg);
    t.read("unit_bytes", a.unit_bytes), t.read("mode", a.mode), t.read("origin", a.origin);
  }
  {
    Reader t(tables, "edges", keep);
    c.edges.rows = t.rows();
    t.read("src", c.edges.src), t.read("dst", c.edges.dst);
  }
  {
    Reader t(tables, "lists", keep);
    c.lists.rows = t.rows();
    t.read("list", c.lists.list), t.read("unit", c.lists.unit);
  }
  c.syncs = Reader(tables, "syncs", keep).rows();
  return c;
}

void make(CoreTape* self, const nb::dict& tables, const std::string& where) {
  std::vector<std::shared_ptr<void>> keep;
  const Columns columns = read_columns(tables, keep);
  nb::gil_scoped_release free;
  new (self) CoreTape(columns, where, std::move(keep));
}

nb::tuple edges(const CoreTape& tape) {
  const Contract& c = tape.contract;
  std::vector<std::int32_t> source, target;
  std::vector<std::int8_t> rule;
  source.reserve(std::size_t(c.edges())), target.reserve(source.capacity()), rule.reserve(source.capacity());
  for (Row u = 0; u < c.rows(); u++) {
    const Span<Row> sources = c.sources(u);
    const Span<Rule> rules = c.rules(u);
    for (std::size_t i = 0; i < sources.size(); i++) {
      source.push_back(sources[i]), target.push_back(u), rule.push_back(std::int8_t(rules[i]));
    }
  }
  return nb::make_tuple(to_numpy(std::move(source)), to_numpy(std::move(target)), to_numpy(std::move(rule)));
}

nb::dict any_of(const CoreTape& tape) {
  nb::dict found;
  for (Row u = 0; u < tape.contract.rows(); u++) {
    const Span<Row> records = tape.contract.any_of(u);
    if (!records.empty()) found[nb::int_(u)] = nb::cast(std::vector<Row>(records.begin(), records.end()));
  }
  return found;
}

const Order& order(const CoreTape& tape) {
  nb::gil_scoped_release free;
  return tape.order();
}

nb::tuple stuck(const CoreTape& tape) {
  const Order& o = order(tape);
  return nb::make_tuple(o.stuck, o.never, o.cycles);
}

constexpr std::size_t kMaxExpanded = 50'000'000;

nb::tuple accesses(const CoreTape& tape) {
  std::vector<std::int64_t> first{0}, begin, end;
  std::vector<std::int32_t> root, access;
  std::vector<std::int8_t> mode;
  {
    nb::gil_scoped_release free;
    tape.in_tape([&] {
      Ranges ranges(tape.contract, tape.buffers);
      first.reserve(std::size_t(tape.contract.rows()) + 1);
      const auto add = [&](const Access& a, Bytes bytes) {
        root.push_back(a.root), begin.push_back(bytes.begin), end.push_back(bytes.end);
        mode.push_back(std::int8_t(a.mode)), access.push_back(a.row);
      };
      for (Row r = 0; r < tape.contract.rows(); r++) {
        for (const Access& a : ranges.of(r)) {
          if (a.spans.empty()) add(a, {a.begin, a.end});
          for (const Bytes b : a.spans) add(a, b);
        }
        if (root.size() > kMaxExpanded) {
          throw TooMuch("accesses of more than 50,000,000 ranges", "a window of the tape");
        }
        first.push_back(std::int64_t(root.size()));
      }
    });
  }
  return nb::make_tuple(to_numpy(std::move(first)), to_numpy(std::move(root)), to_numpy(std::move(begin)),
                        to_numpy(std::move(end)), to_numpy(std::move(mode)), to_numpy(std::move(access)));
}

// C++ errors about a tape become the errors of formats/errors.py.
void translate(const std::exception_ptr& thrown, void*) {
  const char* type = "InvalidTape";
  const BadTape* bad = nullptr;
  try {
    std::rethrow_exception(thrown);
  } catch (const TooMuch& e) {
    type = "Unsupported", bad = &e;
  } catch (const BadTape& e) {
    bad = &e;
  }
  try {
    const nb::object error = nb::module_::import_("tapedelay.formats.errors").attr(type);
    const bool invalid = std::strcmp(type, "InvalidTape") == 0;
    nb::kwargs details;
    details["expected"] = bad->expected;
    details["where"] = bad->where;
    details["next_step"] = invalid ? "`tapedelay info --validate` lists every fault" : "take a part of it: --ops A:B";
    const nb::object made = error(bad->what(), **details);
    PyErr_SetObject(error.ptr(), made.ptr());
  } catch (nb::python_error& e) {
    e.restore();
  }
}

}  // namespace

void bind_columns(nb::module_& m) {
  nb::register_exception_translator(translate);
  nb::class_<CoreTape>(m, "Tape", "The columns of a tape with its edges; `replayer.columns.core_tape` makes one.")
      .def("__init__", &make, nb::arg("tables"), nb::arg("where"))
      .def_prop_ro("rows", [](const CoreTape& t) { return t.contract.rows(); })
      .def_ro("where", &CoreTape::where)
      .def("edges", &edges)
      .def("any_of", &any_of)
      .def("units", [](const CoreTape& t) {
        std::vector<std::int32_t> units;
        for (Row r = 0; r < t.contract.rows(); r++) units.push_back(t.contract.unit(r));
        return to_numpy(std::move(units));
      })
      .def("roots", [](const CoreTape& t) {
        std::vector<std::int32_t> roots;
        for (std::int32_t b = 0; b < t.buffers.rows(); b++) roots.push_back(t.buffers.root(b));
        return to_numpy(std::move(roots));
      })
      .def("parents", [](const CoreTape& t, Row unit) {
        const Span<Row> p = t.contract.parents(unit);
        return std::vector<Row>(p.begin(), p.end());
      })
      .def("unresolved", [](const CoreTape& t) { return t.contract.unresolved(); })
      .def("never", [](const CoreTape& t) { return t.contract.never(); })
      .def("schedule", [](const CoreTape& t) { return to_numpy(std::vector<std::int32_t>(order(t).schedule)); })
      .def("stuck", &stuck)
      .def("accesses", &accesses);
}

}  // namespace tapedelay
