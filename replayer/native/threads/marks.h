// A word of memory: the value of a version in its high bits and, in its low bits, who is at it.
#pragma once

#include <cstdint>

#include "../splitmix.h"
#include "../tape.h"

namespace tapedelay::threads {

using Word = std::uint64_t;

constexpr Word kWriter = 1, kWriters = 0x7f;       // writes in flight
constexpr Word kReducer = 0x80, kReducers = 0x3f80;  // reduces in flight
constexpr Word kTorn = 0x8000;                      // the value: several were at it at once
constexpr Word kMarks = 0xffff;

inline Word initial_value(std::int32_t root) { return mixed((Word(1) << 60) + Word(root)) & ~kMarks; }
inline Word output_value(std::int64_t op, std::int64_t seq, Word read) {
  return mixed(mixed(mixed((Word(2) << 60) + Word(op)) + Word(seq)) ^ read) & ~kMarks;
}
inline Word progress_value(Row unit) { return mixed((Word(3) << 60) + Word(unit)) & ~kMarks; }
inline Word torn_value(Row unit) { return mixed((Word(4) << 60) + Word(unit)) & ~kMarks; }

// What an op does to a word as it starts and ends.
namespace marks {

inline Word more(Word word, Word one, Word all) { return (word & all) == all ? word : word + one; }
inline Word fewer(Word word, Word one, Word all) { return word & all ? word - one : word; }
inline bool busy(Word word) { return word & (kWriters | kReducers); }
inline Word with_value(Word word, Word value, bool torn) {
  return value | (word & (kWriters | kReducers)) | (torn ? kTorn : 0);
}

inline Word start_write(Word word, Word progress) {
  return more(with_value(word, progress, busy(word)), kWriter, kWriters);
}
// Nobody else was at it since then.
inline bool undisturbed(Word word, Word progress) { return word == (progress | kWriter); }
inline Word end_write(Word word, Word value, Word torn, Word progress) {
  const bool alone = undisturbed(word, progress);
  return fewer(with_value(word, alone ? value : torn, !alone), kWriter, kWriters);
}
inline Word instant_write(Word word, Word value, Word torn) {
  return with_value(word, busy(word) ? torn : value, busy(word));
}
// One more write of an op, over its own.
inline Word write_again(Word word, Word value, Word torn) {
  return word & kTorn ? word : instant_write(word, value, torn);
}

inline Word start_reduce(Word word) { return more(word, kReducer, kReducers) | (word & kWriters ? kTorn : 0); }
inline Word instant_reduce(Word word, Word value) { return (word ^ value) | (word & kWriters ? kTorn : 0); }
inline Word end_reduce(Word word, Word value) { return fewer(instant_reduce(word, value), kReducer, kReducers); }

}  // namespace marks
}  // namespace tapedelay::threads
