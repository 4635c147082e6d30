"""The selection of patterns, made once per process."""

from __future__ import annotations

from functools import cache

from tapedelay.replayer.patterns import FAMILIES, Pattern, patterns

__all__ = ["selection"]


@cache
def selection(family: str = "") -> tuple[Pattern, ...]:
    """Return the patterns of a family, or of all; each is parsed once."""
    if family:
        return tuple(patterns(family))
    return tuple(p for f in FAMILIES for p in selection(f))
