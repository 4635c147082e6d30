// Memory of the plugin. Nothing in here throws or ends the process because an allocation was refused: what can do
// without it uses the try_ functions and `new (std::nothrow)`, everything else is served from a small reserve.
#pragma once
#include <cstddef>
#include <cstdint>

namespace td {

// An allocation was refused. Said once for the process, the recording ends there (HDR_FAILED), the engine goes on.
// Any thread, under any lock of ours.
void memory_short();

// Null = refused, and memory_short() was called. Freed with free().
void * try_alloc(size_t bytes);
void * try_zeroed(size_t count, size_t bytes);
void * try_aligned(size_t alignment, size_t bytes);
void * try_resize(void * at, size_t bytes);   // as realloc: on failure `at` is still valid

// What plain `new` falls back to: `bytes` of the reserve, null when none fits; and whether a pointer came from there.
void * reserve_take(size_t bytes);
bool reserve_give_back(void * at);

}  // namespace td
