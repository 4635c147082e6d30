// What only Linux has, behind plain functions: the one place to change for another system.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace td::platform {

// --- time
uint64_t mono_ns();    // CLOCK_MONOTONIC
uint64_t wall_ns();    // CLOCK_REALTIME
void sleep_ns(uint64_t ns);
// Until CLOCK_MONOTONIC reads that; late by microseconds on an idle machine. The last of it is spent spinning.
void sleep_until_ns(uint64_t deadline_ns);

// --- loaded libraries
// Handles of loaded objects that define `symbol`: first the one that contains the address `near` (unless that is this
// library), then the global scope, then all others but this library. At most `limit` handles; returns their number.
int objects_with(const char * symbol, const void * near, void ** handles, int limit);
void * symbol_in(void * object, const char * name);   // null: in what is global (the program, what was preloaded)
const void * object_of(const void * address);   // base address of the object that contains it, null = unknown

// --- waiting on a word
void wait_while(const std::atomic<uint32_t> & word, uint32_t value);   // returns when it differs, woken or not
void wake_all(std::atomic<uint32_t> & word);

// --- threads
// A thread with all signals blocked. False = could not be made.
struct thread {
    unsigned long id = 0;
    bool started = false;
};
bool thread_start(thread & t, void (*body)(void *), void * argument, const char * name);
void thread_join(thread & t);
void thread_detach(thread & t);

// --- process
uint32_t process_id();
bool at_fork(void (*before)(), void (*parent)(), void (*child)());
bool at_exit(void (*handler)());

// --- files and mappings: segments of the spool
// A file of this process only (O_EXCL), mode 0600; -1 on failure (errno tells why).
int  file_create(const char * path);
bool file_reserve(int fd, uint64_t offset, uint64_t bytes);            // blocks really allocated, no SIGBUS later
void * file_map(int fd, uint64_t offset, uint64_t bytes);              // shared, writable; null on failure
void unmap(void * at, uint64_t bytes);
// A whole file that is there, shared if it is to be written; null on failure.
void * file_open_mapped(const char * path, bool writable, uint64_t & bytes);
bool file_append(int fd, const void * data, size_t bytes);             // whole or nothing that counts; no SIGXFSZ
bool file_truncate(int fd, uint64_t bytes);
uint64_t file_space_left(int fd);                                      // bytes the file's disk still has; huge if unknown
void file_close(int fd);
void file_remove(const char * path);
bool file_is_there(const char * path);
bool file_punch(const char * path, uint64_t offset, uint64_t bytes);   // gives blocks back; false where the disk cannot
// Later stores to this range of a mapped file go to memory that nobody reads.
bool forget(void * at, uint64_t bytes);
uint64_t boot_number();   // of this boot and this kind of CLOCK_MONOTONIC; 0 = not known

}  // namespace td::platform
