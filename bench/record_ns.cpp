// Nanoseconds per record beside clock_gettime, measured in one run and in a shared library, as in an engine (the
// thread's state is reached in another way from a program). Loaded by record_ns.py.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "graph_set.hpp"
#include "record.h"

using namespace td;

namespace {

constexpr int N = 20000;

template <class F>
double ns_per_call(F f) {
    const uint64_t start_ns = now_ns();
    for (int i = 0; i < N; i++) f(i);
    return static_cast<double>(now_ns() - start_ns) / N;
}

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

}  // namespace

// Medians over the rounds: clock_gettime, one record, record - clock of the same round, a blocking call's record (two
// clock reads), a copy's record (two tensors looked up, one name), a declined copy. False: the spool was refused.
extern "C" __attribute__((visibility("default"))) bool record_ns(const char * directory, int rounds, double * out) {
    sizes.segment_bytes = 4 << 20;
    sizes.ahead_bytes = 16 << 20;
    if (!spool_start(directory)) return false;

    ggml_backend_buffer memory = {};
    buffer_info known{};
    known.id = 1;
    buffers.add(&memory, &known);
    ggml_tensor a = {}, b = {};
    a.buffer = b.buffer = &memory;
    a.data = b.data = &memory;
    strcpy(a.name, "TAPE0#model.input_embed#0");

    std::vector<double> clock, record, added, blocking, copy, declined;
    for (int r = 0; r < rounds; r++) {
        // The helper refills between bursts, as between the tokens of an engine.
        spool_wait_ahead(12 << 20);
        volatile uint64_t sink;
        clock.push_back(ns_per_call([&](int) { sink = now_ns(); }));
        record.push_back(ns_per_call([](int i) { emit(K_SET, 1, 0, static_cast<uint64_t>(i), 2, 3, 4, 5, 6); }));
        added.push_back(record.back() - clock.back());
        blocking.push_back(ns_per_call([](int) { finish(emit(K_SYNC, 1, 0)); }));
        copy.push_back(ns_per_call([&](int) {
            place from = place_of(&a), to = place_of(&b);
            emit(K_COPY, 1, 0, from.offset, to.offset, 64, from.buffer, to.buffer, name_id(a.name));
        }));
        declined.push_back(ns_per_call([](int) { cancel(take(K_COPY, 1, 0)); }));
    }
    const double all[] = {median(clock), median(record), median(added), median(blocking), median(copy), median(declined)};
    memcpy(out, all, sizeof all);
    spool_end();
    return true;
}
