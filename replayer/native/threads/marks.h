// A word of memory: the value of a version in its high bits and, in its low bits, who is at it.
#pragma once

#include <cstdint>

#include "../tape.h"

namespace tapedelay::threads {

using Word = std::uint64_t;

inline Word mixed(Word x) {  // finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Writes and reduces in flight; then, of units with children (their children write meanwhile), how many.
constexpr Word kWriter = 1, kWriters = 0x3f;
constexpr Word kReducer = 0x40, kReducers = 0xfc0;
constexpr Word kOpen = 0x1000, kOpens = 0x1ff000;
constexpr Word kTorn = 0x200000;   // the value: several were at it at once
constexpr Word kAlien = 0x400000;  // others than its parts were at it while a unit with children was
constexpr Word kMarks = 0xffffff;

inline Word initial_value(std::int32_t root) { return mixed((Word(1) << 60) + Word(root)) & ~kMarks; }
inline Word output_value(std::int64_t op, std::int64_t seq, Word read) {
  return mixed(mixed(mixed((Word(2) << 60) + Word(op)) + Word(seq)) ^ read) & ~kMarks;
}
inline Word progress_value(Row unit) { return mixed((Word(3) << 60) + Word(unit)) & ~kMarks; }
inline Word torn_value(Row unit) { return mixed((Word(4) << 60) + Word(unit)) & ~kMarks; }

// What a unit does to a word. `hidden`: how many units that it is part of write there; those are no strangers.
namespace marks {

inline Word opens(Word word) { return (word & kOpens) / kOpen; }
inline bool strange(Word word, Word hidden) { return opens(word) > hidden; }
inline bool busy(Word word, Word hidden) { return (word & (kWriters | kReducers)) || strange(word, hidden); }
inline Word more(Word word, Word one, Word all) { return (word & all) == all ? word : word + one; }
inline Word fewer(Word word, Word one, Word all) { return word & all ? word - one : word; }

// What one sees that is part of `hidden` writers.
inline Word seen(Word word, Word hidden) {
  word &= ~kAlien;
  return opens(word) >= hidden ? word - hidden * kOpen : word & ~kOpens;
}
inline Word with_value(Word word, Word value, bool torn) {
  return value | (word & kMarks & ~kTorn) | (torn ? kTorn : 0);
}
inline Word settled(Word word) { return word & kOpens ? word : word & ~kAlien; }

inline Word start_write(Word word, Word progress, Word hidden) {
  const Word now = with_value(word, progress, busy(word, hidden)) | (strange(word, hidden) ? kAlien : 0);
  return more(now, kWriter, kWriters);
}
inline bool undisturbed(Word word, Word progress, Word hidden) {
  return (word & ~kAlien) == (progress | kWriter | hidden * kOpen);
}
inline Word end_write(Word word, Word value, Word torn, Word progress, Word hidden) {
  const bool alone = undisturbed(word, progress, hidden);
  return settled(fewer(with_value(word, alone ? value : torn, !alone), kWriter, kWriters));
}
inline Word instant_write(Word word, Word value, Word torn, Word hidden) {
  const bool alone = !busy(word, hidden);
  return with_value(word, alone ? value : torn, !alone) | (strange(word, hidden) ? kAlien : 0);
}
// One more write of a unit, over its own.
inline Word write_again(Word word, Word value, Word torn, Word hidden) {
  if (word & kTorn) return word;
  return instant_write(word, value, torn, hidden);
}

inline Word start_open(Word word, Word hidden) {
  return more(word | (busy(word, hidden) ? kAlien : 0), kOpen, kOpens);
}
inline Word end_open(Word word, Word value, Word torn, Word hidden) {
  const Word left = fewer(word, kOpen, kOpens);
  const bool alone = !(word & kAlien) && !busy(left, hidden);
  return settled(with_value(left, alone ? value : torn, !alone));
}

inline Word start_reduce(Word word, Word hidden) {
  const bool clash = (word & kWriters) || strange(word, hidden);
  return more(word, kReducer, kReducers) | (clash ? kTorn : 0) | (strange(word, hidden) ? kAlien : 0);
}
inline Word instant_reduce(Word word, Word value, Word hidden) {
  const bool clash = (word & kWriters) || strange(word, hidden);
  return (word ^ value) | (clash ? kTorn : 0) | (strange(word, hidden) ? kAlien : 0);
}
inline Word end_reduce(Word word, Word value, Word hidden) {
  return settled(fewer(instant_reduce(word, value, hidden), kReducer, kReducers));
}

}  // namespace marks
}  // namespace tapedelay::threads
