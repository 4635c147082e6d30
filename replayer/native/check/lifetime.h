// Lifetime faults: memory touched outside of its generation, sync objects used past their end.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "../ranges.h"
#include "clocks.h"
#include "common.h"
#include "thinning.h"

namespace tapedelay::check {

class Lifetimes {
 public:
  Lifetimes(const Contract& contract, const Buffers& buffers, Ranges& ranges, const Chains& chains,
            const Lanes& lanes, const Ranks& ranks, Accepting* accepting);

  // Whether anything begins or ends.
  bool active() const { return !things_.empty(); }
  // Adds the faults between a unit that starts and all before it to `found`, then remembers its uses.
  // `accesses`: those of a unit of one row.
  void visit(Row unit, const std::vector<Row>& rows, Span<Access> accesses, const Clock& clock, const Clock* hopeful,
             std::vector<Pair>& found);

 private:
  // A use of a thing: its row, whether the access is definite, and what it is for the baseline.
  struct Use {
    Row row = kNull;
    bool definite = true;
    std::int32_t access = -1, sort = -1;
  };
  // What uses stand for each other: of one lane, queue, mode, side of the end in row order, certainty and sort.
  struct Key {
    std::int32_t chain, depth, queue, mode, sort;
    bool after, definite;
    bool operator==(const Key& o) const {
      return chain == o.chain && depth == o.depth && queue == o.queue && mode == o.mode && sort == o.sort &&
             after == o.after && definite == o.definite;
    }
    struct Hash {
      std::size_t operator()(const Key& k) const {
        std::size_t seed = mixed(std::size_t(k.chain), std::uint64_t(k.depth));
        seed = mixed(mixed(seed, std::uint64_t(k.queue)), std::uint64_t(k.mode));
        return mixed(mixed(seed, std::uint64_t(k.sort)), (std::uint64_t(k.after) << 1) | std::uint64_t(k.definite));
      }
    };
  };
  // The latest use per key, keys as they came.
  class Uses {
   public:
    void put(const Key& key, const Use& use);
    void clear();
    const std::vector<std::pair<Key, Use>>& all() const { return all_; }

   private:
    std::vector<std::pair<Key, Use>> all_;
    std::unique_ptr<std::unordered_map<Key, std::size_t, Key::Hash>> index_;  // where there are many
  };
  struct Ahead {
    std::int32_t queue, mode;
    Use use;
  };
  // A generation or sync object: where it begins and ends, and the uses before either has happened.
  struct Thing {
    Row alloc = kNull, end = kNull;
    std::int32_t sync = -1, buffer = -1;
    bool whole = true;
    std::vector<Row> ended;  // rows that end it and have started, in reference order
    Uses uses, early;        // before the end; before the begin, in row order as well
    std::vector<Ahead> ahead;  // before the begin but after it in row order: all are kept, their order decides
  };
  struct Offer {
    std::int32_t queue, mode;
    Fault fault;
    Accepted accepted;
    bool operator==(const Offer& o) const {
      return queue == o.queue && mode == o.mode && fault == o.fault && accepted == o.accepted;
    }
    struct Hash {
      std::size_t operator()(const Offer& o) const {
        std::size_t seed = mixed(std::size_t(o.queue), std::uint64_t(o.mode));
        seed = mixed(mixed(seed, std::uint64_t(o.fault)), std::uint64_t(o.accepted.first));
        return mixed(seed, std::uint64_t(o.accepted.second));
      }
    };
  };

  bool inferred(Row row) const { return ops_.origin.get(row) == std::int8_t(Origin::inferred); }
  bool kin(Row row, Row unit) const {
    const Row other = contract_.unit(row);
    return other == unit || contract_.is_ancestor(other, unit);
  }
  void read();
  void join(std::vector<Pair>& found) const;
  void collect(Row row, Span<Access> accesses);
  void faults(Row unit, Row row, const Clock& clock, const Clock* hopeful);
  bool end_fault(const Thing& thing, bool after, Fault& fault) const;
  void fault(const Thing& thing, Row first, Row second, Fault fault, bool definite, bool assumed, std::int32_t access);
  Accepted accepted(const Thing& thing, Row first, Row second, Fault fault, std::int32_t access) const;
  void sides(Row first, std::int32_t access, std::int32_t& one, std::int32_t& other) const;
  void at_end(Thing& thing, Row unit, Row row, const Clock& clock, const Clock* hopeful);
  void at_alloc(Thing& thing, Row unit, Row row, const Clock& clock);
  void offer(const Thing& thing, const Use& use, std::int32_t queue, std::int32_t mode, Fault fault, Row row,
             const Clock* hopeful);
  void report(const Thing& thing, Row row);
  void remember(Row unit, Row row);

  const Contract& contract_;
  const Buffers& buffers_;
  Ranges& ranges_;
  const Chains& chains_;
  const Lanes& lanes_;
  const Ranks& ranks_;
  Accepting* accepting_;
  const OpColumns& ops_;
  bool memory_ = false;  // whether any memory begins or ends
  std::vector<Thing> things_;
  std::vector<std::int32_t> of_buffer_;  // per buffer: its thing, or that of the nearest it is a part of; -1
  std::unordered_map<std::int32_t, std::int32_t> of_sync_;
  Grouped lists_;
  // Of the row at hand: what it uses.
  struct Using {
    std::int32_t thing, mode;  // mode -1: not an access
    bool definite;
    std::int32_t access;
  };
  std::vector<Using> using_;
  std::vector<Pair> here_;
  Thinned<Offer, Use> offers_;
};

}  // namespace tapedelay::check
