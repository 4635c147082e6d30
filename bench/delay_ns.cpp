// What delays of a plan cost and how exact they are. Loaded by delay_ns.py.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include <time.h>

#include "delays.h"
#include "host.h"
#include "platform_linux.h"

using namespace td;

namespace {

constexpr int N = 20000;

double cpu_ns() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return double(t.tv_sec) * 1e9 + double(t.tv_nsec);
}

}  // namespace

// `count` sleeps of `ns`: how late each was, in ns. Returns the CPU time that all of them took, in ns.
extern "C" __attribute__((visibility("default"))) double sleeps(uint64_t ns, int count, double * late) {
    const double before = cpu_ns();
    for (int i = 0; i < count; i++) {
        const uint64_t until = platform::mono_ns() + ns;
        platform::sleep_until_ns(until);
        late[i] = double(platform::mono_ns()) - double(until);
    }
    return cpu_ns() - before;
}

// Medians over the rounds of ns per op that matches nothing (or `every`): with delays off, then with the plan of
// TAPEDELAY_DELAYS. False: the spool or the plan was refused.
extern "C" __attribute__((visibility("default"))) bool ops(const char * directory, int rounds, double * out) {
    host.ggml_backend_dev_by_type = [](ggml_backend_dev_type) -> ggml_backend_dev_t { return nullptr; };
    if (!spool_start(directory)) return false;
    uint32_t names[16];
    for (int i = 0; i < 16; i++) {
        char text[GGML_MAX_NAME] = {};
        snprintf(text, sizeof text, "blk.%d.attn_norm", i);
        names[i] = name_id(text);
    }
    for (int with = 0; with < 2; with++) {
        if (with) {
            delays_start();
            if (!delays_on) return false;
        }
        std::vector<double> found;
        for (int r = 0; r < rounds; r++) {
            const uint64_t start = platform::mono_ns();
            for (int i = 0; i < N; i++) {
                delayed op(OP_COPY, nullptr, nullptr, names[i & 15]);
                entry e;
                op.issued(e);
                op.returned();
            }
            found.push_back(double(platform::mono_ns() - start) / N);
        }
        std::sort(found.begin(), found.end());
        out[with] = found[found.size() / 2];
    }
    return true;
}
