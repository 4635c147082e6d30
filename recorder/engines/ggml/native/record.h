// The hot path: one record = a slot of the thread's chunk, one clock read, plain stores, the commit word last.
// No allocation, no lock, no system call; a thread takes the slow way once per chunk.
#pragma once
#include <ctime>

#include "spool.hpp"

namespace td {

inline uint64_t now_ns() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

struct entry {
    record * r = nullptr;
    uint64_t slot = 0;
    explicit operator bool() const { return r != nullptr; }
};

// Takes a slot and fills what every record has. Null: no room (counted) or recording is off.
inline entry take(kind_t kind, uint16_t queue, uint8_t flags) {
    lane & l = tl_lane;
    if (__builtin_expect(l.next == l.end, 0) && !spool_refill(l)) return {};
    if (__builtin_expect(!spool_running.load(std::memory_order_relaxed), 0)) { spool_lost(); return {}; }
    record * r = l.next++;
    r->queue  = queue;
    r->kind   = kind;
    r->flags  = static_cast<uint8_t>(flags | (l.meta ? F_CHILD : 0));
    r->thread = l.thread - 1;
    r->end_ns = 0;   // a slot that was given back may hold one
    r->issue_ns = now_ns();
    return {r, l.slot++};
}

inline void commit(const entry & e) {
    __atomic_store_n(&e.r->commit, COMMIT ^ static_cast<uint32_t>(e.slot), __ATOMIC_RELEASE);
}

inline void put(const entry & e, uint64_t a, uint64_t b, uint64_t c, uint32_t d, uint32_t x, uint32_t name) {
    record * r = e.r;
    r->a = a; r->b = b; r->c = c; r->d = d; r->e = x; r->name = name;
}

// A blocking call has returned.
inline void finish(const entry & e) {
    if (e) __atomic_store_n(&e.r->end_ns, now_ns(), __ATOMIC_RELAXED);
}

// Gives a slot back, if nothing was recorded since; else it stays a hole.
inline void cancel(const entry & e) {
    lane & l = tl_lane;
    if (e && l.slot == e.slot + 1 && l.next == e.r + 1) { l.next--; l.slot--; }
}

// While one lives, current_slot() names its record on this thread.
class inside {
public:
    explicit inside(const entry & e) : before_(tl_lane.current) {
        tl_lane.current = e ? e.slot + 1 : 0;
        if (!before_) __atomic_store_n(&tl_lane.outer, tl_lane.current, __ATOMIC_RELAXED);   // the helper reads it
    }
    ~inside() {
        tl_lane.current = before_;
        if (!before_) __atomic_store_n(&tl_lane.outer, 0, __ATOMIC_RELAXED);
    }
    inside(const inside &) = delete;
    inside & operator=(const inside &) = delete;
private:
    uint64_t before_;
};

// One record that is complete when it is issued.
inline entry emit(kind_t kind, uint16_t queue, uint8_t flags, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0,
                  uint32_t d = NONE, uint32_t x = NONE, uint32_t name = NONE) {
    entry e = take(kind, queue, flags);
    if (e) { put(e, a, b, c, d, x, name); commit(e); }
    return e;
}

}  // namespace td
