"""Engine hooks, one folder per engine."""
