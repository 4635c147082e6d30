#include "platform_linux.h"

#include "memory.h"

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <initializer_list>

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace td::platform {

// --- time --------------------------------------------------------------------------------------------------------

static uint64_t read_clock(clockid_t clock) {
    timespec t;
    clock_gettime(clock, &t);
    return uint64_t(t.tv_sec) * 1000000000ull + uint64_t(t.tv_nsec);
}

uint64_t mono_ns() { return read_clock(CLOCK_MONOTONIC); }
uint64_t wall_ns() { return read_clock(CLOCK_REALTIME); }

static void spin_pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

void sleep_ns(uint64_t ns) {
    timespec left = {time_t(ns / 1000000000u), long(ns % 1000000000u)};
    for (int tries = 0; tries < 1000 && nanosleep(&left, &left) != 0 && errno == EINTR; tries++) {
    }
}

// The kernel may be late by the timer slack, 50 us by default, and by what it takes to wake a thread.
void sleep_until_ns(uint64_t deadline_ns) {
    constexpr uint64_t SPIN_NS = 50000;
    uint64_t now = mono_ns();
    if (now + SPIN_NS < deadline_ns) {
        const int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
        prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
        const uint64_t until = deadline_ns - SPIN_NS;
        const timespec t = {time_t(until / 1000000000u), long(until % 1000000000u)};
        for (int tries = 0; tries < 1000 && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR; tries++) {
        }
        if (slack > 0) {
            prctl(PR_SET_TIMERSLACK, slack, 0, 0, 0);
        }
        now = mono_ns();
    }
    if (now + 2 * SPIN_NS < deadline_ns) {
        return;   // it does not let us sleep
    }
    while (mono_ns() < deadline_ns) {
        spin_pause();
    }
}

// --- loaded libraries --------------------------------------------------------------------------------------------

namespace {

struct search {
    const char * symbol;
    const void * self;      // base of this library, never an answer
    void ** handles;
    int limit;
    int found;
};

// Takes over the reference of `handle`, or drops it.
void consider(search & s, void * handle) {
    if (!handle) {
        return;
    }
    void * at = dlsym(handle, s.symbol);
    bool fits = at && s.found < s.limit && object_of(at) != s.self;
    for (int i = 0; fits && i < s.found; i++) {
        fits = s.handles[i] != handle;
    }
    if (fits) {
        s.handles[s.found++] = handle;
    } else {
        dlclose(handle);
    }
}

int consider_object(dl_phdr_info * info, size_t, void * data) {
    auto & s = *static_cast<search *>(data);
    if (info->dlpi_name && info->dlpi_name[0]) {
        consider(s, dlopen(info->dlpi_name, RTLD_NOLOAD | RTLD_LAZY));
    }
    return s.found >= s.limit;
}

}  // namespace

const void * object_of(const void * address) {
    Dl_info info;
    return address && dladdr(const_cast<void *>(address), &info) ? info.dli_fbase : nullptr;
}

int objects_with(const char * symbol, const void * near, void ** handles, int limit) {
    search s = {symbol, object_of(reinterpret_cast<const void *>(&objects_with)), handles, limit, 0};
    Dl_info info;
    if (near && dladdr(const_cast<void *>(near), &info) && info.dli_fbase != s.self && info.dli_fname) {
        consider(s, dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY));
    }
    consider(s, dlopen(nullptr, RTLD_LAZY));   // an executable that exports, RTLD_GLOBAL, LD_PRELOAD
    dl_iterate_phdr(consider_object, &s);
    return s.found;
}

void * symbol_in(void * object, const char * name) { return dlsym(object, name); }

// --- waiting on a word -------------------------------------------------------------------------------------------

static_assert(sizeof(std::atomic<uint32_t>) == 4, "");

void wait_while(const std::atomic<uint32_t> & word, uint32_t value) {
    while (word.load(std::memory_order_acquire) == value) {
        const timespec look_again = {0, 250000000};   // whoever wakes may have failed to
        if (syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, &look_again, nullptr, 0) != 0 && errno != EAGAIN &&
            errno != EINTR && errno != ETIMEDOUT) {
            sleep_ns(1000000);
        }
    }
}

