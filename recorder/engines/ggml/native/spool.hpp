// Writer of the spool (layout: spool.h). The hot path stands in record.h; everything here is off it.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "containers.hpp"
#include "spool.h"

namespace td {

// What a thread owns of the spool. Plain data: reading it must not run a constructor.
struct lane {
    record * next;      // next free slot ...
    record * end;       // ... of this thread's chunk
    uint64_t slot;      // number of the slot at `next`
    uint64_t current;   // 1 + slot of the innermost wrapped call, 0 = none
    uint32_t meta;      // depth of calls on meta devices
    uint32_t thread;    // 1 + ordinal, 0 = not named yet
    uint16_t host;      // its number among the threads of the engine
    // Records that found no room since the last one that did.
    uint64_t lost, lost_from_ns, lost_to_ns;
    // For the flight recorder (ring.cpp), which reads them from its own thread.
    uint64_t chunk;     // 1 + number of the chunk that it owns, 0 = none
    uint64_t claim;     // while it takes a chunk: 1 + a slot that is not after it
    uint64_t outer;     // 1 + slot of the outermost wrapped call, 0 = none
    lane * before, * after;
    uint8_t ends;       // how often the thread's end was seen
    bool listed, closed;
};
extern __thread lane tl_lane;

// Sizes, for tests and benchmarks; set before spool_start.
struct spool_sizes {
    uint64_t segment_bytes = 512 << 10;   // multiple of the page size
    uint64_t ahead_bytes   = 4 << 20;     // kept allocated and touched beyond what was handed out
};
extern spool_sizes sizes;

// Opens the process's files in `directory` and starts the helper thread. False: said why, recording stays off.
bool spool_start(const char * directory);
// Marks the recording as ended cleanly. Records may still follow (other threads).
void spool_end();
// Ends the recording while the process goes on: what happens later is not recorded and not counted as lost.
void spool_stop();
// Waits until `bytes` are ready beyond what was handed out, or growing failed (benchmarks).
void spool_wait_ahead(uint64_t bytes);

// A new chunk for this thread; false = none left (counted as lost) or recording stopped.
bool spool_refill(lane & l);
// This thread's number among those of the engine in this process, from 0: a recording calls it host0.
uint32_t spool_host_number();
void spool_lost();
// An allocation of the plugin was refused: the recording ends here. Takes no lock and allocates nothing.
void spool_out_of_memory();
// Whether nothing is written any more, on request or after a failure: nothing new needs to be known then.
bool spool_over();
uint32_t spool_failed_for();   // STOP_*, 0 = nothing failed

extern std::atomic<bool> spool_running;   // started, and no definition was refused by the disk

// Slow paths (definitions, object tables) share one lock; a fork waits for it.
std::recursive_mutex & slow_path();

// Payload of a definition, behind room for the head of its frame.
class blob {
public:
    static constexpr size_t HEAD = 12;
    blob() { bytes_.reserve(128); bytes_.assign(HEAD, '\0'); }
    blob & u32(uint32_t v) { return raw(&v, 4); }
    blob & u64(uint64_t v) { return raw(&v, 8); }
    blob & str(const char * s);
    blob & raw(const void * p, size_t n) { bytes_.append(static_cast<const char *>(p), n); return *this; }
    // Head and payload; null = there was no memory for it.
    const char * frame(def_t type) const;
    size_t frame_bytes() const { return bytes_.size(); }
private:
    mutable array<char> bytes_;
};

// Appends a definition. False = refused by the disk: recording has stopped, name nothing of it in a record.
bool define(def_t type, const blob & payload);

}  // namespace td
