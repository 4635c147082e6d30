// CHECK: ends the process at once, without exit handlers, where a condition does not hold; and says which.
#pragma once
#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);     \
            _Exit(1);                                                           \
        }                                                                       \
    } while (0)
