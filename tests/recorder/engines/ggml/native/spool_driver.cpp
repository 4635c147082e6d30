// Drives the real spool writer without an engine; the tests (test_spool_writer.py) read what it leaves behind.
// usage: spool_driver MODE DIRECTORY [number ...]; exit 0 = the process came through, whatever became of the disk.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record.h"

extern "C" int tapedelay_save(void);

using namespace td;

namespace {

void write_numbers(uint64_t from, uint64_t to) {
    for (uint64_t i = from; i < to; i++) emit(K_SYNC, 0, 0, i, i ^ 0x5555, i + 7, static_cast<uint32_t>(i), 7, NONE);
}

// What the process takes, in KiB: address space, memory, page tables.
void print_size() {
    FILE * f = fopen("/proc/self/status", "r");
    char line[256];
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, "VmSize", 6) || !strncmp(line, "VmRSS", 5) || !strncmp(line, "VmPTE", 5)) fputs(line, stdout);
    if (f) fclose(f);
}

int finish_run() {
    printf("alive\n");
    return 0;
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc < 3) return 2;
    const std::string mode = argv[1];
    auto number = [&](int i) { return argc > i ? strtoull(argv[i], nullptr, 0) : 0ull; };

    if (mode == "limited") {   // RLIMIT_FSIZE of this process, in bytes
        rlimit l = {number(4), number(4)};
        setrlimit(RLIMIT_FSIZE, &l);
    }
    if (mode == "gaps") {
        sizes.segment_bytes = 64 << 10;
        sizes.ahead_bytes = 128 << 10;
    }
    if (mode.compare(0, 4, "ring") == 0 || mode == "open") sizes.segment_bytes = 64 << 10;
    if (mode == "overflow") {   // room for one segment only, and nobody who refills in time
        sizes.segment_bytes = 64 << 10;
        sizes.ahead_bytes = 1;
    }
    const bool started = spool_start(argv[2]);
    if (started) {   // what the records name
        define(D_DEVICE, blob().u32(0).u32(1).u32(1).u32(7).str("TAPE0").str("").str("TAPE").str(""));
        for (uint32_t q = 0; q < 4; q++) define(D_QUEUE, blob().u32(q).u32(0).u32(1).str("TAPE0"));
    }
    printf(started ? "started\n" : "off\n");
    fflush(stdout);

    if (mode == "numbers" || mode == "limited" || mode == "overflow") {   // N records on this thread
        write_numbers(0, number(3));
        return finish_run();
    }
    if (mode == "threads") {   // N records on each of T threads
        std::vector<std::thread> all;
        for (uint64_t t = 0; t < number(4); t++) all.emplace_back([=] { write_numbers(t << 32, (t << 32) + number(3)); });
        for (auto & t : all) t.join();
        return finish_run();
    }
    if (mode == "slow") {   // N records, one millisecond per hundred: the helper can keep up, the disk may not
        for (uint64_t i = 0; i < number(3); i++) {
            emit(K_SYNC, 0, 0, i);
            if (i % 100 == 99) usleep(1000);
        }
        return finish_run();
    }
    if (mode == "definitions") {   // N frames of B bytes, each before the record that names it
        const std::string payload(number(4), 'x');
        uint32_t refused = 0;
        for (uint32_t i = 0; i < number(3); i++) {
            if (define(D_NAME, blob().u32(i).str(payload.c_str()))) emit(K_SYNC, 0, 0, i, 0, 0, NONE, NONE, i);
            else { refused++; emit(K_SYNC, 0, 0, i, 0, 0, NONE, NONE, i); }
        }
        printf("refused %u\n", refused);
        return finish_run();
    }
    if (mode == "forever") {   // numbered records until killed; stdout gets each number after its record
        for (uint64_t i = 0;; i++) {
            emit(K_SYNC, 0, 0, i);
            if (::write(1, &i, 8) != 8) return 1;
            if (i % 500 == 499) usleep(1000);   // faster than any engine still, and the helper keeps up
        }
    }
    if (mode == "blocked") {   // a call that never returns
        entry e = emit(K_SYNC, 3, 0, 42);
        printf("issued\n");
        fflush(stdout);
        pause();
        finish(e);
        return 0;
    }
    if (mode == "cancel") {   // declined calls: the last slot is given back, an inner record makes it a hole
        entry a = take(K_COPY, 0, 0);
        cancel(a);
        emit(K_SYNC, 0, 0, 1);
        entry b = take(K_COPY, 0, 0);
        emit(K_SYNC, 0, 0, 2);
        cancel(b);
        emit(K_SYNC, 0, 0, 3);
        return finish_run();
    }
    if (mode == "ring") {   // N records in all, by T threads, with breaks; a further thread records one in a thousand
        const uint64_t count = number(3), threads = number(4) ? number(4) : 1;
        write_numbers(0, 3);   // this thread owns an early chunk all the time, and writes into it in the end
        std::vector<std::thread> all;
        for (uint64_t t = 0; t < threads; t++) {
            all.emplace_back([=] {
                for (uint64_t i = 0; i < count / threads; i++) {
                    emit(K_SYNC, 0, 0, t << 32 | i);
                    if (i % 500 == 499) usleep(1000);
                }
            });
        }
        std::thread slow([=] {
            for (uint64_t i = 0; i < count / threads / 1000; i++) {
                emit(K_SYNC, 1, 0, threads << 32 | i);
                usleep(2000);
            }
        });
        for (auto & t : all) t.join();
        slow.join();
        usleep(20000);
        write_numbers(1 << 20, (1 << 20) + 3);
        print_size();
        return finish_run();
    }
    if (mode == "ring forever") {   // as "forever", on two threads in turns
        for (uint64_t i = 0;; i++) {
            if (i % 97 == 0) std::thread([=] { emit(K_SYNC, 1, 0, i); }).join();
            else emit(K_SYNC, 0, 0, i);
            if (::write(1, &i, 8) != 8) return 1;
            if (i % 200 == 199) usleep(1000);
        }
    }
    if (mode == "open") {   // a call that is open while the whole window goes by
        entry e = emit(K_SYNC, 3, 0, 42);
        {
            inside in(e);
            std::thread([&] { for (uint64_t i = 0; i < number(3); i++) { emit(K_SYNC, 0, 0, i); if (i % 500 == 499) usleep(1000); } }).join();
        }
        finish(e);
        emit(K_SYNC, 3, 0, 43);
        return finish_run();
    }
    if (mode == "mapped") {   // T threads; each says in a second mapping (argv[5]) how many of its records are complete
        const uint64_t threads = number(4);
        const int fd = open(argv[5], O_RDWR | O_CREAT, 0600);
        if (fd < 0 || ftruncate(fd, 64 * 4096) != 0) return 1;
        auto * counts = static_cast<uint64_t *>(mmap(nullptr, 64 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
        for (uint64_t t = 0; t < threads; t++) {
            std::thread([=] {
                for (uint64_t i = 0;; i++) {
                    finish(emit(K_SYNC, static_cast<uint16_t>(t), 0, i));
                    __atomic_store_n(counts + 8 * t, i + 1, __ATOMIC_RELEASE);
                    if (i % 50 == 49) usleep(1000);
                }
            }).detach();
        }
        for (uint64_t i = 0;; i++) {   // and threads that come and go
            std::thread([=] { finish(emit(K_SYNC, 3, 0, i)); }).join();
            __atomic_store_n(counts + 8 * threads, i + 1, __ATOMIC_RELEASE);
            usleep(500);
        }
    }
    if (mode == "storm") {   // forks while T other threads record: N children, each with a record of its own
        std::atomic<bool> over{false};
        std::vector<std::thread> all;
        for (uint64_t t = 0; t < number(4); t++) all.emplace_back([&, t] {
            for (uint64_t i = 0; !over.load(); i++) {
                emit(K_SYNC, 0, 0, i, 1, t);
                if (i % 50 == 49) usleep(500);
            }
        });
        int bad = 0;
        for (uint64_t n = 0; n < number(3); n++) {
            const pid_t child = fork();
            if (child == 0) {
                for (uint64_t i = 0; i < 100; i++) emit(K_SYNC, 1, 0, i, 2, n);
                exit(0);
            }
            int status = 0;
            waitpid(child, &status, 0);
            bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
            char * const words[] = {const_cast<char *>("true"), nullptr};
            pid_t spawned = 0;   // shares our memory until it runs another program
            if (posix_spawnp(&spawned, "true", nullptr, nullptr, words, environ) == 0) waitpid(spawned, &status, 0);
            pid_t other = vfork();
            if (other == 0) { execlp("true", "true", static_cast<char *>(nullptr)); _exit(1); }
            waitpid(other, &status, 0);
        }
        over.store(true);
        for (auto & t : all) t.join();
        printf("alive\n");
        return bad;
    }
    if (mode == "exec") {   // goes on as another program: this one again
        emit(K_SYNC, 0, 0, 1);
        execl("/proc/self/exe", argv[0], "numbers", argv[2], "5", static_cast<char *>(nullptr));
        return 1;
    }
    if (mode == "abort" || mode == "segfault") {   // N records, then the end
        write_numbers(0, number(3));
        if (mode == "abort") abort();
        raise(SIGSEGV);
    }
    if (mode == "save") {
        emit(K_SYNC, 0, 0, 1);
        printf("%d alive\n", tapedelay_save());
        return 0;
    }
    if (mode == "short threads") {   // N threads one after the other, one record each
        for (uint64_t i = 0; i < number(3); i++) std::thread([=] { emit(K_SYNC, 0, 0, i); }).join();
        return finish_run();
    }
    if (mode == "gaps") {   // overflow, a pause in which the helper catches up, N times
        for (uint64_t i = 0; i < number(3); i++) {
            write_numbers(i * 100000, (i + 1) * 100000);
            spool_wait_ahead(sizes.segment_bytes / 2);
        }
        emit(K_SYNC, 0, 0, ~0ull >> 8);
        return finish_run();
    }
    if (mode == "fork") {   // parent, child and grandchild; ids made before the fork mean the same in all
        define(D_NAME, blob().u32(0).str("before"));
        emit(K_SYNC, 0, 0, 1, 0, 0, NONE, NONE, 0);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            define(D_NAME, blob().u32(1).str("child"));
            emit(K_SYNC, 0, 0, 2, 0, 0, NONE, NONE, 1);
            pid_t grandchild = fork();
            if (grandchild == 0) {
                emit(K_SYNC, 0, 0, 3, 0, 0, NONE, NONE, 0);
                exit(0);
            }
            int status = 0;
            waitpid(grandchild, &status, 0);
            emit(K_SYNC, 0, 0, 4, 0, 0, NONE, NONE, 0);
            exit(status);
        }
        pid_t silent = fork();
        if (silent == 0) _exit(0);   // records nothing: leaves no files
        int status = 0;
        waitpid(silent, &status, 0);
        waitpid(child, &status, 0);
        emit(K_SYNC, 0, 0, 5, 0, 0, NONE, NONE, 0);
        printf("alive\n");
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    return 2;
}
