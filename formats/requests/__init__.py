"""Request schedulers on a tape: words, deltas and how they are read. No Arrow where an engine imports it."""