void wake_all(std::atomic<uint32_t> & word) {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// --- threads -----------------------------------------------------------------------------------------------------

namespace {

struct thread_body {
    void (*body)(void *);
    void * argument;
    char name[16];
};

void * thread_main(void * data) {
    thread_body b = *static_cast<thread_body *>(data);
    free(data);
    pthread_setname_np(pthread_self(), b.name);
    b.body(b.argument);
    return nullptr;
}

}  // namespace

bool thread_start(thread & t, void (*body)(void *), void * argument, const char * name) {
    auto * b = static_cast<thread_body *>(try_alloc(sizeof(thread_body)));
    if (!b) {
        return false;
    }
    b->body = body;
    b->argument = argument;
    snprintf(b->name, sizeof b->name, "%s", name);
    sigset_t all, before;   // the engine's handlers run on the engine's threads
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t id;
    t.started = pthread_create(&id, nullptr, thread_main, b) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (t.started) {
        t.id = id;
    } else {
        free(b);
    }
    return t.started;
}

void thread_join(thread & t) {
    if (t.started) {
        pthread_join(t.id, nullptr);
        t.started = false;
    }
}

void thread_detach(thread & t) {
    if (t.started) {
        pthread_detach(t.id);
        t.started = false;
    }
}

// --- process -----------------------------------------------------------------------------------------------------

uint32_t process_id() { return uint32_t(getpid()); }

bool at_fork(void (*before)(), void (*parent)(), void (*child)()) { return pthread_atfork(before, parent, child) == 0; }

bool at_exit(void (*handler)()) { return atexit(handler) == 0; }

// --- files and mappings ------------------------------------------------------------------------------------------

namespace {

// Growing a file past RLIMIT_FSIZE raises SIGXFSZ, which kills by default. It is directed at the thread that asked:
// keep it blocked meanwhile and swallow it.
class no_sigxfsz {
  public:
    no_sigxfsz() {
        sigset_t pending;
        sigpending(&pending);
        was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
        sigemptyset(&set_);
        sigaddset(&set_, SIGXFSZ);
        pthread_sigmask(SIG_BLOCK, &set_, &before_);
    }
    ~no_sigxfsz() {
        const int error = errno;
        const timespec now = {0, 0};
        for (int tries = 0; !was_pending_ && tries < 16; tries++) {
            if (sigtimedwait(&set_, nullptr, &now) < 0 && errno != EINTR) {
                break;
            }
        }
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
        errno = error;
    }
    no_sigxfsz(const no_sigxfsz &) = delete;
    no_sigxfsz & operator=(const no_sigxfsz &) = delete;

  private:
    sigset_t set_, before_;
    bool was_pending_;
};

}  // namespace

int file_create(const char * path) { return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600); }

bool file_reserve(int fd, uint64_t offset, uint64_t bytes) {
    no_sigxfsz guard;
    int error = EINTR;
    for (int tries = 0; tries < 1000 && error == EINTR; tries++) {
        error = posix_fallocate(fd, off_t(offset), off_t(bytes));
    }
    errno = error;
    return error == 0;
}

void * file_map(int fd, uint64_t offset, uint64_t bytes) {
    void * at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, off_t(offset));
    return at == MAP_FAILED ? nullptr : at;
}

void unmap(void * at, uint64_t bytes) { munmap(at, bytes); }

void * file_open_mapped(const char * path, bool writable, uint64_t & bytes) {
    // NONBLOCK: opening a pipe must not wait for its writer
    const int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat status;
    void * at = nullptr;
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
        bytes = uint64_t(status.st_size);
        at = writable ? file_map(fd, 0, bytes) : mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (fd >= 0) {
        close(fd);
    }
    return at == MAP_FAILED ? nullptr : at;
}

bool file_append(int fd, const void * data, size_t bytes) {
    no_sigxfsz guard;
    const char * at = static_cast<const char *>(data);
    int tries = 0;
    while (bytes > 0) {
        const ssize_t n = write(fd, at, bytes);
        if (n < 0 && errno == EINTR && ++tries < 1000) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        at += n;
        bytes -= size_t(n);
    }
    return true;
}

bool file_truncate(int fd, uint64_t bytes) { return ftruncate(fd, off_t(bytes)) == 0; }

uint64_t file_space_left(int fd) {
    struct statvfs v;
    if (fstatvfs(fd, &v) != 0 || v.f_blocks == 0) {
        return ~0ull;
    }
    return uint64_t(v.f_bavail) * v.f_frsize;
}

void file_close(int fd) { close(fd); }

void file_remove(const char * path) { unlink(path); }

bool file_is_there(const char * path) { return access(path, F_OK) == 0; }

bool file_punch(const char * path, uint64_t offset, uint64_t bytes) {
    const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return false;
    }
    const bool done = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, off_t(offset), off_t(bytes)) == 0;
    close(fd);
    return done;
}

bool forget(void * at, uint64_t bytes) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    return mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED;
}

uint64_t boot_number() {
    uint64_t number = 14695981039346656037ull;
    for (const char * path : {"/proc/sys/kernel/random/boot_id", "/proc/self/timens_offsets"}) {
        char text[256];
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        const ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text);
        if (fd >= 0) {
            close(fd);
        }
        if (n <= 0 && number == 14695981039346656037ull) {
            return 0;
        }
        for (ssize_t i = 0; i < n; i++) {
            number = (number ^ static_cast<unsigned char>(text[i])) * 1099511628211ull;
        }
    }
    return number ? number : 1;
}

}  // namespace td::platform
