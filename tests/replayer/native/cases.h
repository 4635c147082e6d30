// As little of a test framework as the cases need: run all, or those named on the command line.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

struct Case {
  const char* name;
  void (*run)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

struct Register {
  Register(const char* name, void (*run)()) { cases().push_back({name, run}); }
};

#define CASE(name)                                 \
  static void name();                              \
  static const Register register_##name(#name, name); \
  static void name()

#define EXPECT(what)                                                                  \
  do {                                                                                \
    if (!(what)) {                                                                    \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);         \
      std::exit(1);                                                                   \
    }                                                                                 \
  } while (false)

inline int run_cases(int argc, char** argv) {
  int ran = 0;
  for (const Case& c : cases()) {
    bool wanted = argc < 2;
    for (int i = 1; i < argc; ++i) wanted = wanted || std::strcmp(argv[i], c.name) == 0;
    if (!wanted) continue;
    c.run();
    ++ran;
    std::printf("%s\n", c.name);
    std::fflush(stdout);
  }
  std::printf("%d cases\n", ran);
  return ran > 0 ? 0 : 2;
}
