// What every run of values on one tape shares: cells, lifetimes, and what each read sees in the reference order.
#pragma once

#include <cstdint>
#include <vector>

#include "../contract.h"
#include "../ranges.h"
#include "cells.h"
#include "lives.h"

namespace tapedelay {

struct Scene {
  Scene(const Contract& contract, const Buffers& buffers, const Order& order);

  bool kin(Row a, Row b) const {
    return a == b || (nested && (contract.is_ancestor(a, b) || contract.is_ancestor(b, a)));
  }

  bool is_joint(Row unit) const { return !joint.empty() && joint[unit]; }

  const Contract& contract;
  const std::int64_t* const op;  // ids by row
  const std::vector<std::uint8_t> runs, parts;  // by row: the unit starts at all; it has children
  const Cells cells;
  const Lives lives;
  std::vector<std::int32_t> codes;  // starts and ends, in the reference order, of units that touch or end something
  std::vector<std::uint8_t> joint;  // by row: the unit has several; empty: none has
  bool nested = false;              // some op is part of another
  std::int64_t reads = 0;           // that are judged, those at the end included
  std::vector<std::uint32_t> first_read;  // by unit: where its reads begin in `expected`
  std::vector<std::uint64_t> expected;    // digests of the judged reads in the reference order
  std::vector<std::uint64_t> at_end;      // of every root after all ops
};

}  // namespace tapedelay
