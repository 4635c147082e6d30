#include "lives.h"

#include <algorithm>

#include "../grouped.h"

namespace tapedelay {
namespace {

bool uses_its_sync(Kind kind) {
  switch (kind) {
    case Kind::record: case Kind::wait: case Kind::semsig: case Kind::semwait: case Kind::coll: case Kind::compute:
    case Kind::kernel:
      return true;
    default:
      return false;
  }
}

}  // namespace

Lives::Lives(const Contract& contract, const Buffers& buffers, const Cells& cells,
             const std::vector<std::uint8_t>& runs) {
  memory(contract, buffers, runs);
  sync_objects(contract, runs);
  alive_.assign(cells.roots().size(), 1);
  if (generations_.empty() && destroy_.empty()) return;
  flags_.assign(std::size_t(contract.rows()), 0);
  users(contract, buffers, cells);
}

void Lives::memory(const Contract& contract, const Buffers& buffers, const std::vector<std::uint8_t>& runs) {
  const OpColumns& ops = contract.columns().ops;
  // As `check` has it: the first alloc and the first free of a buffer, in row order.
  std::unordered_map<std::int32_t, Generation> found;
  std::vector<std::int32_t> order;
  for (Row row = 0; row < contract.rows(); ++row) {
    const Kind kind = static_cast<Kind>(ops.kind.data[row]);
    if ((kind != Kind::alloc && kind != Kind::free) || !ops.target.has(row)) continue;
    const auto [it, added] = found.emplace(ops.target.data[row], Generation{-1, -1, false});
    if (added) order.push_back(ops.target.data[row]);
    Row& at = kind == Kind::alloc ? it->second.alloc : it->second.free;
    if (at < 0) at = row;
  }
  for (const std::int32_t buffer : order) {
    Generation g = found.find(buffer)->second;
    g.whole = buffers.is_whole(buffer);
    if (g.alloc >= 0 && !runs[contract.unit(g.alloc)]) g.alloc = -1;
    if (g.free >= 0 && !runs[contract.unit(g.free)]) g.free = -1;
    if (g.alloc < 0 && g.free < 0) continue;
    const std::int32_t id = std::int32_t(generations_.size());
    generation_of_[buffer] = id;
    if (g.alloc >= 0) alloc_at_[g.alloc] = id;
    if (g.free >= 0) free_at_[g.free] = id;
    generations_.push_back(g);
  }
}

void Lives::sync_objects(const Contract& contract, const std::vector<std::uint8_t>& runs) {
  const OpColumns& ops = contract.columns().ops;
  for (Row row = 0; row < contract.rows(); ++row) {
    if (static_cast<Kind>(ops.kind.data[row]) != Kind::destroy || !ops.sync.has(row)) continue;
    const auto [it, added] = sync_of_.emplace(ops.sync.data[row], std::int32_t(destroy_.size()));
    if (!added) continue;
    const bool happens = runs[contract.unit(row)];
    destroy_.push_back(happens ? row : -1);
    if (happens) destroy_at_[row] = it->second;
  }
  if (destroy_.empty()) return;
  const Grouped lists(contract.columns().lists.list, contract.columns().lists.rows);
  const auto use = [&](Row row, std::int32_t sync) {
    const auto it = sync_of_.find(sync);
    if (it == sync_of_.end() || destroy_[it->second] < 0) return;
    std::vector<std::int32_t>& used = used_syncs_[row];
    if (std::find(used.begin(), used.end(), it->second) == used.end()) used.push_back(it->second);
  };
  for (Row row = 0; row < contract.rows(); ++row) {
    const Kind kind = static_cast<Kind>(ops.kind.data[row]);
    if (uses_its_sync(kind) && ops.sync.has(row)) use(row, ops.sync.data[row]);
    const std::int32_t list = kind == Kind::wait_any ? ops.list.get(row) : kNull;
    const std::int32_t group = list == kNull ? -1 : lists.find(list);
    if (group < 0) continue;
    for (std::uint32_t i = lists.first(group); i < lists.first(group + 1); ++i)
      use(row, std::int32_t(contract.columns().lists.unit.get(lists.row(i))));
  }
}

void Lives::users(const Contract& contract, const Buffers& buffers, const Cells& cells) {
  std::vector<std::uint8_t> touched(std::size_t(buffers.rows()), 0);
  for (Row row = 0; row < contract.rows(); ++row) {
    const Row unit = contract.unit(row);
    for (const Touch& t : cells.of(row)) {
      if (!touched[t.buffer]) {
        touched[t.buffer] = 1;
        std::vector<std::int32_t> known;
        for (std::int32_t b = t.buffer; b != kNull; b = buffers.parent(b)) {
          const auto it = generation_of_.find(b);
          if (it != generation_of_.end()) known.push_back(it->second);
        }
        if (!known.empty()) of_buffer_[t.buffer] = std::move(known);
      }
      if (of_buffer_.count(t.buffer) != 0) flags_[unit] |= kUsesMemory;
    }
    if (used_syncs_.count(row) != 0) flags_[unit] |= kUsesSyncs;
    if (allocated(row) >= 0 || freed(row) >= 0 || destroyed(row) >= 0) flags_[unit] |= kEnds;
  }
  survivors(buffers, cells, touched);
}

// Memory is gone where all of its whole generations that the tape knows of are freed.
void Lives::survivors(const Buffers& buffers, const Cells& cells, const std::vector<std::uint8_t>& touched) {
  std::vector<std::uint8_t> gone(std::size_t(buffers.rows()), 0), lives(std::size_t(buffers.rows()), 0);
  const auto whole = [&](std::int32_t b) -> const Generation* {
    const auto it = generation_of_.find(b);
    return it == generation_of_.end() || !generations_[it->second].whole ? nullptr : &generations_[it->second];
  };
  for (std::int32_t b = 0; b < buffers.rows(); ++b) {
    const Generation* const own = whole(b);
    if (own != nullptr && own->free >= 0) {
      gone[buffers.root(b)] = 1;
    } else if (own != nullptr || touched[b]) {
      // A part that is touched lives as long as what it is part of.
      bool below = false;
      for (std::int32_t p = b; p != kNull; p = buffers.parent(p)) {
        const Generation* const of = whole(p);
        below = below || (of != nullptr && of->free >= 0);
      }
      if (!below) lives[buffers.root(b)] = 1;
    }
  }
  for (std::size_t i = 0; i < cells.roots().size(); ++i) {
    const std::int32_t root = cells.roots()[i].buffer;
    alive_[i] = !gone[root] || lives[root];
  }
}

}  // namespace tapedelay
