"""What the benchmarks run beside the library, on the same tape."""
