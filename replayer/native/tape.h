// A tape's columns, read in place: views over Arrow buffers that the caller keeps alive.
#pragma once

#include <cstdint>

namespace tapedelay {

using Row = std::int32_t;  // row of `ops`; -1 = none
constexpr std::int32_t kNull = -1;

// Order of the words: formats/schema.py. The Python side maps a file's dictionary to these codes.
enum class Kind : std::int8_t {
  host, kernel, compute, copy, memset, rdma, record, wait, wait_any, sync, alloc, free, semsig, semwait, coll,
  destroy, mark
};
enum class Mode : std::int8_t { read, write, update, may_write, reduce };
enum class Origin : std::int8_t { observed, inferred, declared };
enum class WaitState : std::int8_t { contract, unresolved, none, foreign };
enum class Target : std::int8_t { queue, device, all };

inline bool writes(Mode m) { return m != Mode::read; }

// One column. `data` null: all rows are null. `valid` null: no row is.
template <class T>
struct Column {
  const T* data = nullptr;
  const std::uint8_t* valid = nullptr;  // Arrow validity bitmap, least significant bit first
  std::int64_t offset = 0;              // of the first row in the bitmap, in bits

  bool has(std::int64_t row) const {
    if (data == nullptr) return false;
    if (valid == nullptr) return true;
    const std::int64_t bit = row + offset;
    return (valid[bit >> 3] >> (bit & 7)) & 1;
  }
  T get(std::int64_t row, T null = static_cast<T>(kNull)) const { return has(row) ? data[row] : null; }
};

struct OpColumns {
  std::int64_t rows = 0;
  Column<std::int64_t> op, parent, sync_of, value, arg, issue_ns, start_after_issue_ns, duration_ns;
  Column<std::int32_t> queue, issuer, sync, target, access_set, list;
  Column<std::int8_t> kind, wait_state, target_kind, origin;  // codes of the enums above
};

struct QueueColumns {
  std::int64_t rows = 0;
  Column<std::int32_t> device, process;
  Column<std::int8_t> host;      // 1: a host thread
  Column<std::int8_t> in_order;  // 1 for every host thread
  Column<std::int8_t> blocks;    // 1: a legacy default queue whose profile says that it blocks the others
};

struct DeviceColumns {
  std::int64_t rows = 0;
  Column<std::int8_t> host, free_synchronises, alloc_synchronises;
  Column<std::int8_t> blocking_copies;  // bits, see contract.cpp: from {host, pinned, device} to the same
  // What debugging switches add, as sets of kinds (bits in the order of `Kind`): formats/edges/switched.py.
  Column<std::int32_t> blocks, drains, in_order, launch_in_order;
  Column<std::int8_t> collective_waits;
};

struct BufferColumns {
  std::int64_t rows = 0;
  Column<std::int32_t> device, parent, shared_key;
  Column<std::int64_t> bytes, parent_offset;
  Column<std::int8_t> pinned;  // 1: page-locked host memory
};

struct AccessColumns {
  std::int64_t rows = 0;
  Column<std::int32_t> set, buffer;
  Column<std::int64_t> offset, bytes, offset_per_arg, bytes_per_arg, unit_bytes;
  Column<std::int8_t> mode, origin;
};

struct EdgeColumns {
  std::int64_t rows = 0;
  Column<std::int64_t> src, dst;
};

struct ListColumns {
  std::int64_t rows = 0;
  Column<std::int32_t> list;
  Column<std::int64_t> unit;
};

struct Columns {
  OpColumns ops;
  QueueColumns queues;
  DeviceColumns devices;
  BufferColumns buffers;
  AccessColumns accesses;
  EdgeColumns edges;
  ListColumns lists;
  std::int64_t syncs = 0;
};

}  // namespace tapedelay
