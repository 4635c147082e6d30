"""A tape as something that runs: durations, gaps and edges."""

from __future__ import annotations

__all__ = ["Program"]


class Program:
    """A tape, ready to be loaded by a backend."""
