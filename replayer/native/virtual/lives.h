// Lifetimes: which generations of memory and which sync objects begin and end, and who uses them.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "../contract.h"
#include "../ranges.h"
#include "../span.h"
#include "cells.h"

namespace tapedelay {

class Lives {
 public:
  // A buffer row that an op of the run begins or ends. Rows; -1: none.
  struct Generation {
    Row alloc, free;
    bool whole;  // covers all of its root
    // Releasing a part in flight is bookkeeping: its end concerns only ops of later rows.
    bool ends_for(Row row) const { return free >= 0 && (whole || row > free); }
  };
  enum : std::uint8_t { kUsesMemory = 1, kUsesSyncs = 2, kEnds = 4 };

  // `runs`: per row, whether the unit starts at all.
  Lives(const Contract& contract, const Buffers& buffers, const Cells& cells, const std::vector<std::uint8_t>& runs);

  std::uint8_t flags(Row unit) const { return flags_.empty() ? 0 : flags_[unit]; }
  bool any() const { return !flags_.empty(); }
  const std::vector<Generation>& generations() const { return generations_; }
  std::size_t syncs() const { return destroy_.size(); }
  Row destroy(std::int32_t sync) const { return destroy_[sync]; }

  // The generation of a buffer row and of all that it is part of.
  Span<std::int32_t> of_buffer(std::int32_t buffer) const { return all(of_buffer_, buffer); }
  // Sync objects with an end that an op uses, each once.
  Span<std::int32_t> used_syncs(Row row) const { return all(used_syncs_, row); }
  // What a row begins or ends; -1: nothing.
  std::int32_t allocated(Row row) const { return get(alloc_at_, row); }
  std::int32_t freed(Row row) const { return get(free_at_, row); }
  std::int32_t destroyed(Row row) const { return get(destroy_at_, row); }
  // Whether the memory of a root (index into `Cells::roots`) is there after all ops.
  bool alive(std::int32_t root) const { return alive_[root]; }

 private:
  static Span<std::int32_t> all(const std::unordered_map<std::int32_t, std::vector<std::int32_t>>& map, Row key) {
    const auto it = map.find(key);
    return it == map.end() ? Span<std::int32_t>() : Span<std::int32_t>(it->second);
  }
  static std::int32_t get(const std::unordered_map<Row, std::int32_t>& map, Row row) {
    const auto it = map.find(row);
    return it == map.end() ? -1 : it->second;
  }
  void memory(const Contract& contract, const Buffers& buffers, const std::vector<std::uint8_t>& runs);
  void sync_objects(const Contract& contract, const std::vector<std::uint8_t>& runs);
  void users(const Contract& contract, const Buffers& buffers, const Cells& cells);
  void survivors(const Buffers& buffers, const Cells& cells, const std::vector<std::uint8_t>& touched);

  std::vector<Generation> generations_;
  std::vector<Row> destroy_;                                        // by sync object with an end
  std::unordered_map<std::int32_t, std::int32_t> generation_of_, sync_of_;  // by buffer row, by sync id
  std::unordered_map<std::int32_t, std::vector<std::int32_t>> of_buffer_;
  std::unordered_map<Row, std::vector<std::int32_t>> used_syncs_;
  std::unordered_map<Row, std::int32_t> alloc_at_, free_at_, destroy_at_;
  std::vector<std::uint8_t> flags_, alive_;
};

}  // namespace tapedelay
