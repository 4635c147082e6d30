// Flight recorder: only the newest records stay. The helper thread cuts old segments off the spool; the hot path does
// not know. All but the lane list belongs to the helper thread.
#pragma once
#include <cstdint>

#include "spool.hpp"

namespace td {

// Reads TAPEDELAY_RING_RECORDS and TAPEDELAY_RING_MS and chooses the segments' size. Before the first segment.
void ring_configure();
bool ring_on();

// Maps STEM.ring. False: errno tells why.
bool ring_open(const char * stem);
// The file of segment `k` (0: STEM.rec), a path of at most `bytes`.
void ring_part(char * path, uint64_t bytes, const char * stem, uint64_t k);

// A segment was mapped at `at`, they come in order. `room`: most segments that may be mapped at once.
bool ring_grown(char * at);   // false: no memory
uint64_t ring_segments();   // segments that are not cut off yet
// Cuts off what is old: `next` is the first slot that is not handed out. Helper thread only.
void ring_trim(uint64_t next, uint64_t room);

// A thread's lane, from its first record to its end. False: no memory to know of its end.
bool ring_enter(lane & l);
void ring_before_fork();
void ring_after_fork();
void ring_in_child();       // the lanes and mappings of the parent are forgotten, not touched
void ring_unmap();          // ... and its mappings given back: all but those of the first segment table

}  // namespace td
