"""Sequences: what a request scheduler did, as text (``seq`` litmus files) and as commands."""
