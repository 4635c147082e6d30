/* What is left of a ggml that is linked in: its words, none of its symbols. Ends at once. */
#include <stdio.h>

static const char * const words[] = {"GGML_ASSERT(%s) failed", "ggml_backend_buffer_init", "ggml_new_object"};

int main(int argc, char ** argv) {
    (void) argv;
    if (argc > 100) printf(words[argc % 3], "");
    return 0;
}
