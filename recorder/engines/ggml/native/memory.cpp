#include "memory.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "host.h"
#include "platform_linux.h"
#include "spool.hpp"

namespace td {

namespace {

std::atomic<bool> told{false};

// The reserve: slots of few sizes, each with one bit in a map. Pages that are never used cost nothing. No lock, so
// that neither a fork nor a signal can find one taken.
template <size_t SLOT_BYTES, size_t SLOTS>
class slots {
  public:
    void * take() {
        for (std::atomic<uint64_t> & word : used_) {
            uint64_t seen = word.load(std::memory_order_relaxed);
            while (~seen) {
                const int bit = __builtin_ctzll(~seen);
                if (word.compare_exchange_weak(seen, seen | 1ull << bit, std::memory_order_acquire)) {
                    return room_ + (size_t(&word - used_) * 64 + size_t(bit)) * SLOT_BYTES;
                }
            }
        }
        return nullptr;
    }
    bool give_back(void * at) {
        const uintptr_t offset = uintptr_t(at) - uintptr_t(room_);
        if (offset >= sizeof room_) {
            return false;
        }
        const size_t n = offset / SLOT_BYTES;
        used_[n / 64].fetch_and(~(1ull << n % 64), std::memory_order_release);
        return true;
    }

  private:
    static_assert(SLOTS % 64 == 0, "whole words of the map");
    std::atomic<uint64_t> used_[SLOTS / 64] = {};
    alignas(64) char room_[SLOT_BYTES * SLOTS] = {};
};

slots<128, 2048> small;
slots<1024, 128> middle;
slots<16384, 64> large;

}  // namespace

void * reserve_take(size_t bytes) {
    void * at = nullptr;
    if (bytes <= 128) {
        at = small.take();
    }
    if (!at && bytes <= 1024) {
        at = middle.take();
    }
    if (!at && bytes <= 16384) {
        at = large.take();
    }
    return at;
}

bool reserve_give_back(void * at) { return small.give_back(at) || middle.give_back(at) || large.give_back(at); }

void memory_short() {
    if (!told.exchange(true)) {
        spool_out_of_memory();
    }
}

void * try_alloc(size_t bytes) {
    void * at = malloc(bytes ? bytes : 1);
    if (!at) {
        memory_short();
    }
    return at;
}

void * try_zeroed(size_t count, size_t bytes) {
    void * at = calloc(count ? count : 1, bytes ? bytes : 1);
    if (!at) {
        memory_short();
    }
    return at;
}

void * try_aligned(size_t alignment, size_t bytes) {
    void * at = nullptr;
    if (posix_memalign(&at, alignment, bytes ? bytes : 1) != 0) {
        memory_short();
        return nullptr;
    }
    return at;
}

void * try_resize(void * at, size_t bytes) {
    void * moved = realloc(at, bytes ? bytes : 1);
    if (!moved) {
        memory_short();
    }
    return moved;
}

namespace {

// For what cannot do without. The code that asks is built without exceptions: bad_alloc would end the process.
void * must_alloc(size_t bytes) {
    if (void * at = malloc(bytes ? bytes : 1)) {
        return at;
    }
    memory_short();
    if (void * at = reserve_take(bytes)) {
        return at;
    }
    for (int tries = 0; tries < 1000; tries++) {   // others may give some back
        platform::sleep_ns(10000000);
        if (void * at = malloc(bytes ? bytes : 1)) {
            return at;
        }
    }
    say("out of memory: %zu bytes cannot be had, and the reserve is used up", bytes);
    abort();
}

void give_back(void * at) {
    if (at && !reserve_give_back(at)) {
        free(at);
    }
}

}  // namespace

}  // namespace td

// Hidden (exports.map): they serve this library, the C++ runtime that is linked into it included, and nobody else.
void * operator new(size_t bytes) { return td::must_alloc(bytes); }
void * operator new[](size_t bytes) { return td::must_alloc(bytes); }
void * operator new(size_t bytes, const std::nothrow_t &) noexcept { return td::try_alloc(bytes); }
void * operator new[](size_t bytes, const std::nothrow_t &) noexcept { return td::try_alloc(bytes); }
void operator delete(void * at) noexcept { td::give_back(at); }
void operator delete[](void * at) noexcept { td::give_back(at); }
void operator delete(void * at, size_t) noexcept { td::give_back(at); }
void operator delete[](void * at, size_t) noexcept { td::give_back(at); }
void operator delete(void * at, const std::nothrow_t &) noexcept { td::give_back(at); }
void operator delete[](void * at, const std::nothrow_t &) noexcept { td::give_back(at); }
