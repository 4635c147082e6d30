// LD_PRELOAD: lets chosen calls of one library fail. A call counts if its return address lies in the library whose
// path contains FAULTS_OBJECT.
//   FAULTS=NAME:K     the K-th call of NAME fails        FAULTS=NAME:K+   that one and all after it
//   NAME = *          calls of all functions but device_memory, counted together
//   FAULTS_COUNTS=FILE  filled with one `struct tally` per function, also if the process is killed
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define FUNCTIONS(X)                                                                                              \
    X(malloc) X(calloc) X(realloc) X(posix_memalign) X(aligned_alloc) X(device_memory)                             \
    X(open) X(close) X(fopen) X(fread) X(fclose) X(read) X(write) X(pwrite) X(ftruncate) X(fallocate)              \
    X(posix_fallocate) X(fstat) X(fstatvfs) X(access) X(unlink) X(rename) X(realpath) X(mmap) X(munmap) X(madvise)  \
    X(mremap) X(msync) X(pthread_create) X(pthread_detach) X(pthread_setname_np) X(pthread_key_create)             \
    X(pthread_setspecific) X(prctl) X(syscall) X(nanosleep) X(clock_nanosleep) X(sigtimedwait) X(dlopen) X(dlsym)  \
    X(dladdr) X(dlclose) X(dl_iterate_phdr) X(__cxa_atexit) X(__register_atfork)

enum function {
#define X(name) F_##name,
    FUNCTIONS(X)
#undef X
    F_COUNT
};

struct tally {
    char name[24];
    _Atomic uint64_t calls, failed;
};

static struct tally private_tallies[F_COUNT];
static struct tally * tallies = private_tallies;
static _Atomic uint64_t all_calls;
static _Atomic int ready;
static _Atomic uintptr_t low, high;
static const char * object;
static int target = -2;   // -1 = all
static uint64_t first = 0;
static int for_ever = 0;

static const char * const NAMES[F_COUNT] = {
#define X(name) #name,
    FUNCTIONS(X)
#undef X
};

__attribute__((constructor)) static void start(void) {
    object = getenv("FAULTS_OBJECT");
    const char * file = getenv("FAULTS_COUNTS");
    if (file) {
        int fd = (int) syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd >= 0 && syscall(SYS_ftruncate, fd, sizeof private_tallies) == 0) {
            void * at = (void *) syscall(SYS_mmap, NULL, sizeof private_tallies, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (at != MAP_FAILED) {
                tallies = at;
            }
        }
    }
    for (int i = 0; i < F_COUNT; i++) {
        strncpy(tallies[i].name, NAMES[i], sizeof tallies[i].name - 1);
    }
    const char * what = getenv("FAULTS");
    const char * colon = what ? strrchr(what, ':') : NULL;
    if (colon) {
        for (int i = 0; i < F_COUNT; i++) {
            if (strlen(NAMES[i]) == (size_t) (colon - what) && !strncmp(NAMES[i], what, (size_t) (colon - what))) {
                target = i;
            }
        }
        if (*what == '*') {
            target = -1;
        }
        char * end;
        first = strtoull(colon + 1, &end, 10);
        for_ever = *end == '+';
    }
    ready = object != NULL;
}

static int ours(const void * address) {
    uintptr_t a = (uintptr_t) address;
    if (high) {
        return a >= low && a < high;
    }
    struct dl_find_object found;
    if (_dl_find_object((void *) address, &found) != 0 || !found.dlfo_link_map->l_name ||
        !strstr(found.dlfo_link_map->l_name, object)) {
        return 0;
    }
    low = (uintptr_t) found.dlfo_map_start;
    high = (uintptr_t) found.dlfo_map_end;
    return 1;
}

// Whether this call is to fail.
static int fails(enum function f, const void * caller) {
    if (!ready || !ours(caller)) {
        return 0;
    }
    uint64_t n = ++tallies[f].calls, all = f == F_device_memory ? 0 : ++all_calls;
    uint64_t mine = target == -1 ? all : n;
    if ((target != (int) f && (target != -1 || !all)) || (for_ever ? mine < first : mine != first)) {
        return 0;
    }
    tallies[f].failed++;
    return 1;
}

#define CALLER __builtin_return_address(0)
#define PUBLIC __attribute__((visibility("default")))

static void * next_of(const char * name) {
    static void * (*find)(void *, const char *);
    if (!find) {
        find = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    }
    return find(RTLD_NEXT, name);
}

