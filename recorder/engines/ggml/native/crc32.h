// CRC-32 as zlib computes it.
#pragma once
#include <cstddef>
#include <cstdint>

namespace td {

inline uint32_t crc32(uint32_t crc, const void * data, size_t n) {
    static const uint32_t * table = [] {
        static uint32_t t[256];
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int k = 0; k < 8; k++) c = c & 1 ? 0xedb88320u ^ (c >> 1) : c >> 1;
            t[i] = c;
        }
        return static_cast<const uint32_t *>(t);
    }();
    crc = ~crc;
    for (auto * p = static_cast<const unsigned char *>(data); n--; p++) crc = table[(crc ^ *p) & 0xff] ^ (crc >> 8);
    return ~crc;
}

}  // namespace td
