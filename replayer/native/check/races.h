// Races: every access against the latest conflicting unordered ones per other queue and mode.
//
// Accesses are kept per memory, lane, mode and certainty. Of a lane only the latest overlapping access can matter:
// if it comes before the op at hand, all earlier ones do. What a baseline accepts is kept apart throughout, so that
// it hides nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "../ranges.h"
#include "clocks.h"
#include "common.h"
#include "floor.h"
#include "latest.h"
#include "parts.h"
#include "thinning.h"

namespace tapedelay::check {

class Races {
 public:
  Races(const Contract& contract, const Buffers& buffers, Ranges& ranges, const Chains& chains, const Lanes& lanes,
        const Ranks& ranks, const Floor& floor, Accepting* accepting, std::size_t block, std::size_t sets);

  // Adds the races of a unit that starts with all before it to `found`, then remembers its accesses. `accesses` are
  // those of a unit of one row, which nobody else asks for meanwhile.
  void visit(Row unit, const std::vector<Row>& rows, Span<Access> accesses, const Clock& clock, const Clock* hopeful,
             std::vector<Pair>& found);
  // The accesses looked at.
  std::int64_t seen() const { return seen_; }

 private:
  // Accesses of one lane, mode and certainty to one memory, the latest per byte.
  struct Memory;
  struct Trace {
    std::int32_t chain, depth, sort;
    Mode mode;
    bool observed;
    std::uint32_t number, group;  // of the memory's traces; of its chains
    Row last = kNull;
    Memory* memory;
    LatestMap latest;
  };
  // The traces of one memory, by chain.
  struct Memory {
    struct Group {
      // Position of the last access of the chain, of any mode and of those that write; may be too high.
      std::int32_t chain, top = 0, top_write = 0;
    };
    std::vector<Group> groups;
    std::vector<std::vector<Trace*>> of_group;
    std::uint32_t traces = 0;
    std::unordered_map<std::int32_t, std::uint32_t> group_of;
    std::unordered_map<std::uint64_t, std::vector<Trace*>> found;  // of groups with many traces, by sort
  };
  // Where a row of `accesses` was remembered last time.
  struct Known {
    std::int32_t row = -1;
    Trace* trace = nullptr;
    LatestMap::Hint hint;
  };
  struct Key {
    std::int32_t queue;
    Mode mode;
    std::int32_t apart;
    bool operator==(const Key& o) const { return queue == o.queue && mode == o.mode && apart == o.apart; }
    struct Hash {
      std::size_t operator()(const Key& k) const {
        return mixed(mixed(std::size_t(k.apart), std::uint64_t(k.queue)), std::uint64_t(k.mode));
      }
    };
  };
  struct Candidate {
    const Trace* trace;
    Row first;
  };

  bool inferred(Row row) const { return origin_.get(row) == std::int8_t(Origin::inferred); }
  std::int32_t apart(std::int32_t first, Mode mode, std::int32_t second, const Access& access);
  bool kin(Row row, Row unit) const { return contract_.is_ancestor(contract_.unit(row), unit); }
  bool all_before(const Clock& clock) const;
  void candidates(Row unit, Memory& memory, const Access& access, const Clock& clock);
  void search(Row unit, Memory& memory, std::size_t group, const Access& access, std::int32_t known);
  void pairs(Row row, const Access& access, const Clock* hopeful, std::vector<Pair>& found);
  void merge(std::vector<Pair>& found, std::size_t from) const;
  void look(Row unit, Row row, Span<Access> accesses, const Clock& clock, const Clock* hopeful,
            std::vector<Pair>& found);
  void remember(Row unit, Row row, Span<Access> accesses, std::int32_t position);
  Trace* trace(Memory& memory, const Access& access, std::int32_t chain, std::int32_t depth, bool observed,
               std::int32_t sort);

  const Contract& contract_;
  Ranges& ranges_;
  const Chains& chains_;
  const Lanes& lanes_;
  const Ranks& ranks_;
  Accepting* accepting_;
  const Column<std::int8_t>& origin_;
  const Floor& floor_;
  std::size_t block_;
  Parts parts_;
  std::vector<std::unique_ptr<Memory>> memory_;  // by root
  std::vector<std::unique_ptr<Trace>> traces_;
  std::vector<Known> known_;  // by row of `accesses`, for as many as there is room
  std::vector<std::int32_t> last_;  // per chain: the position of its last op with accesses; unused with children
  std::vector<Candidate> candidates_;
  Thinned<Key, Row> thinned_;
  std::int64_t seen_ = 0;
};

}  // namespace tapedelay::check
