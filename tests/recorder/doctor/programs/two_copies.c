/* Loads two libraries that each contain ggml: the first loads the plugin; the second, with "both", too. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char ** argv) {
    for (int i = 1; i <= 2; i++) {
        void * library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 99;
        }
        bool (*load)(void) = (bool (*)(void)) dlsym(library, "host_load");
        if (i == 1 || (argc > 3 && !strcmp(argv[3], "both"))) load();
    }
    usleep(400000);
    return 0;
}
