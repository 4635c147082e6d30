// What the delays of a plan come to for one op, and what test devices do with it.
#pragma once
#include <cstdint>
#include <memory>

namespace td {

// A plan is loaded. Written once, before the first wrapper runs; cleared when the recording is stopped.
extern bool delays_on;

enum delay_place : uint8_t { BEFORE_ISSUE, BEFORE_START, AFTER_END };

struct delay_part {
    uint64_t ns;         // asked for
    uint64_t begin_ns;   // when it was applied, for those that are written down later
    uint64_t end_ns;
    uint32_t line;       // index into the plan's lines
    delay_place place;
};

// What applies to one op. Lines beyond those that have a part of their own are added to one of their place.
struct delay_match {
    static constexpr uint32_t OWN_PARTS = 16, ROOM = OWN_PARTS + AFTER_END + 1;
    uint32_t count;
    delay_part parts[ROOM];
    bool has(delay_place place) const {
        for (uint32_t i = 0; i < count; i++) if (parts[i].place == place) return true;
        return false;
    }
};

// For test devices, on the issuing thread: what the innermost op's command has to wait for; null for nothing.
std::unique_ptr<delay_match> delays_for_command();
bool delays_pending();
// On the executing thread, which has slept so much of it already.
void delays_hold(const delay_match & match, delay_place place, uint64_t slot, uint64_t ahead_ns = 0);

}  // namespace td
