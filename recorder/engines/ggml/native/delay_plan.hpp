// The compiled plan that `tapedelay record` leaves in the spool, and the counts that it reads afterwards.
// Layout: recorder/delays/compiled.py writes it; a test compares the two.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace td {

constexpr uint64_t PLAN_MAGIC   = 0x30594c4544534454ull;   // "TDSDELY0"
constexpr uint64_t COUNTS_MAGIC = 0x30544e5544534454ull;   // "TDSDUNT0"
constexpr uint32_t PLAN_VERSION = 0;

struct plan_header {       // then anchors, entries, tokens, in this order and without gaps
    uint64_t magic;
    uint32_t version;
    uint32_t crc;          // CRC-32 (zlib) of all bytes behind this field
    uint64_t bytes;        // of the file
    uint32_t lines;        // of the plan: entries name them by index
    uint32_t anchors, entries, tokens;
    uint64_t reserved[2];
};
static_assert(sizeof(plan_header) == 56, "");

// Ops by what they are. A glob is a number of tokens, then so many code points or wildcards.
struct plan_anchor {
    uint32_t kinds;                // bit per op_kind
    uint32_t of, touching, on;     // first token of each glob, ~0 = any
    uint32_t first, count;         // entries, sorted by nth: 0 (every) comes first
};
static_assert(sizeof(plan_anchor) == 24, "");
constexpr uint32_t ANY_RUN = 0x110000, ANY_ONE = 0x110001;

struct plan_entry {
    uint64_t nth;                  // 0 = every
    uint64_t ns;                   // with `random`: the most
    uint64_t seed;
    uint32_t further;              // ops further on the same queue
    uint32_t line;
    uint32_t place;                // delay_place
    uint32_t random;               // 0 or 1
};
static_assert(sizeof(plan_entry) == 40, "");

struct counts_header {             // then two words for each line: applied, matched without being applied
    uint64_t magic;
    uint32_t version, lines;
    std::atomic<uint32_t> processes;   // that have read the plan; each takes its number here
    std::atomic<uint32_t> refused;     // that could not use it
    uint64_t reserved[5];
};
static_assert(sizeof(counts_header) == 64, "");

struct line_counts { std::atomic<uint64_t> applied, missed; };

struct plan_file {
    const plan_header * header = nullptr;
    const plan_anchor * anchors = nullptr;
    const plan_entry * entries = nullptr;
    const uint32_t * tokens = nullptr;
    counts_header * counts = nullptr;
    line_counts * lines = nullptr;
};

// Maps and checks both files: `path` and `path` + ".counts". Null: fine, else what is wrong.
const char * plan_open(const char * path, plan_file & out);

// Whether a name (UTF-8, bytes that are none count as U+FFFD as Python reads them) matches the glob at `tokens`.
bool glob_matches(const uint32_t * tokens, const char * name);
// Whether its first token may stand for '#': then it may match the ordinal that a recording puts before a name.
bool glob_may_begin_with_ordinal(const uint32_t * tokens);

}  // namespace td
