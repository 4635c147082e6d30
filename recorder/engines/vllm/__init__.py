"""vLLM's V1 scheduler: hooks that hear every input and every decision."""
