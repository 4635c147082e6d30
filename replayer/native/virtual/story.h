// What a run with wrong reads has to tell: each read, what it saw, what it should have seen, and what came of it.
#pragma once

#include <cstdint>
#include <vector>

#include "pass.h"

namespace tapedelay {

constexpr Row kAtEnd = -1;  // the host's read of every root after all ops
constexpr Row kInitial = -1;  // the writer of what was there before the first op

enum class Stands : std::int8_t { version, derived, torn };

struct SeenPart {
  std::int64_t begin, end;
  Row writer;
  Stands stands;
};

struct WrongRead {
  Row row;
  std::int32_t access;  // row of `accesses`, -1: none
  Wrong kind;
  std::int32_t root;    // buffer row; -1: none
  std::int64_t begin, end, at_ns;
  std::vector<SeenPart> saw, expected;
  bool derived;
};

struct Story {
  std::vector<WrongRead> wrong;  // in the order in which they became facts
  std::vector<Row> chain;
  std::int64_t own = 0;  // facts that do not come out of earlier ones
};

// Whose versions the judged reads see in the reference order, as digests: a wrong read that sees the same ones is
// derived.
struct Versions {
  std::vector<std::uint64_t> reads;   // as Scene::expected
  std::vector<std::uint64_t> at_end;  // by root
};
Versions reference_versions(const Scene& scene, const Pulse& pulse);

// Plays the run again, and then the reference, this time noting who wrote what. Keeps at most `limit` reads, at
// least the first. Where there may be more facts than that, `versions` has to be given: derived ones are then the
// first to be left out.
Story tell(const Scene& scene, const std::vector<std::int32_t>& events, const Timing& timing, std::size_t limit,
           const Versions* versions, const Pulse& pulse);

}  // namespace tapedelay
