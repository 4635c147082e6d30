// 128 bits of hash over words, for identities that are kept in memory only.
#pragma once
#include <cstdint>

namespace td {

struct mixer {
    uint64_t a = 0x9ae16a3b2f90404full, b = 0xc3a5c85c97cb3127ull;
    void add(uint64_t x, uint64_t y) {
        a = (a ^ x) * 0x9fb21c651e98df25ull; a ^= a >> 29;
        b = (b ^ y) * 0xd6e8feb86659fd93ull; b ^= b >> 31;
    }
};

}  // namespace td
