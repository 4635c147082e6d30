#include "spool.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "crc32.h"
#include "hooks.h"
#include "host.h"
#include "memory.h"
#include "platform_linux.h"
#include "ring.hpp"

namespace td {

__thread lane tl_lane;
spool_sizes sizes;
std::atomic<bool> spool_running{false};

namespace {

constexpr uint32_t CHUNK        = 64;
constexpr uint64_t PAGE         = 4096;
constexpr uint64_t MAX_SEGMENTS = 1 << 16;

struct segment { char * at; uint64_t first_byte, bytes; };

struct state_t {
    std::string directory, stem;
    int rec = -1, def = -1;
    uint64_t def_bytes = 0;
    uint32_t threads = 0, host_threads = 0;
    bool inherited = false;                    // forked child that has not opened its own files yet
    std::atomic<spool_header *> header{nullptr};
    std::atomic<uint64_t> next{0};             // next slot to hand out
    std::atomic<uint64_t> ready{0};            // slots allocated, mapped and touched
    std::atomic<uint32_t> wake{0};             // bumped when the helper has work
    std::atomic<bool> failed{false};           // said; no more growth
    std::atomic<uint32_t> why{0}, error{0};    // STOP_*, what failed first, and errno
    std::atomic<bool> stopped{false};          // ended on request
    std::atomic<bool> over{false};             // whatever the reason: nothing is written any more
    segment * segments = nullptr;              // written by the helper, published by `ready`
    std::atomic<uint32_t> n_segments{0};
    uint64_t file_bytes = 0;
    platform::thread helper;
};

// Never destroyed: threads may still record while the process runs its exit handlers.
state_t & S() {
    alignas(state_t) static unsigned char room[sizeof(state_t)];
    static state_t * s = new (room) state_t;
    return *s;
}

std::recursive_mutex & lock() {
    alignas(std::recursive_mutex) static unsigned char room[sizeof(std::recursive_mutex)];
    static std::recursive_mutex * m = new (room) std::recursive_mutex;
    return *m;
}

// Held by the helper while it changes the tables of segments: a fork that comes in between would leave the child
// tables that are half made. Within it the other lock is never taken.
std::mutex & tables_lock() {
    alignas(std::mutex) static unsigned char room[sizeof(std::mutex)];
    static std::mutex * m = new (room) std::mutex;
    return *m;
}

void fill(spool_header * h) {
    *h = {};
    h->magic = SPOOL_MAGIC;
    h->version = SPOOL_VERSION;
    h->record_bytes = sizeof(record);
    h->mono_ns = platform::mono_ns();
    h->wall_ns = platform::wall_ns();
    h->pid = platform::process_id();
    h->boot = platform::boot_number();
}

// Into the header; into a file that could not be mapped a header that says no more than this.
void write_failure() {
    state_t & s = S();
    spool_header unmapped, *mapped = s.header.load(), *h = mapped ? mapped : &unmapped;
    if (!mapped) fill(h);
    h->error = s.error.load();
    h->why = s.why.load();
    __atomic_fetch_or(&h->flags, static_cast<uint32_t>(HDR_FAILED), __ATOMIC_RELEASE);
    if (!mapped) platform::file_append(s.rec, h, sizeof *h);
}

// The first reason counts: it stands in the header and is said once. Takes no lock and allocates nothing.
bool first_failure(uint32_t why, int error) {
    state_t & s = S();
    if (s.failed.exchange(true)) return false;
    s.error.store(static_cast<uint32_t>(error));
    s.why.store(why);
    if (s.header.load() || s.rec >= 0) write_failure();
    return true;
}

void fail(uint32_t why, const char * what, int error) {
    if (!first_failure(why, error)) return;
    say("recording stopped early: cannot write %s in TAPEDELAY_SPOOL (%s); the engine goes on, free space or raise the limit and record again",
        what, strerror(error));
}

// Allocates, maps and touches one more segment. Helper thread, or before it runs.
bool grow() {
    state_t & s = S();
    if (s.failed.load()) return false;
    uint32_t n = s.n_segments.load();
    if ((ring_on() ? ring_segments() : n) == MAX_SEGMENTS) { fail(STOP_RECORDS, "more records", EFBIG); return false; }
    // The last bytes of a disk are the engine's, and the definitions'.
    if (n && platform::file_space_left(s.rec) < 2 * sizes.segment_bytes) { fail(STOP_RECORDS, "records", ENOSPC); return false; }
    int file = s.rec;
    uint64_t offset = s.file_bytes;
    if (ring_on() && n) {   // a file of its own, so that it can go as a whole
        char path[4096];
        ring_part(path, sizeof path, s.stem.c_str(), n);
        file = platform::file_create(path);
        if (file < 0) { fail(STOP_FILE, "a file", errno); return false; }
        offset = 0;
    }
    errno = 0;
    const bool reserved = platform::file_reserve(file, offset, sizes.segment_bytes);
    auto * at = reserved ? static_cast<char *>(platform::file_map(file, offset, sizes.segment_bytes)) : nullptr;
    const int error = errno ? errno : ENOSPC;
    if (file != s.rec) platform::file_close(file);
    if (!at) { fail(STOP_RECORDS, "records", error); return false; }
    // Touched here, so that the engine's threads do not take the page faults.
    for (uint64_t i = 0; i < sizes.segment_bytes; i += PAGE) *reinterpret_cast<volatile char *>(at + i) = 0;
    s.segments[n % MAX_SEGMENTS] = {at, s.file_bytes, sizes.segment_bytes};
    if (ring_on() && !ring_grown(at)) return false;
    s.file_bytes += sizes.segment_bytes;
    s.n_segments.store(n + 1, std::memory_order_release);
    if (n) s.ready.store(s.file_bytes / sizeof(record) - 1, std::memory_order_release);
    return true;
}

uint64_t ahead() {
    state_t & s = S();
    uint64_t ready = s.ready.load(), next = s.next.load();
    return ready > next ? (ready - next) * sizeof(record) : 0;
}

void help(void *) {
    state_t & s = S();
    for (;;) {
        uint32_t seen = s.wake.load();
        for (bool more = true; more;) {   // one at a time: a fork has to wait for no more than that
            std::lock_guard<std::mutex> guard(tables_lock());
            more = ahead() < sizes.ahead_bytes && grow();
        }
        if (ring_on()) {
            std::lock_guard<std::mutex> guard(tables_lock());
            ring_trim(s.next.load(std::memory_order_acquire), MAX_SEGMENTS);
        }
        platform::wait_while(s.wake, seen);
    }
}

bool append(const char * frame, size_t n) {
    state_t & s = S();
    errno = 0;
    if (!platform::file_append(s.def, frame, n)) {
        fail(STOP_DEFINITIONS, "definitions", errno ? errno : ENOSPC);
        platform::file_truncate(s.def, s.def_bytes);   // takes back the part that was written
        s.over.store(true);
        spool_running.store(false);
        return false;
    }
    s.def_bytes += n;
    return true;
}

void before_fork();
void after_fork();
void in_child();

// Both files, the header, the first segments, the helper. With the lock held.
bool open_files(const std::string & parent_stem, uint64_t parent_def_bytes) {
    state_t & s = S();
    uint64_t start = platform::mono_ns();
    s.stem = s.directory + "/" + std::to_string(platform::process_id()) + "-" + std::to_string(start);
    s.rec = platform::file_create((s.stem + ".rec").c_str());
    if (s.rec < 0) {
        const int error = errno;
        fail(STOP_FILE, "a file", error);
        char line[256];
        snprintf(line, sizeof line, "recording stopped early: its file could not be made (%s)", strerror(error));
        leave_word(line);
        return false;
    }
    if (s.failed.load()) { write_failure(); return false; }   // out of memory before there was a place to say so
    s.def = platform::file_create((s.stem + ".def").c_str());
    if (s.def < 0) { fail(STOP_FILE, "a file", errno); return false; }
    if (ring_on() && !ring_open(s.stem.c_str())) { fail(STOP_FILE, "a file", errno); return false; }
    if (!s.segments) {   // the process's first
        s.segments = static_cast<segment *>(try_zeroed(MAX_SEGMENTS, sizeof(segment)));
        if (!s.segments) return false;
        // Before there is a record: a child that is not seen would write over its parent's.
        if (!platform::at_fork(before_fork, after_fork, in_child)) { fail(STOP_FORK, "records", ENOMEM); return false; }
    }
    if (!grow()) return false;
    auto * h = reinterpret_cast<spool_header *>(s.segments[0].at);
    fill(h);
    s.header.store(h);
    if (!parent_stem.empty()) {
        FILE * f = fopen((parent_stem + ".def").c_str(), "rbe");
        char piece[1 << 14];
        uint64_t left = parent_def_bytes;
        while (f && left) {
            size_t n = fread(piece, 1, left < sizeof piece ? left : sizeof piece, f);
            if (!n || !platform::file_append(s.def, piece, n)) break;
            left -= n;
        }
        if (f) fclose(f);
        if (left) { fail(STOP_DEFINITIONS, "the parent's definitions", errno ? errno : EIO); return false; }
        s.def_bytes = parent_def_bytes;
    }
    s.ready.store(s.file_bytes / sizeof(record) - 1, std::memory_order_release);
    // An engine starts with a burst (weights): all that is kept ahead is there before it begins.
    while (ahead() < sizes.ahead_bytes && grow()) {}
    if (!platform::thread_start(s.helper, help, nullptr, "tapedelay")) { fail(STOP_THREAD, "records", EAGAIN); return false; }
    platform::thread_detach(s.helper);
    spool_running.store(true);
    if (s.over.load()) spool_running.store(false);   // out of memory on the way here
    return !s.over.load();
}

void before_fork() {
    lock().lock();
    tables_lock().lock();
    ring_before_fork();
}
void after_fork() {
    ring_after_fork();
    tables_lock().unlock();
    lock().unlock();
}

// The child shares the parent's mappings and must never write there: its files are made at its first record.
void in_child() {
    new (&lock()) std::recursive_mutex;   // its owner was a thread id of the parent
    new (&tables_lock()) std::mutex;
    state_t & s = S();
    ring_in_child();
    lane & l = tl_lane;
    l = lane{};
    if (!s.header.load()) return;
    spool_running.store(false);
    s.header.store(nullptr);
    platform::file_close(s.rec);
    platform::file_close(s.def);
    s.rec = s.def = -1;
    s.next.store(0);
    s.ready.store(0);
    s.host_threads = 0;
    s.inherited = !s.failed.load();
}

// With the lock held.
bool open_child() {
    state_t & s = S();
    s.inherited = false;
    if (ring_on()) ring_unmap();
    else for (uint32_t i = 0, n = s.n_segments.load(); i < n; i++) platform::unmap(s.segments[i].at, s.segments[i].bytes);
    s.n_segments.store(0);
    s.file_bytes = 0;
    s.helper = {};
    if (open_files(std::string(s.stem), s.def_bytes)) return true;
    s.over.store(true);
    return false;
}

}  // namespace

std::recursive_mutex & slow_path() { return lock(); }

const char * blob::frame(def_t type) const {
    if (bytes_.failed() || bytes_.size() - HEAD > NONE) return nullptr;
    uint32_t t = type, n = static_cast<uint32_t>(bytes_.size() - HEAD), crc = 0;
    memcpy(bytes_.data() + 8, &t, 4);
    crc = crc32(0, bytes_.data() + 8, n + sizeof t);
    memcpy(bytes_.data(), &n, 4);
    memcpy(bytes_.data() + 4, &crc, 4);
    return bytes_.data();
}

blob & blob::str(const char * text) {
    size_t n = text ? strlen(text) : 0;
    if (n > 4096) n = 4096;
    u32(static_cast<uint32_t>(n));
    return raw(text ? text : "", n);
}

bool spool_start(const char * directory) {
    std::lock_guard<std::recursive_mutex> guard(lock());
    state_t & s = S();
    if (s.header.load()) return true;
    char * full = realpath(directory, nullptr);
    if (!full) {
        say("not recording: the directory in TAPEDELAY_SPOOL cannot be used (%s); give one that exists and can be written", strerror(errno));
        return false;
    }
    s.directory = full;
    free(full);
    ring_configure();
    if (!open_files("", 0)) {
        s.over.store(true);
        return false;
    }
    if (!platform::at_exit(spool_end) && !s.why.exchange(STOP_FORK)) say("the end of this process will not be seen: its recording will count as cut off");
    return true;
}

void spool_end() {
    if (spool_header * h = S().header.load()) __atomic_fetch_or(&h->flags, static_cast<uint32_t>(HDR_ENDED), __ATOMIC_RELAXED);
}

void spool_wait_ahead(uint64_t bytes) {
    state_t & s = S();
    while (!s.failed.load() && ahead() < bytes) {
        s.wake.fetch_add(1);
        platform::wake_all(s.wake);
        timespec t{0, 200000};
        nanosleep(&t, nullptr);
    }
}

void spool_stop() {
    std::lock_guard<std::recursive_mutex> guard(lock());
    S().stopped.store(true);
    S().over.store(true);
    spool_running.store(false);
    spool_end();
}

void spool_out_of_memory() {
    S().over.store(true);
    spool_running.store(false);
    if (!first_failure(STOP_MEMORY, ENOMEM)) return;
    say("out of memory: the engine goes on, nothing is recorded any more, and test devices may work in step with it");
}

uint32_t spool_failed_for() { return S().why.load(std::memory_order_relaxed); }

bool spool_over() { return S().over.load(std::memory_order_relaxed); }

void spool_lost() {
    if (S().stopped.load(std::memory_order_relaxed)) return;
    if (spool_header * h = S().header.load()) __atomic_fetch_add(&h->lost, 1, __ATOMIC_RELAXED);
    lane & l = tl_lane;
    l.lost_to_ns = platform::mono_ns();
    if (!l.lost++) l.lost_from_ns = l.lost_to_ns;
}

// The first record of a chunk says what was lost before it.
static void mark_gap(lane & l) {
    record * r = l.next++;
    *r = {};
    r->issue_ns = l.lost_from_ns;
    r->end_ns = l.lost_to_ns;
    r->a = l.lost;
    r->d = r->e = r->name = NONE;
    r->thread = l.thread - 1;
    r->queue = NO_QUEUE;
    r->kind = K_GAP;
    __atomic_store_n(&r->commit, COMMIT ^ static_cast<uint32_t>(l.slot++), __ATOMIC_RELEASE);
    l.lost = 0;
}

static bool name_thread(lane & l) {
    std::lock_guard<std::recursive_mutex> guard(lock());
    state_t & s = S();
    if (s.threads >= NONE - 1 || !define(D_THREAD, blob().u32(s.threads))) return false;
    l.thread = ++s.threads;
    if (!internal) l.host = static_cast<uint16_t>(s.host_threads++);
    return true;
}

uint32_t spool_host_number() {
    if (!tl_lane.thread) name_thread(tl_lane);
    return tl_lane.host;
}

bool spool_refill(lane & l) {
    state_t & s = S();
    if (__builtin_expect(!spool_running.load(), 0)) {
        if (s.stopped.load(std::memory_order_relaxed)) return false;
        if (s.failed.load(std::memory_order_relaxed)) { spool_lost(); return false; }
        std::lock_guard<std::recursive_mutex> guard(lock());
        if (s.inherited) open_child();
        if (!spool_running.load()) { spool_lost(); return false; }
    }
    if (!l.thread && !name_thread(l)) { spool_lost(); return false; }
    if (ring_on() && !ring_enter(l)) { spool_lost(); return false; }
    uint64_t from = s.next.load(std::memory_order_relaxed), to, ready;
    __atomic_store_n(&l.claim, from + 1, __ATOMIC_RELEASE);
    do {
        ready = s.ready.load(std::memory_order_acquire);
        if (from >= ready) {
            __atomic_store_n(&l.claim, 0, __ATOMIC_RELEASE);
            spool_lost();
            if (!s.failed.load(std::memory_order_relaxed)) {
                s.wake.fetch_add(1);
                platform::wake_all(s.wake);
            }
            return false;
        }
        // Chunks end on page boundaries of the file (slot n lies at byte 64 * (n + 1)), so none crosses a segment.
        to = (from + 1) / CHUNK * CHUNK + CHUNK - 1;
    } while (!s.next.compare_exchange_weak(from, to, std::memory_order_release, std::memory_order_relaxed));
    uint64_t byte = (from + 1) * sizeof(record);
    __atomic_store_n(&l.chunk, byte / PAGE + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&l.claim, 0, __ATOMIC_RELEASE);
    const segment & g = s.segments[byte / sizes.segment_bytes % MAX_SEGMENTS];
    l.slot = from;
    l.next = reinterpret_cast<record *>(g.at + (byte - g.first_byte));
    l.end = l.next + (to - from);
    if (__builtin_expect(l.lost != 0, 0)) mark_gap(l);
    if ((ready - to) * sizeof(record) < sizes.ahead_bytes && !s.failed.load(std::memory_order_relaxed)) {
        // Once per segment is enough to keep ahead; the helper takes as many segments as are missing.
        if ((to * sizeof(record)) % (sizes.segment_bytes / 4) < CHUNK * sizeof(record)) {
            s.wake.fetch_add(1);
            platform::wake_all(s.wake);
        }
    }
    return true;
}

bool define(def_t type, const blob & payload) {
    std::lock_guard<std::recursive_mutex> guard(lock());
    state_t & s = S();
    if (s.inherited && !open_child()) return false;
    if (!spool_running.load()) return false;
    const char * frame = payload.frame(type);
    return frame && append(frame, payload.frame_bytes());
}

}  // namespace td