#define REAL(name)                                                \
    static __typeof__(&name) real;                                \
    if (!real) {                                                  \
        real = (__typeof__(&name)) next_of(#name);                \
    }

// A function that fails with `result` and errno.
#define WITH_ERRNO(result_type, name, parameters, arguments, result, error) \
    PUBLIC result_type name parameters {                                     \
        REAL(name)                                                            \
        if (fails(F_##name, CALLER)) {                                        \
            errno = error;                                                    \
            return result;                                                    \
        }                                                                     \
        return real arguments;                                                \
    }

// One that returns the error.
#define WITH_CODE(name, parameters, arguments, error) \
    PUBLIC int name parameters {                       \
        REAL(name)                                      \
        return fails(F_##name, CALLER) ? error : real arguments; \
    }

// --- memory: no look-up, which would ask for memory itself

void * __libc_malloc(size_t);
void * __libc_calloc(size_t, size_t);
void * __libc_realloc(void *, size_t);
void * __libc_memalign(size_t, size_t);

static void * refused(void) {
    errno = ENOMEM;
    return NULL;
}

PUBLIC void * malloc(size_t bytes) { return fails(F_malloc, CALLER) ? refused() : __libc_malloc(bytes); }
PUBLIC void * calloc(size_t n, size_t bytes) { return fails(F_calloc, CALLER) ? refused() : __libc_calloc(n, bytes); }
PUBLIC void * realloc(void * at, size_t bytes) { return fails(F_realloc, CALLER) ? refused() : __libc_realloc(at, bytes); }
PUBLIC void * aligned_alloc(size_t to, size_t bytes) {
    return fails(F_aligned_alloc, CALLER) ? refused() : __libc_memalign(to, bytes);
}
// The memory of test devices is aligned to 128 bytes: the engine asks for it, and is told that there is none.
PUBLIC int posix_memalign(void ** out, size_t to, size_t bytes) {
    if (fails(to == 128 ? F_device_memory : F_posix_memalign, CALLER)) {
        return ENOMEM;
    }
    void * at = __libc_memalign(to, bytes);
    if (at) {
        *out = at;
    }
    return at ? 0 : ENOMEM;
}

// --- files

PUBLIC int open(const char * path, int flags, ...) {
    REAL(open)
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;
    va_end(list);
    if (fails(F_open, CALLER)) {
        errno = ENOSPC;
        return -1;
    }
    return real(path, flags, mode);
}
PUBLIC int close(int fd) {
    REAL(close)
    const int failed = fails(F_close, CALLER), result = real(fd);
    if (failed) {
        errno = EIO;
    }
    return failed ? -1 : result;
}
WITH_ERRNO(FILE *, fopen, (const char * path, const char * mode), (path, mode), NULL, EMFILE)
WITH_ERRNO(size_t, fread, (void * to, size_t size, size_t n, FILE * f), (to, size, n, f), 0, EIO)
PUBLIC int fclose(FILE * f) {
    REAL(fclose)
    const int failed = fails(F_fclose, CALLER), result = real(f);
    if (failed) {
        errno = EIO;
    }
    return failed ? EOF : result;
}
WITH_ERRNO(ssize_t, read, (int fd, void * to, size_t n), (fd, to, n), -1, EIO)
WITH_ERRNO(ssize_t, write, (int fd, const void * from, size_t n), (fd, from, n), -1, ENOSPC)
WITH_ERRNO(ssize_t, pwrite, (int fd, const void * from, size_t n, off_t at), (fd, from, n, at), -1, ENOSPC)
WITH_ERRNO(int, ftruncate, (int fd, off_t bytes), (fd, bytes), -1, EIO)
WITH_ERRNO(int, fallocate, (int fd, int mode, off_t at, off_t bytes), (fd, mode, at, bytes), -1, EOPNOTSUPP)
WITH_CODE(posix_fallocate, (int fd, off_t at, off_t bytes), (fd, at, bytes), ENOSPC)
WITH_ERRNO(int, fstat, (int fd, struct stat * s), (fd, s), -1, EIO)
WITH_ERRNO(int, fstatvfs, (int fd, struct statvfs * s), (fd, s), -1, EIO)
WITH_ERRNO(int, access, (const char * path, int mode), (path, mode), -1, EACCES)
WITH_ERRNO(int, unlink, (const char * path), (path), -1, EIO)
WITH_ERRNO(int, rename, (const char * from, const char * to), (from, to), -1, EIO)
WITH_ERRNO(char *, realpath, (const char * path, char * to), (path, to), NULL, EACCES)

// --- mappings

WITH_ERRNO(void *, mmap, (void * at, size_t n, int prot, int flags, int fd, off_t offset), (at, n, prot, flags, fd, offset), MAP_FAILED, ENOMEM)
WITH_ERRNO(int, munmap, (void * at, size_t n), (at, n), -1, ENOMEM)
WITH_ERRNO(int, madvise, (void * at, size_t n, int advice), (at, n, advice), -1, EAGAIN)
WITH_ERRNO(int, msync, (void * at, size_t n, int flags), (at, n, flags), -1, EIO)
PUBLIC void * mremap(void * at, size_t old, size_t n, int flags, ...) {
    REAL(mremap)
    va_list list;
    va_start(list, flags);
    void * to = flags & MREMAP_FIXED ? va_arg(list, void *) : NULL;
    va_end(list);
    if (fails(F_mremap, CALLER)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return real(at, old, n, flags, to);
}

// --- threads and time

WITH_CODE(pthread_create, (pthread_t * t, const pthread_attr_t * a, void * (*f)(void *), void * x), (t, a, f, x), EAGAIN)
WITH_CODE(pthread_detach, (pthread_t t), (t), ESRCH)
WITH_CODE(pthread_setname_np, (pthread_t t, const char * name), (t, name), ERANGE)
WITH_CODE(pthread_key_create, (pthread_key_t * key, void (*end)(void *)), (key, end), EAGAIN)
WITH_CODE(pthread_setspecific, (pthread_key_t key, const void * value), (key, value), ENOMEM)
WITH_ERRNO(int, nanosleep, (const struct timespec * t, struct timespec * left), (t, left), -1, EINTR)
WITH_CODE(clock_nanosleep, (clockid_t c, int flags, const struct timespec * t, struct timespec * left), (c, flags, t, left), EINTR)
WITH_ERRNO(int, sigtimedwait, (const sigset_t * set, siginfo_t * info, const struct timespec * t), (set, info, t), -1, EINTR)
PUBLIC int prctl(int option, ...) {
    static int (*real)(int, unsigned long, unsigned long, unsigned long, unsigned long);
    if (!real) {
        real = (int (*)(int, unsigned long, unsigned long, unsigned long, unsigned long)) next_of("prctl");
    }
    unsigned long a[4];
    va_list list;
    va_start(list, option);
    for (int i = 0; i < 4; i++) {
        a[i] = va_arg(list, unsigned long);
    }
    va_end(list);
    if (fails(F_prctl, CALLER)) {
        errno = EINVAL;
        return -1;
    }
    return real(option, a[0], a[1], a[2], a[3]);
}
PUBLIC long syscall(long number, ...) {
    static long (*real)(long, long, long, long, long, long, long);
    if (!real) {
        real = (long (*)(long, long, long, long, long, long, long)) next_of("syscall");
    }
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        a[i] = va_arg(list, long);
    }
    va_end(list);
    if (fails(F_syscall, CALLER)) {
        errno = ENOSYS;
        return -1;
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

// --- loaded libraries. The real ones look at their caller: called at the very end, so that it is the right one.

PUBLIC void * dlopen(const char * path, int mode) {
    REAL(dlopen)
    return fails(F_dlopen, CALLER) ? NULL : real(path, mode);
}
PUBLIC void * dlsym(void * handle, const char * name) {
    static void * (*real)(void *, const char *);
    if (!real) {
        real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    }
    return fails(F_dlsym, CALLER) ? NULL : real(handle, name);
}
WITH_ERRNO(int, dladdr, (const void * at, Dl_info * info), (at, info), 0, 0)
WITH_ERRNO(int, dlclose, (void * handle), (handle), -1, 0)
WITH_ERRNO(int, dl_iterate_phdr, (int (*f)(struct dl_phdr_info *, size_t, void *), void * x), (f, x), 0, 0)

// --- the end of the process, and forks

int __cxa_atexit(void (*)(void *), void *, void *);
int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);
WITH_ERRNO(int, __cxa_atexit, (void (*f)(void *), void * x, void * library), (f, x, library), -1, ENOMEM)
WITH_CODE(__register_atfork, (void (*a)(void), void (*b)(void), void (*c)(void), void * library), (a, b, c, library), ENOMEM)
