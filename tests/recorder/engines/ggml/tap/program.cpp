// program USER_LIBRARY CASE [PLUGIN [SECOND_USER_LIBRARY]]: runs a case in libraries that see no other one's symbols, as a
// Python module's do. Prints what each copy of ggml was asked for.
#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>

#include "fake_sched.h"

static void * open(const char * path) {
    void * library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(99);
    }
    return library;
}

static void run(void * library, const char * plugin, const char * name) {
    reinterpret_cast<void (*)(const char *, const char *)>(dlsym(library, "run"))(plugin, name);
}

static void print(void * library) {
    const fake_counts c = reinterpret_cast<fake_counts (*)()>(dlsym(library, "counts"))();
    printf("%d %d %d %d %d %d %d %s\n", c.made, c.freed, c.computed, c.allocated, c.reset, c.pinned, c.seventh, c.eighth);
}

int main(int argc, char ** argv) {
    void * first = open(argv[1]);
    const char * plugin = argc > 3 ? argv[3] : nullptr;
    void * second = argc > 4 ? open(argv[4]) : nullptr;
    run(first, plugin, argv[2]);
    if (second) run(second, nullptr, argv[2]);
    print(first);
    if (second) print(second);
}
