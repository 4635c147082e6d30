// Prints the word of each value: the real table, driven by a small program. Arguments: NAME VALUE NAME VALUE ...
#include <cstdio>
#include <cstring>

#include "switches.h"

int main(int argc, char ** argv) {
    if (argc == 1) {
        for (int i = 0; i < td::n_known_switches; i++) printf("%s\n", td::known_switches[i].name);
    }
    for (int a = 1; a + 1 < argc; a += 2) {
        for (int i = 0; i < td::n_known_switches; i++) {
            if (strcmp(td::known_switches[i].name, argv[a]) != 0) continue;
            char word[td::SWITCH_WORD_MAX];
            printf("%s\n", td::switch_word(td::known_switches[i], argv[a + 1], word));
        }
    }
    return 0;
}
