// Random tapes in memory: the columns of many ops on host threads and queues, from a seed.
#pragma once

#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "tape.h"

namespace tapedelay {

class Made {
 public:
  explicit Made(std::uint32_t seed, std::int32_t ops) : random_(seed) {
    queues();
    buffers();
    for (std::int32_t i = 0; i < ops; ++i) op(i);
    if (number(4) == 0) edges();
    finish();
  }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;

  Columns columns;

  std::int32_t number(std::int32_t below) {
    return std::int32_t(std::uniform_int_distribution<std::int32_t>(0, below - 1)(random_));
  }

 private:
  static constexpr std::int32_t kThreads = 2, kQueues = 4, kRoots = 3, kBytes = 64, kSyncs = 6;

  template <class T>
  struct Values {  // a column; `none` is null
    std::vector<T> data;
    std::vector<std::uint8_t> valid;
    void add(T value, bool has = true) {
      if (valid.size() * 8 <= data.size()) valid.push_back(0);
      if (has) valid.back() = std::uint8_t(valid.back() | 1 << (data.size() & 7));
      data.push_back(has ? value : T(0));
    }
    void put(Column<T>& column) const { column = {data.data(), valid.data(), 0}; }
  };

  void queues() {
    for (std::int32_t q = 0; q < kThreads + kQueues; ++q) {
      queue_device_.add(q < kThreads ? 0 : 1 + q % 2);
      queue_process_.add(0);
      host_.add(q < kThreads);
      in_order_.add(q < kThreads || number(4) != 0);
      blocks_.add(0);
    }
    for (std::int32_t d = 0; d < 3; ++d) {
      device_host_.add(d == 0);
      flags_.add(0);
    }
  }

  void buffers() {
    for (std::int32_t b = 0; b < 2 * kRoots; ++b) {
      const bool part = b >= kRoots;
      buffer_device_.add(b % kRoots);
      parent_.add(b - kRoots, part);
      bytes_.add(part ? kBytes / 2 : kBytes);
      offset_.add(8, part);
      key_.add(0, false);
      pinned_.add(0);
    }
    for (std::int32_t l = 0; l < 4; ++l)
      for (std::int32_t i = 0; i <= number(4); ++i) {
        list_.add(l);
        unit_.add(number(8));
      }
    for (std::int32_t event = 0; event < 2; ++event) {  // for waits for any
      list_.add(4);
      unit_.add(event);
    }
  }

  std::int32_t access_set(bool grows, bool pools) {
    const std::int32_t set = ++sets_;
    for (std::int32_t i = 0; i <= number(3); ++i) {
      const std::int32_t begin = number(16), kind = number(3);
      access_set_.add(set);
      access_buffer_.add(number(2 * kRoots), number(12) != 0);
      access_offset_.add(begin);
      access_bytes_.add(1 + number(12));
      access_grow_offset_.add(grows && kind == 0 ? 1 : 0);
      access_grow_bytes_.add(grows && kind != 2 ? number(2) : 0);
      access_unit_.add(2, pools && kind == 1);
      mode_.add(std::int8_t(number(5)));
      access_origin_.add(0);
    }
    return set;
  }

  void op(std::int32_t i) {
    static const Kind kinds[] = {Kind::kernel, Kind::kernel, Kind::kernel, Kind::copy,   Kind::host,    Kind::record,
                                 Kind::wait,   Kind::sync,   Kind::semsig, Kind::semwait, Kind::wait_any, Kind::coll};
    Kind kind = kinds[number(12)];
    if (kind == Kind::semwait && number(3) != 0) kind = Kind::kernel;
    const bool on_host = kind == Kind::host || kind == Kind::sync;
    const std::int32_t thread = number(kThreads), queue = on_host ? thread : kThreads + number(kQueues);
    const bool touches = kind == Kind::kernel || kind == Kind::copy || kind == Kind::host || kind == Kind::coll;
    op_.add(2 * i + number(2));
    kind_.add(std::int8_t(kind));
    queue_.add(queue);
    issuer_.add(thread, on_host || number(16) != 0);
    const bool parent = touches && !on_host && number(12) == 0 && !kernels_.empty();
    op_parent_.add(parent ? kernels_[std::size_t(number(std::int32_t(kernels_.size())))] : 0, parent);
    if (kind == Kind::kernel) kernels_.push_back(op_.data.back());
    const std::int32_t sync = kind == Kind::record || kind == Kind::wait ? number(2)
                              : kind == Kind::coll                       ? 4 + number(2)
                                                                         : 2 + number(2);
    const bool synced = kind == Kind::record || kind == Kind::wait || kind == Kind::semsig || kind == Kind::semwait ||
                        (kind == Kind::coll && number(3) == 0);
    sync_.add(sync, synced);
    value_.add(1 + number(8), (kind == Kind::semsig || kind == Kind::semwait) && sync == 2);
    sync_of_.add(0, false);
    wait_state_.add(0, false);
    target_kind_.add(std::int8_t(Target::queue), kind == Kind::sync);
    target_.add(number(kThreads + kQueues), kind == Kind::sync);
    list_of_.add(kind == Kind::wait_any ? 4 : number(4));
    arg_.add(number(8));
    if (touches && (number(3) == 0 || recent_.empty())) recent_.push_back(access_set(number(3) == 0, number(4) == 0));
    set_.add(touches ? recent_[std::size_t(number(std::int32_t(recent_.size())))] : 0);
    now_ += number(40);
    issue_.add(now_, number(6) != 0);
    start_.add(number(30), number(3) == 0);
    duration_.add(number(3) == 0 ? 0 : number(60), number(5) != 0);
    origin_.add(0);
  }

