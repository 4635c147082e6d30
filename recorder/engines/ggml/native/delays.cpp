#include "delays.h"

#include <cstdlib>
#include <new>

#include "delays.hpp"
#include "filler.h"
#include "platform_linux.h"
#include "queue.h"

namespace td {

bool delays_on = false;

namespace {

constexpr uint64_t NO_RECORD = ~0ull;

__thread delayed * innermost;
// Slept before a call that was then declined: the call that does its work instead has had that much.
__thread uint64_t slept_ahead_ns;

line_counts & counts_of(uint32_t line) { return delays_plan().lines[line]; }

void applied(const delay_part & p) { counts_of(p.line).applied.fetch_add(1, std::memory_order_relaxed); }
void missed(const delay_part & p) { counts_of(p.line).missed.fetch_add(1, std::memory_order_relaxed); }

entry note(const delay_part & p, uint64_t slot, uint32_t filler) {
    if (slot == NO_RECORD) return {};
    entry e = take(K_DELAY, NO_QUEUE, 0);
    if (!e) return e;
    put(e, slot, p.ns, 0, p.line, p.place + filler, NONE);
    return e;
}

void ended(const entry & e, uint64_t begin_ns, uint64_t end_ns) {
    if (!e) return;
    e.r->c = end_ns - begin_ns;
    __atomic_store_n(&e.r->end_ns, end_ns, __ATOMIC_RELEASE);
}

void hook_before(unsigned, const command & c) {
    if (c.delays && c.kind != command_kind::event_wait) delays_hold(*c.delays, BEFORE_START, c.slot);
}

void hook_after(unsigned, const command & c) {
    if (!c.delays) return;
    // A wait starts when what it waits for has ended.
    if (c.kind == command_kind::event_wait) delays_hold(*c.delays, BEFORE_START, c.slot);
    delays_hold(*c.delays, AFTER_END, c.slot);
}

}  // namespace

void delays_start() {
    const char * path = getenv("TAPEDELAY_DELAYS");
    if (!path || !*path || !delays_open(path)) return;
    hooks.before_start = hook_before;
    hooks.after_end = hook_after;
    delays_on = true;
}

void delays_stop() { delays_on = false; }

void delays_hold(const delay_match & match, delay_place place, uint64_t slot, uint64_t ahead_ns) {
    uint64_t begin = platform::mono_ns() - ahead_ns;
    for (uint32_t i = 0; i < match.count; i++) {
        const delay_part & p = match.parts[i];
        if (p.place != place) continue;
        entry e = note(p, slot, 0);
        if (e) {
            e.r->issue_ns = begin;
            commit(e);
        }
        applied(p);
        platform::sleep_until_ns(begin + p.ns);
        const uint64_t end = platform::mono_ns();
        ended(e, begin, end);
        begin = end;
    }
}

void delayed::begin(op_kind kind, const queue_info * queue, ggml_backend_t backend, uint32_t name, uint32_t set) {
    active_ = true;
    kind_ = kind;
    queue_ = queue;
    name_ = name;
    late_ = kind == OP_WAIT || kind == OP_SYNC;
    undone_ = handed_ = false;
    by_ = !queue || !queue->async ? by::thread : queue->device->test ? by::queue : queue->device->meta || !backend ? by::nobody : by::filler;
    slot_ = NO_RECORD;
    backend_ = backend;
    outer_ = innermost;
    innermost = this;
    delays_find(kind, queue, name, set, match_);
    if (kind != OP_COPY) slept_ahead_ns = 0;
    if (match_.count) sleep_ahead(BEFORE_ISSUE);
}

// On the calling thread, before it is certain that there is an op.
void delayed::sleep_ahead(delay_place place) {
    uint64_t begin = platform::mono_ns() - slept_ahead_ns;
    for (uint32_t i = 0; i < match_.count; i++) {
        delay_part & p = match_.parts[i];
        if (p.place != place) continue;
        slept_ahead_ns = 0;
        p.begin_ns = begin;
        platform::sleep_until_ns(begin + p.ns);
        p.end_ns = begin = platform::mono_ns();
    }
}

// Now there is.
void delayed::recorded(uint64_t slot, delay_place place) {
    for (uint32_t i = 0; i < match_.count; i++) {
        const delay_part & p = match_.parts[i];
        if (p.place != place) continue;
        entry e = note(p, slot, 0);
        if (e) {
            e.r->issue_ns = p.begin_ns;
            ended(e, p.begin_ns, p.end_ns);
            commit(e);
        }
        applied(p);
    }
}

void delayed::is_issued(uint64_t slot) {
    slot_ = slot;
    recorded(slot, BEFORE_ISSUE);
    if (!late_) device_part(BEFORE_START);
}

void delayed::may_be_issued(uint64_t slot) {
    slot_ = slot;
    if (by_ == by::thread) sleep_ahead(BEFORE_START); else device_part(BEFORE_START);
}

void delayed::was_accepted() {
    recorded(slot_, BEFORE_ISSUE);
    if (by_ == by::thread) recorded(slot_, BEFORE_START);
    after_call();
}

void delayed::device_part(delay_place place) {
    if (by_ == by::thread) {
        delays_hold(match_, place, slot_, slept_ahead_ns);
        slept_ahead_ns = 0;
    }
    if (by_ == by::filler) fill(place);
}

void delayed::after_call() {
    if (late_) device_part(BEFORE_START);
    device_part(AFTER_END);
    if (by_ == by::nobody || (by_ == by::queue && !handed_)) {
        for (uint32_t i = 0; i < match_.count; i++) if (match_.parts[i].place != BEFORE_ISSUE) missed(match_.parts[i]);
    }
    match_.count = 0;
}

void delayed::fill(delay_place place) {
    for (uint32_t i = 0; i < match_.count; i++) {
        const delay_part & p = match_.parts[i];
        if (p.place != place) continue;
        uint64_t true_ns = 0;
        const uint64_t begin = platform::mono_ns();
        if (!filler_enqueue(backend_, p.ns, true_ns)) {
            missed(p);
            continue;
        }
        if (entry e = note(p, slot_, DELAY_FILLER)) {
            e.r->issue_ns = begin;
            e.r->end_ns = platform::mono_ns();
            e.r->c = true_ns;
            commit(e);
        }
        applied(p);
    }
}

void delayed::undo() {
    delays_take_back(kind_, queue_, name_);
    uint64_t slept = 0;
    for (uint32_t i = 0; i < match_.count; i++) slept += match_.parts[i].end_ns - match_.parts[i].begin_ns;
    match_.count = 0;
    slept_ahead_ns = slept;
    undone_ = true;
}

void delayed::leave() {
    innermost = outer_;
    if (!undone_) slept_ahead_ns = 0;
}

std::unique_ptr<delay_match> delays_for_command() {
    delayed * d = innermost;
    if (!d || d->handed_ || !d->match_.count) return nullptr;
    if (!d->match_.has(BEFORE_START) && !d->match_.has(AFTER_END)) return nullptr;
    std::unique_ptr<delay_match> copy(new (std::nothrow) delay_match(d->match_));
    d->handed_ = copy != nullptr;
    return copy;
}

bool delays_pending() {
    delayed * d = innermost;
    return d && !d->handed_ && (d->match_.has(BEFORE_START) || d->match_.has(AFTER_END));
}

// --- copies that may be declined -----------------------------------------------------------------------------------

namespace {

struct route_cell { std::atomic<uint64_t> key; std::atomic<bool> accepted; };
route_cell routes[256];

uint64_t key_of(const copy_route & r) {
    uint64_t h = 0x9ae16a3b2f90404full;
    for (const void * p : {r.from, r.to, r.src, r.dst}) h = (h ^ reinterpret_cast<uint64_t>(p)) * 0x9fb21c651e98df25ull;
    return (h ^ h >> 32) | 1;
}

}  // namespace

bool copy_expected(const copy_route & r) {
    const uint64_t key = key_of(r);
    const route_cell & c = routes[key >> 8 & 255];
    return c.key.load(std::memory_order_acquire) != key || c.accepted.load(std::memory_order_relaxed);
}

void copy_met(const copy_route & r, bool accepted) {
    const uint64_t key = key_of(r);
    route_cell & c = routes[key >> 8 & 255];
    c.accepted.store(accepted, std::memory_order_relaxed);
    c.key.store(key, std::memory_order_release);
}

}  // namespace td
