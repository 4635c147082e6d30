// The debugging switches that an engine or its drivers read: which word their state is. Never what they hold.
#pragma once

namespace td {

// How the one who reads a variable takes it; see READINGS in formats/switches.py.
enum class reading { set, number, one, flag, words };

struct known_switch {
    const char * name;
    reading how;
    const char * words;   // for reading::words: "value=word value=word"
};

// The table of formats/switches.py, in its order; a test compares the two.
extern const known_switch known_switches[];
extern const int n_known_switches;

// Room for the longest word and its end.
constexpr int SWITCH_WORD_MAX = 16;

// Writes the word for a value into `word` and returns it.
const char * switch_word(const known_switch & s, const char * value, char (&word)[SWITCH_WORD_MAX]);

}  // namespace td