  void edges() {
    for (std::int32_t i = 0; i < 4 && op_.data.size() > 1; ++i) {
      const std::int32_t a = number(std::int32_t(op_.data.size()) - 1);
      source_.add(op_.data[std::size_t(a)]);
      target_op_.add(op_.data[std::size_t(a + 1 + number(std::int32_t(op_.data.size()) - a - 1))]);
    }
  }

  void finish() {
    Columns& c = columns;
    c.ops.rows = std::int64_t(op_.data.size());
    op_.put(c.ops.op), op_parent_.put(c.ops.parent), sync_of_.put(c.ops.sync_of), value_.put(c.ops.value);
    arg_.put(c.ops.arg), issue_.put(c.ops.issue_ns), start_.put(c.ops.start_after_issue_ns);
    duration_.put(c.ops.duration_ns), queue_.put(c.ops.queue), issuer_.put(c.ops.issuer), sync_.put(c.ops.sync);
    target_.put(c.ops.target), set_.put(c.ops.access_set), list_of_.put(c.ops.list), kind_.put(c.ops.kind);
    wait_state_.put(c.ops.wait_state), target_kind_.put(c.ops.target_kind), origin_.put(c.ops.origin);
    c.queues.rows = kThreads + kQueues;
    queue_device_.put(c.queues.device), queue_process_.put(c.queues.process), host_.put(c.queues.host);
    in_order_.put(c.queues.in_order), blocks_.put(c.queues.blocks);
    c.devices.rows = 3;
    device_host_.put(c.devices.host), flags_.put(c.devices.free_synchronises);
    flags_.put(c.devices.alloc_synchronises), flags_.put(c.devices.blocking_copies);
    c.buffers.rows = 2 * kRoots;
    buffer_device_.put(c.buffers.device), parent_.put(c.buffers.parent), bytes_.put(c.buffers.bytes);
    offset_.put(c.buffers.parent_offset), key_.put(c.buffers.shared_key), pinned_.put(c.buffers.pinned);
    c.accesses.rows = std::int64_t(access_set_.data.size());
    access_set_.put(c.accesses.set), access_buffer_.put(c.accesses.buffer), access_offset_.put(c.accesses.offset);
    access_bytes_.put(c.accesses.bytes), access_grow_offset_.put(c.accesses.offset_per_arg);
    access_grow_bytes_.put(c.accesses.bytes_per_arg), access_unit_.put(c.accesses.unit_bytes);
    mode_.put(c.accesses.mode), access_origin_.put(c.accesses.origin);
    c.edges.rows = std::int64_t(source_.data.size());
    source_.put(c.edges.src), target_op_.put(c.edges.dst);
    c.lists.rows = std::int64_t(list_.data.size());
    list_.put(c.lists.list), unit_.put(c.lists.unit);
    c.syncs = kSyncs;
  }

  std::mt19937 random_;
  std::int32_t sets_ = 0;
  std::int64_t now_ = 0;
  std::vector<std::int32_t> recent_;
  std::vector<std::int64_t> kernels_;
  Values<std::int64_t> op_, op_parent_, sync_of_, value_, arg_, issue_, start_, duration_, bytes_, offset_, unit_,
      access_offset_, access_bytes_, access_grow_offset_, access_grow_bytes_, access_unit_, source_, target_op_;
  Values<std::int32_t> queue_, issuer_, sync_, target_, set_, list_of_, queue_device_, queue_process_, buffer_device_,
      parent_, key_, list_, access_set_, access_buffer_;
  Values<std::int8_t> kind_, wait_state_, target_kind_, origin_, host_, in_order_, blocks_, device_host_, flags_,
      pinned_, mode_, access_origin_;
};

}  // namespace tapedelay
