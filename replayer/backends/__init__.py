"""Where a program runs: one file or folder per backend, all with the same protocol."""
