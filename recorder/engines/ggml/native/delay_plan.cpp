#include "delay_plan.hpp"

#include <cstring>
#include <string>
#include <vector>

#include "crc32.h"
#include "delays.h"
#include "platform_linux.h"

namespace td {

namespace {

constexpr uint64_t MAX_ANCHORS = 1000, MAX_ENTRIES = 1000000, MAX_TOKENS = 1 << 23;
constexpr uint64_t MAX_NS = 3600000000000ull, MAX_NTH = 1000000000;

bool glob_fits(const plan_file & p, uint32_t at) {
    if (at == ~0u) return true;
    if (at >= p.header->tokens) return false;
    const uint32_t n = p.tokens[at];
    if (n > p.header->tokens - at - 1) return false;
    for (uint32_t i = 1; i <= n; i++) if (p.tokens[at + i] > ANY_ONE) return false;
    return true;
}

const char * check(const plan_file & p, uint64_t bytes) {
    const plan_header & h = *p.header;
    if (h.magic != PLAN_MAGIC) return "it is no compiled plan";
    if (h.version != PLAN_VERSION) return "its version is another";
    if (h.bytes != bytes || h.anchors > MAX_ANCHORS || h.entries > MAX_ENTRIES || h.lines > MAX_ENTRIES || h.tokens > MAX_TOKENS ||
        bytes != sizeof h + h.anchors * sizeof(plan_anchor) + h.entries * sizeof(plan_entry) + h.tokens * sizeof(uint32_t))
        return "its length is another";
    const size_t behind = offsetof(plan_header, crc) + sizeof h.crc;
    if (crc32(0, reinterpret_cast<const char *>(p.header) + behind, bytes - behind) != h.crc) return "it is damaged";
    return nullptr;
}

const char * check_parts(const plan_file & p) {
    static const char * const WRONG = "it is damaged";
    const plan_header & h = *p.header;
    for (uint32_t i = 0; i < h.anchors; i++) {
        const plan_anchor & a = p.anchors[i];
        if (a.first > h.entries || a.count > h.entries - a.first || a.kinds >> OP_KINDS) return WRONG;
        if (!glob_fits(p, a.of) || !glob_fits(p, a.touching) || !glob_fits(p, a.on)) return WRONG;
        for (uint32_t k = a.first + 1; k < a.first + a.count; k++)
            if (p.entries[k].nth < p.entries[k - 1].nth) return WRONG;
    }
    for (uint32_t i = 0; i < h.entries; i++) {
        const plan_entry & e = p.entries[i];
        if (e.nth > MAX_NTH || e.ns > MAX_NS || e.further > MAX_NTH || e.line >= h.lines || e.place > AFTER_END || e.random > 1) return WRONG;
    }
    return nullptr;
}

// The code point at `at`, which moves on. Bytes that are no UTF-8 are U+FFFD, one for as many as could have begun one.
uint32_t code_point(const unsigned char *& at) {
    const uint32_t lead = *at++;
    if (lead < 0x80) return lead;
    int more = lead >= 0xc2 && lead <= 0xdf ? 1 : lead >= 0xe0 && lead <= 0xef ? 2 : lead >= 0xf0 && lead <= 0xf4 ? 3 : 0;
    if (!more) return 0xfffd;
    uint32_t low = 0x80, high = 0xbf, point = lead & (0x3fu >> more);
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
    for (; more; more--) {
        if (*at < low || *at > high) return 0xfffd;
        point = point << 6 | (*at++ & 0x3f);
        low = 0x80;
        high = 0xbf;
    }
    return point;
}

}  // namespace

const char * plan_open(const char * path, plan_file & out) {
    uint64_t bytes = 0, count_bytes = 0;
    void * plan = platform::file_open_mapped(path, false, bytes);
    if (!plan) return "it cannot be read";
    plan_file p;
    p.header = static_cast<const plan_header *>(plan);
    const char * wrong = bytes < sizeof(plan_header) ? "its length is another" : check(p, bytes);
    if (!wrong) {
        p.anchors = reinterpret_cast<const plan_anchor *>(p.header + 1);
        p.entries = reinterpret_cast<const plan_entry *>(p.anchors + p.header->anchors);
        p.tokens = reinterpret_cast<const uint32_t *>(p.entries + p.header->entries);
        wrong = check_parts(p);
    }
    const std::string counts = std::string(path) + ".counts";
    void * counters = platform::file_open_mapped(counts.c_str(), true, count_bytes);
    p.counts = static_cast<counts_header *>(counters);
    const bool counts_there = counters && count_bytes >= sizeof(counts_header) && p.counts->magic == COUNTS_MAGIC;
    if (!wrong && (!counts_there || p.counts->version != PLAN_VERSION || p.counts->lines != p.header->lines ||
                   count_bytes != sizeof(counts_header) + uint64_t(p.header->lines) * sizeof(line_counts)))
        wrong = "there is no place for its counts";
    if (wrong) {
        if (counts_there) p.counts->refused.fetch_add(1);
        if (counters) platform::unmap(counters, count_bytes);
        platform::unmap(plan, bytes);
        return wrong;
    }
    p.lines = reinterpret_cast<line_counts *>(p.counts + 1);
    out = p;
    return nullptr;
}

// As formats/delays/globs.py: at most tokens * characters steps.
bool glob_matches(const uint32_t * tokens, const char * name) {
    const uint32_t n = *tokens++;
    uint32_t token = 0, star = ~0u;
    auto * at = reinterpret_cast<const unsigned char *>(name), * restart = at;
    while (*at) {
        const unsigned char * next = at;
        const uint32_t c = code_point(next);
        if (token < n && (tokens[token] == c || tokens[token] == ANY_ONE)) {
            at = next;
            token++;
        } else if (token < n && tokens[token] == ANY_RUN) {
            star = token++;
            restart = at;
        } else if (star != ~0u) {
            code_point(restart);
            at = restart;
            token = star + 1;
        } else {
            return false;
        }
    }
    while (token < n && tokens[token] == ANY_RUN) token++;
    return token == n;
}

bool glob_may_begin_with_ordinal(const uint32_t * tokens) {
    return *tokens && (tokens[1] == '#' || tokens[1] >= ANY_RUN);
}

}  // namespace td
