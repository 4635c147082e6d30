// A program asks `tapedelay record` to save what it has recorded so far. Two empty files say so; nobody waits.
#include <cstdio>
#include <cstdlib>

#include "platform_linux.h"

namespace {

bool touch(const char * path) {
    const int fd = td::platform::file_create(path);
    if (fd >= 0) td::platform::file_close(fd);
    return fd >= 0 || td::platform::file_is_there(path);
}

}  // namespace

// 0 = asked; -1 = nobody listens, or no room. The time in the name is that of the call.
extern "C" __attribute__((visibility("default"))) int tapedelay_save(void) {
    const char * directory = getenv("TAPEDELAY_SPOOL");
    const char * listens = getenv("TAPEDELAY_SAVE");
    if (!directory || !listens) return -1;
    char path[4096];
    // First: a flight recorder drops nothing until the reader is done (ring.cpp).
    snprintf(path, sizeof path, "%s/hold", directory);
    if (!touch(path)) return -1;
    snprintf(path, sizeof path, "%s/save-%llu-%u.request", directory,
             static_cast<unsigned long long>(td::platform::mono_ns()), td::platform::process_id());
    return touch(path) ? 0 : -1;
}
