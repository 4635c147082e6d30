// What is wrong with a run, told: when it became a fact, who wrote what stood there, and what came of it.
#pragma once

#include <cstdint>
#include <vector>

#include "engine.h"
#include "oracle.h"
#include "spec.h"

namespace tapedelay::threads {

enum class State : std::int8_t { version, derived, torn, unknown };

struct Seen {
  std::int64_t begin, end;  // real bytes
  Row writer;               // -1: what was there before the first op
  State state;
};

struct Told {
  Row row;              // -1: the host's read at the end
  std::int64_t access;  // -1: none; number of the read at the end
  Fault fault;
  std::int64_t at_ns;
  std::vector<Seen> saw, expected;
  bool derived;
};

struct Story {
  std::vector<Told> wrong;  // in the order in which they became facts
  std::int64_t count = 0;   // of all of them
  std::vector<Row> chain;   // from the first wrong read to a read of the host that saw what came of it
};

// `limit`: how many are told, at least one.
Story tell(const Spec& spec, Oracle& oracle, const RunResult& result, std::size_t limit);

}  // namespace tapedelay::threads
