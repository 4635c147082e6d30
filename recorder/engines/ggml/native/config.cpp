#include "config.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "host.h"

namespace td {

namespace {

const char * variable(const char * name) {
    const char * value = getenv(name);
    return value && *value ? value : nullptr;
}

bool read_number(const char * name, uint64_t low, uint64_t high, uint64_t & out) {
    const char * text = variable(name);
    if (!text) {
        return true;
    }
    char * end = nullptr;
    errno = 0;
    const unsigned long long n = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || n < low || n > high) {
        refuse("%s=%.40s is no number from %llu to %llu", name, text, (unsigned long long) low,
            (unsigned long long) high);
        return false;
    }
    out = n;
    return true;
}

struct key {
    const char * name;
    bool profile::* field;
};

constexpr key KEYS[] = {
    {"async_h2d", &profile::async_h2d},     {"async_d2d", &profile::async_d2d},   {"events", &profile::events},
    {"host_buffer", &profile::host_buffer}, {"pinned_set", &profile::pinned_set},
};

bool equals(const char * text, size_t bytes, const char * word) {
    return strlen(word) == bytes && memcmp(text, word, bytes) == 0;
}

}  // namespace

const char * profile_parse(const char * data, profile & out) {
    while (*data) {
        const size_t bytes = strcspn(data, ";");
        const auto * split = static_cast<const char *>(memchr(data, '=', bytes));
        if (!split) {
            return "an entry has no '='";
        }
        const size_t name_bytes = size_t(split - data);
        const char * value = split + 1;
        const size_t value_bytes = bytes - name_bytes - 1;
        if (equals(data, name_bytes, "d2d_queue")) {
            if (!equals(value, value_bytes, "src")) {
                return "d2d_queue: only 'src' is known";
            }
        } else {
            const key * found = nullptr;
            for (const key & k : KEYS) {
                if (equals(data, name_bytes, k.name)) {
                    found = &k;
                }
            }
            if (!found) {
                return "unknown key";
            }
            const bool on = equals(value, value_bytes, "1");
            if (!on && !equals(value, value_bytes, "0")) {
                return "a value is neither 0 nor 1";
            }
            out.*found->field = on;
        }
        data += bytes + (data[bytes] == ';');
    }
    return nullptr;
}

bool config_read(config & out) {
    uint64_t devices = out.devices, threads = out.threads, memory_mb = out.memory_bytes >> 20, synchronous = 0;
    const char * count = variable("TAPEDELAY_DEVICES");
    out.devices_chosen = count && strcmp(count, "auto") != 0;
    if ((out.devices_chosen && !read_number("TAPEDELAY_DEVICES", 0, 15, devices)) || !read_number("TAPEDELAY_THREADS", 1, 1024, threads) ||
        !read_number("TAPEDELAY_MEM_MB", 1, 1ull << 30, memory_mb) ||
        !read_number("TAPEDELAY_SYNC", 0, 1, synchronous)) {
        return false;
    }
    out.devices = unsigned(devices);
    out.threads = unsigned(threads);
    out.memory_bytes = memory_mb << 20;
    out.synchronous = synchronous != 0;
    const char * name = variable("TAPEDELAY_PROFILE");
    const char * data = variable("TAPEDELAY_PROFILE_DATA");
    if (name && !data && strcmp(name, out.device_profile.name) != 0) {
        refuse("TAPEDELAY_PROFILE=%.40s needs TAPEDELAY_PROFILE_DATA (`tapedelay record` sets both)", name);
        return false;
    }
    if (name) {
        snprintf(out.device_profile.name, sizeof out.device_profile.name, "%s", name);
    }
    if (const char * fault = data ? profile_parse(data, out.device_profile) : nullptr) {
        refuse("TAPEDELAY_PROFILE_DATA=%.200s (%s)", data, fault);
        return false;
    }
    return true;
}

}  // namespace td
