#include "switches.h"

#include <cstring>

namespace td {

const known_switch known_switches[] = {
    {"CUDA_LAUNCH_BLOCKING", reading::number, ""},
    {"GGML_CUDA_DISABLE_GRAPHS", reading::set, ""},
    {"GGML_CUDA_GRAPH_OPT", reading::one, ""},
    {"GGML_CUDA_PDL", reading::number, ""},
    {"CUDA_DEVICE_MAX_CONNECTIONS", reading::words, "1=one"},
    {"HIP_LAUNCH_BLOCKING", reading::number, ""},
    {"AMD_SERIALIZE_KERNEL", reading::words, "0=off 1=before 2=after 3=both"},
    {"AMD_SERIALIZE_COPY", reading::words, "0=off 1=before 2=after 3=both"},
    {"GPU_MAX_HW_QUEUES", reading::words, "1=one"},
    {"HSA_ENABLE_SDMA", reading::number, ""},
    {"GGML_VK_DISABLE_ASYNC", reading::set, ""},
    {"GGML_VK_PERF_LOGGER", reading::set, ""},
    {"GGML_VK_SERIALIZE_SUBMISSIONS", reading::set, ""},
    {"GGML_VK_ASYNC_USE_TRANSFER_QUEUE", reading::set, ""},
    {"GGML_VK_SYNC_LOGGER", reading::set, ""},
    {"GGML_METAL_CONCURRENCY_DISABLE", reading::set, ""},
    {"GGML_SCHED_DEBUG", reading::number, ""},
    {"LLAMA_GRAPH_REUSE_DISABLE", reading::number, ""},
    {"NCCL_LAUNCH_MODE", reading::words, "GROUP=group PARALLEL=parallel"},
    {"TORCH_NCCL_BLOCKING_WAIT", reading::flag, ""},
    {"NCCL_BLOCKING_WAIT", reading::flag, ""},
    {"TAPEDELAY_SYNC", reading::number, ""},
};
const int n_known_switches = static_cast<int>(sizeof(known_switches) / sizeof(known_switches[0]));

namespace {

// No longer value is a word that anybody knows; LONGEST of formats/switches.py.
constexpr size_t LONGEST = 64;

// A number as atoi reads it, but no larger than -1, 0, 1 or 2: that is all that counts.
int small_number(const char * text) {
    size_t i = 0;
    while (i < LONGEST && strchr(" \t\n\v\f\r", text[i]) && text[i]) i++;
    const bool negative = i < LONGEST && text[i] == '-';
    if (i < LONGEST && (text[i] == '-' || text[i] == '+')) i++;
    int n = 0;
    for (; i < LONGEST && text[i] >= '0' && text[i] <= '9'; i++) {
        n = n * 10 + (text[i] - '0');
        if (n > 2) n = 2;
    }
    return negative ? -(n != 0) : n;
}

bool is_true(const char * text) {
    static const char * const words[] = {"1", "y", "yes", "t", "true", "on"};
    for (const char * word : words) {
        size_t i = 0;
        while (word[i]) {
            const char c = text[i] >= 'A' && text[i] <= 'Z' ? static_cast<char>(text[i] - 'A' + 'a') : text[i];
            if (c != word[i]) break;
            i++;
        }
        if (!word[i] && !text[i]) return true;
    }
    return false;
}

}  // namespace

const char * switch_word(const known_switch & s, const char * value, char (&word)[SWITCH_WORD_MAX]) {
    bool on = true;
    switch (s.how) {
        case reading::set: break;
        case reading::number: on = small_number(value) != 0; break;
        case reading::one: on = small_number(value) == 1; break;
        case reading::flag: on = is_true(value); break;
        case reading::words: {
            const size_t length = strnlen(value, LONGEST);
            for (const char * at = s.words; *at;) {
                const char * equals = strchr(at, '='), * end = strchr(at, ' ');
                if (!end) end = at + strlen(at);
                const size_t size = static_cast<size_t>(end - equals - 1);
                if (static_cast<size_t>(equals - at) == length && !strncmp(at, value, length) && size < sizeof(word)) {
                    memcpy(word, equals + 1, size);
                    word[size] = 0;
                    return word;
                }
                at = *end ? end + 1 : end;
            }
            return strcpy(word, "other");
        }
    }
    return strcpy(word, on ? "on" : "off");
}

}  // namespace td
