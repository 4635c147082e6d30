// What is cut off is decided by issue time, as the collector does. A segment is counted when all its slots are handed
// out; `cut_ns` is a time since which the counted segments hold the records asked for. A chunk goes when nobody owns
// it and all its records are older. Segments mostly old go, but for chunks that are still needed: "kept".
// First STEM.ring says what is cut off, in one store; only then bytes are freed, so a kill leaves exact counts.
// A late store, the end time of a call that took as long as the whole window, hits memory that nobody reads: the
// mapping is replaced, and given back when no open call is as old and 256 more segments have gone by.
#include "ring.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <algorithm>
#include <mutex>
#include <new>

#include <pthread.h>

#include "host.h"
#include "memory.h"
#include "platform_linux.h"

namespace td {

namespace {

constexpr uint64_t PAGE        = 4096;           // a chunk
constexpr uint64_t SEGMENT_MAX = 8 << 20;
constexpr uint64_t CHUNKS_MAX  = SEGMENT_MAX / PAGE;
constexpr uint64_t RETIRED     = 256;            // segments that go by before addresses are used again
constexpr uint64_t KEPT_MAX    = (RING_WINDOW_BYTES - sizeof(ring_window)) / sizeof(uint64_t);
constexpr uint64_t HOLD_NS     = 60000000000ull; // a reader that takes longer has died

struct sealed_t { uint64_t count, min_ns; };
struct kept_segment { uint64_t k; char * at; uint64_t chunks[CHUNKS_MAX / 64]; };
struct retired_t { char * at; uint64_t end_slot, when; };

// Grows by doubling; never shrinks. Plain data.
template <class T>
struct list {
    T * at = nullptr;
    uint64_t n = 0, room = 0;
    T * add() {
        if (n == room) {
            uint64_t more = room ? 2 * room : 64;
            auto * bigger = static_cast<T *>(try_resize(at, more * sizeof(T)));
            if (!bigger) return nullptr;
            at = bigger;
            room = more;
        }
        return &at[n++];
    }
};

struct ring_t {
    uint64_t records = 0, ns = 0;        // what is asked for; 0 = not by this
    char stem[3072] = "";
    char * file = nullptr;               // STEM.ring
    uint64_t file_bytes = 0;
    list<char *> segments;               // mapped, from `tail` on: segment k at [k - base]
    list<sealed_t> seals;
    uint64_t base = 0, tail = 0, head = 0, sealed = 0;
    uint64_t dropped = 0, lost = 0;
    list<kept_segment> kept;
    list<retired_t> retired;
    list<uint64_t> pins;                 // chunks that a lane owns, sorted
    uint64_t claim = 0, oldest_open = 0; // slots
    uint64_t held_since = 0;
};

ring_t & R() {
    alignas(ring_t) static unsigned char room[sizeof(ring_t)];
    static ring_t * r = new (room) ring_t;
    return *r;
}

std::mutex & lanes_lock() {
    alignas(std::mutex) static unsigned char room[sizeof(std::mutex)];
    static std::mutex * m = new (room) std::mutex;
    return *m;
}
lane * lanes = nullptr;
pthread_key_t thread_end;
bool has_key = false;

uint64_t slots_in() { return sizes.segment_bytes / sizeof(record); }
uint64_t end_slot(uint64_t k) { return (k + 1) * slots_in() - 1; }     // slot n lies at byte 64 * (n + 1)
uint64_t chunks_in() { return sizes.segment_bytes / PAGE; }
uint64_t chunk_of(uint64_t slot) { return (slot + 1) * sizeof(record) / PAGE; }

void leave(lane & l) {
    std::lock_guard<std::mutex> guard(lanes_lock());
    if (!l.listed) return;
    (l.before ? l.before->after : lanes) = l.after;
    if (l.after) l.after->before = l.before;
    l.before = l.after = nullptr;
    l.listed = false;
}

// A thread ends. Its other destructors may still record: it comes in again then, but for the last time that counts.
void at_thread_end(void *) {
    lane & l = tl_lane;
    leave(l);
    l.next = l.end = nullptr;
    l.chunk = 0;
    if (++l.ends >= 3) l.closed = true;
}

struct span { uint64_t count, min_ns, max_ns, lost; };

// The committed records of a chunk. Marks of gaps are no records.
span look(const char * at, uint64_t chunk) {
    auto * r = reinterpret_cast<const record *>(at);
    span s = {0, ~0ull, 0, 0};
    const uint64_t first = chunk * PAGE / sizeof(record);   // + 1: the header stands where slot -1 would
    for (uint64_t i = chunk ? 0 : 1; i < PAGE / sizeof(record); i++) {
        const uint32_t commit = COMMIT ^ static_cast<uint32_t>(first + i - 1);
        if (__atomic_load_n(&r[i].commit, __ATOMIC_ACQUIRE) != commit) continue;
        if (r[i].kind == K_GAP) s.lost += r[i].a;
        else s.count++;
        s.min_ns = std::min(s.min_ns, r[i].issue_ns);
        s.max_ns = std::max(s.max_ns, r[i].issue_ns);
    }
    return s;
}

char * segment_at(uint64_t k) { return R().segments.at[k - R().base]; }

bool owned(uint64_t chunk) {
    ring_t & r = R();
    return (r.claim && chunk >= chunk_of(r.claim - 1)) || std::binary_search(r.pins.at, r.pins.at + r.pins.n, chunk);
}

// What the threads own right now. After `next` was read: a chunk below it that is not here is nobody's for ever.
bool read_lanes() {
    ring_t & r = R();
    r.pins.n = 0;
    r.claim = r.oldest_open = 0;
    std::lock_guard<std::mutex> guard(lanes_lock());
    for (lane * l = lanes; l; l = l->after) {
        // In this order: a lane announces its claim before it takes a chunk and withdraws it when it owns that.
        uint64_t claim = __atomic_load_n(&l->claim, __ATOMIC_ACQUIRE);
        uint64_t chunk = __atomic_load_n(&l->chunk, __ATOMIC_ACQUIRE);
        uint64_t open = __atomic_load_n(&l->outer, __ATOMIC_ACQUIRE);
        if (claim && (!r.claim || claim < r.claim)) r.claim = claim;
        if (open && (!r.oldest_open || open < r.oldest_open)) r.oldest_open = open;
        if (!chunk) continue;
        uint64_t * p = r.pins.add();
        if (!p) return false;
        *p = chunk - 1;
    }
    std::sort(r.pins.at, r.pins.at + r.pins.n);
    return true;
}

void seal(uint64_t next) {
    ring_t & r = R();
    while (r.sealed < r.head && end_slot(r.sealed) <= next) {
        sealed_t * s = r.seals.n > r.sealed - r.base ? &r.seals.at[r.sealed - r.base] : r.seals.add();
        if (!s) return;
        *s = {0, ~0ull};
        for (uint64_t c = 0; c < chunks_in(); c++) {
            span found = look(segment_at(r.sealed) + c * PAGE, r.sealed * chunks_in() + c);
            s->count += found.count;
            s->min_ns = std::min(s->min_ns, found.min_ns);
        }
        r.sealed++;
    }
}

// What was issued before is not asked for; 0 = all is.
uint64_t cut_ns() {
    ring_t & r = R();
    if (r.ns) {
        uint64_t now = platform::mono_ns();
        return now > r.ns ? now - r.ns : 0;
    }
    uint64_t cut = ~0ull, count = 0;
    for (uint64_t k = r.sealed; k > r.tail;) {
        const sealed_t & s = r.seals.at[--k - r.base];
        count += s.count;
        cut = std::min(cut, s.min_ns);
        if (count >= r.records) return cut;
    }
    return 0;
}

void free_range(uint64_t k, char * at, uint64_t from, uint64_t to) {
    if (k == 0 && from == 0) from = PAGE;   // the header
    if (from >= to) return;
    platform::forget(at + from, to - from);
    char path[sizeof R().stem + 64];
    ring_part(path, sizeof path, R().stem, k);
    platform::file_punch(path, from, to - from);
}

void free_segment(uint64_t k, char * at) {
    ring_t & r = R();
    if (k == 0) { free_range(0, at, 0, sizes.segment_bytes); return; }
    platform::forget(at, sizes.segment_bytes);
    char path[sizeof r.stem + 64];
    ring_part(path, sizeof path, r.stem, k);
    platform::file_remove(path);
    if (retired_t * t = r.retired.add()) *t = {at, end_slot(k), r.head};
}

void give_addresses_back() {
    ring_t & r = R();
    uint64_t left = 0;
    for (uint64_t i = 0; i < r.retired.n; i++) {
        const retired_t t = r.retired.at[i];
        bool old = r.head >= t.when + RETIRED && (!r.oldest_open || r.oldest_open > t.end_slot + slots_in());
        if (old) platform::unmap(t.at, sizes.segment_bytes);
        else r.retired.at[left++] = t;
    }
    r.retired.n = left;
}

ring_window * window(uint64_t number) {
    return reinterpret_cast<ring_window *>(R().file + PAGE + (number & 1) * RING_WINDOW_BYTES);
}

// A reader at work asks for patience with a file.
bool held() {
    ring_t & r = R();
    char path[sizeof r.stem + 16];
    const char * slash = strrchr(r.stem, '/');
    snprintf(path, sizeof path, "%.*s/hold", static_cast<int>(slash ? slash - r.stem : 0), r.stem);
    if (!platform::file_is_there(path)) { r.held_since = 0; return false; }
    const uint64_t now = platform::mono_ns();
    if (!r.held_since) r.held_since = now;
    return now - r.held_since < HOLD_NS;
}

bool get(const uint64_t * bits, uint64_t i) { return bits[i / 64] >> (i % 64) & 1; }

}  // namespace

void ring_configure() {
    ring_t & r = R();
    auto number = [](const char * name) {
        const char * text = getenv(name);
        return text && *text >= '0' && *text <= '9' ? strtoull(text, nullptr, 10) : 0ull;
    };
    r.records = number("TAPEDELAY_RING_RECORDS");
    const uint64_t ms = number("TAPEDELAY_RING_MS");
    r.ns = ms < ~0ull / 1000000 ? ms * 1000000 : 0;
    if (!ring_on()) return;
    if (!has_key) has_key = pthread_key_create(&thread_end, at_thread_end) == 0;
    if (!has_key) {
        say("all records are kept, not only the last ones: no room to see threads end");
        r.records = r.ns = 0;
        return;
    }
    // Many small files are as bad as few large ones.
    while (sizes.segment_bytes < SEGMENT_MAX && sizes.segment_bytes * 64 < r.records * sizeof(record)) sizes.segment_bytes *= 2;
}

bool ring_on() { return R().records || R().ns; }

void ring_part(char * path, uint64_t bytes, const char * stem, uint64_t k) {
    if (k == 0) snprintf(path, bytes, "%s.rec", stem);
    else snprintf(path, bytes, "%s.%llu.part", stem, static_cast<unsigned long long>(k));
}

bool ring_open(const char * stem) {
    ring_t & r = R();
    if (strlen(stem) >= sizeof r.stem) { errno = ENAMETOOLONG; return false; }
    snprintf(r.stem, sizeof r.stem, "%s", stem);
    char path[sizeof r.stem + 16];
    snprintf(path, sizeof path, "%s.ring", stem);
    const int fd = platform::file_create(path);
    if (fd < 0) return false;
    r.file_bytes = PAGE + 2 * RING_WINDOW_BYTES;
    if (platform::file_reserve(fd, 0, r.file_bytes)) r.file = static_cast<char *>(platform::file_map(fd, 0, r.file_bytes));
    const int error = errno;
    platform::file_close(fd);
    errno = error;
    if (!r.file) return false;
    auto * h = reinterpret_cast<ring_header *>(r.file);
    *h = {};
    h->segment_bytes = sizes.segment_bytes;
    h->records = r.records;
    h->ns = r.ns;
    __atomic_store_n(&h->magic, RING_MAGIC, __ATOMIC_RELEASE);
    return true;
}

bool ring_grown(char * at) {
    ring_t & r = R();
    char ** p = r.segments.add();
    if (!p) return false;
    *p = at;
    r.head++;
    return true;
}

uint64_t ring_segments() { return R().head - R().tail; }

void ring_trim(uint64_t next, uint64_t room) {
    ring_t & r = R();
    seal(next);
    if (held() || !read_lanes()) return;
    give_addresses_back();
    uint64_t cut = cut_ns();
    if (r.head - r.tail + 64 > room) cut = std::max(cut, r.sealed > r.tail ? r.seals.at[0].min_ns + 1 : 0);
    if (!cut) return;

    // Which chunks of which segments go.
    uint64_t tail = r.tail, count = 0, lost = 0, kept = 0;
    const uint64_t kept_before = r.kept.n;
    bool changed = false;
    list<kept_segment> & all = r.kept;
    for (uint64_t i = 0; i < kept_before; i++) {
        kept_segment & s = all.at[i];
        for (uint64_t c = 0; c < chunks_in(); c++) {
            if (!get(s.chunks, c)) continue;
            const uint64_t chunk = s.k * chunks_in() + c;
            span found = owned(chunk) ? span{0, 0, ~0ull, 0} : look(s.at + c * PAGE, chunk);
            if (found.max_ns >= cut) { kept++; continue; }
            s.chunks[c / 64] &= ~(1ull << (c % 64));   // freed below, when that is said
            count += found.count;
            lost += found.lost;
            changed = true;
        }
    }
    for (; tail < r.sealed; tail++) {
        if (r.seals.at[tail - r.base].min_ns >= cut && r.seals.at[tail - r.base].count) break;
        kept_segment s = {tail, segment_at(tail), {}};
        uint64_t young = 0, mine = 0, gone = 0, gone_lost = 0;
        for (uint64_t c = 0; c < chunks_in(); c++) {
            const uint64_t chunk = tail * chunks_in() + c;
            const bool has_owner = owned(chunk);
            span found = has_owner ? span{0, 0, ~0ull, 0} : look(s.at + c * PAGE, chunk);
            if (found.max_ns < cut) {
                gone += found.count;
                gone_lost += found.lost;
                continue;
            }
            young += !has_owner;
            mine++;
            s.chunks[c / 64] |= 1ull << (c % 64);
        }
        if (young > chunks_in() / 2 || kept + mine > KEPT_MAX) break;
        if (mine) {
            kept_segment * k = all.add();
            if (!k) break;
            *k = s;
        }
        kept += mine;
        count += gone;
        lost += gone_lost;
        changed = true;
    }
    if (!changed) return;

    // Said in one store: up to it the window before holds, and all its bytes are there.
    auto * h = reinterpret_cast<ring_header *>(r.file);
    const uint64_t number = h->current + 1;
    ring_window * w = window(number);
    w->first_slot = tail ? end_slot(tail - 1) : 0;
    w->dropped = r.dropped += count;
    w->lost = r.lost += lost;
    w->kept = 0;
    auto * chunks = reinterpret_cast<uint64_t *>(w + 1);
    for (uint64_t i = 0; i < all.n; i++)
        for (uint64_t c = 0; c < chunks_in(); c++)
            if (get(all.at[i].chunks, c)) chunks[w->kept++] = all.at[i].k * chunks_in() + c;
    __atomic_store_n(&h->current, number, __ATOMIC_RELEASE);

    // Now the bytes.
    uint64_t next_kept = kept_before;
    for (uint64_t k = r.tail; k < tail; k++) {
        if (next_kept < all.n && all.at[next_kept].k == k) next_kept++;
        else free_segment(k, segment_at(k));
    }
    uint64_t left = 0;
    for (uint64_t i = 0; i < all.n; i++) {
        kept_segment & s = all.at[i];
        bool any = false;
        for (uint64_t c = 0; c < chunks_in();) {
            uint64_t end = c;
            while (end < chunks_in() && !get(s.chunks, end)) end++;
            if (end > c) free_range(s.k, s.at, c * PAGE, end * PAGE);
            any |= end < chunks_in();
            c = end + 1;
        }
        if (any) all.at[left++] = s;
        else free_segment(s.k, s.at);
    }
    all.n = left;
    // The tables begin with the tail.
    const uint64_t by = tail - r.base;
    memmove(r.segments.at, r.segments.at + by, (r.segments.n - by) * sizeof *r.segments.at);
    memmove(r.seals.at, r.seals.at + by, (r.seals.n - by) * sizeof *r.seals.at);
    r.segments.n -= by;
    r.seals.n -= by;
    r.base = r.tail = tail;
}

bool ring_enter(lane & l) {
    if (l.listed) return true;
    if (l.closed) return false;
    if (pthread_setspecific(thread_end, &l) != 0) {
        static std::atomic<bool> said{false};
        if (!said.exchange(true)) say("a thread's records are lost: its end could not be watched; the engine goes on");
        return false;
    }
    std::lock_guard<std::mutex> guard(lanes_lock());
    l.before = nullptr;
    l.after = lanes;
    if (lanes) lanes->before = &l;
    lanes = &l;
    l.listed = true;
    return true;
}

void ring_before_fork() { lanes_lock().lock(); }
void ring_after_fork() { lanes_lock().unlock(); }

void ring_in_child() {
    new (&lanes_lock()) std::mutex;
    lanes = nullptr;
}

void ring_unmap() {
    ring_t & r = R();
    for (uint64_t i = 0; i < r.segments.n; i++) platform::unmap(r.segments.at[i], sizes.segment_bytes);
    for (uint64_t i = 0; i < r.kept.n; i++) platform::unmap(r.kept.at[i].at, sizes.segment_bytes);
    for (uint64_t i = 0; i < r.retired.n; i++) platform::unmap(r.retired.at[i].at, sizes.segment_bytes);
    if (r.file) platform::unmap(r.file, r.file_bytes);
    r.file = nullptr;
    r.segments.n = r.seals.n = r.kept.n = r.retired.n = 0;
    r.base = r.tail = r.head = r.sealed = r.dropped = r.lost = r.held_since = 0;
}

}  // namespace td
