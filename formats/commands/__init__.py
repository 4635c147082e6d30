"""Commands that need nothing but tapes, one module each."""
