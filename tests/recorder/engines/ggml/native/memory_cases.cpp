// The plugin's memory without the plugin: memory.cpp, containers.hpp. Exit code 0 = as promised.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "check.h"
#include "containers.hpp"
#include "memory.h"

namespace td {

// What memory.cpp asks of the rest.
int shortages = 0;
void spool_out_of_memory() { shortages++; }
void say(const char * format, ...) { fprintf(stderr, "%s\n", format); }
namespace platform {
void sleep_ns(uint64_t) {}
}  // namespace platform

}  // namespace td

using namespace td;

namespace {

constexpr size_t NEVER = SIZE_MAX / 4;   // bytes that no machine has

void refusals_are_told_once() {
    volatile size_t never = NEVER;   // else the compiler sees that it cannot work
    CHECK(!try_alloc(never) && !try_zeroed(never, 1) && !try_aligned(64, never));
    char * kept = static_cast<char *>(try_alloc(10));
    strcpy(kept, "still");
    CHECK(!try_resize(kept, never) && !strcmp(kept, "still"));
    CHECK(!::operator new(never, std::nothrow));
    free(kept);
    CHECK(shortages == 1);
}

void the_reserve_is_given_and_taken_back() {
    std::set<char *> all;
    for (size_t size : {100u, 900u, 16000u}) {
        while (auto * p = static_cast<char *>(reserve_take(size))) {
            CHECK(reinterpret_cast<uintptr_t>(p) % 64 == 0);
            memset(p, 0x5a, size);
            CHECK(all.insert(p).second);
        }
    }
    CHECK(all.size() > 2000);
    CHECK(!reserve_take(1) && !reserve_take(1 << 20));
    for (char * p : all) {
        ::operator delete(p);   // as whoever got it by `new` does
    }
    CHECK(!reserve_give_back(&all) && !reserve_give_back(nullptr));
    size_t again = 0;
    while (reserve_take(100)) {
        again++;
    }
    CHECK(again > 2000);
}

void threads_share_the_reserve() {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([t] {
            for (int i = 0; i < 20000; i++) {
                auto * p = static_cast<unsigned char *>(reserve_take(128));
                CHECK(p);
                memset(p, t, 128);
                for (int k = 0; k < 128; k++) {
                    CHECK(p[k] == t);
                }
                CHECK(reserve_give_back(p));
            }
        });
    }
    for (auto & t : threads) {
        t.join();
    }
}

void an_array_keeps_what_it_has() {
    array<int> a;
    for (int i = 0; i < 1000; i++) {
        CHECK(a.push_back(i));
    }
    CHECK(a.insert(500, a[3]) && a.size() == 1001 && a[500] == 3 && a[501] == 500 && a[1000] == 999);
    a.erase(500, 501);
    const int more[2] = {7, 8};
    CHECK(a.append(more, 2) && a[1001] == 8);
    CHECK(!a.failed() && !a.reserve(NEVER) && a.failed());
    CHECK(!a.reserve(SIZE_MAX) && a.size() == 1002 && a[999] == 999);
    while (a.push_back(1)) {   // what room there is may be used; growing was given up
        CHECK(a.size() < 10000);
    }
    array<int> b;
    CHECK(!b.append(more, SIZE_MAX / 2) && b.failed() && b.empty());
}

void a_table_finds_what_was_added() {
    hash_table<uint64_t> t;
    CHECK(!t.find({1, 2}));
    for (uint64_t i = 0; i < 5000; i++) {
        CHECK(t.add({i * 64, i}, i));   // many of one place
    }
    for (uint64_t i = 0; i < 5000; i++) {
        const uint64_t * v = t.find({i * 64, i});
        CHECK(v && *v == i);
    }
    CHECK(!t.find({64, 2}) && t.size() == 5000);
    t.clear();
    CHECK(!t.find({64, 1}) && t.size() == 0);
}

struct thing : counted {
    explicit thing(int * n) : gone(n) {}
    ~thing() { ++*gone; }
    int * gone;
};

void the_last_reference_deletes() {
    int gone = 0;
    {
        ref<thing> a(new thing(&gone)), b(a), c;
        c = std::move(b);
        a = {};
        CHECK(!a && !b && c && gone == 0);
        c = c;
        CHECK(gone == 0);
    }
    CHECK(gone == 1);
}

}  // namespace

int main() {
    threads_share_the_reserve();
    refusals_are_told_once();
    the_reserve_is_given_and_taken_back();
    an_array_keeps_what_it_has();
    a_table_finds_what_was_added();
    the_last_reference_deletes();
    return 0;
}
