"""The selection of patterns, made once per process, and whether a run shows what a pattern says."""

from __future__ import annotations

from functools import cache

from tapedelay.replayer.outcome import AT_END, Outcome
from tapedelay.replayer.patterns import FAMILIES, Pattern, patterns

__all__ = ["selection", "shows"]


@cache
def selection(family: str = "") -> tuple[Pattern, ...]:
    """Return the patterns of a family, or of all; each is parsed once."""
    if family:
        return tuple(patterns(family))
    return tuple(p for f in FAMILIES for p in selection(f))


def shows(p: Pattern, outcome: Outcome) -> bool:
    """Whether a run has a wrong read that the pairs of the pattern explain."""
    rows = {w.row for w in outcome.wrong}
    for v in p.verdicts:
        reader = {"RAW": v.second, "WAR": v.first}.get(v.hazard)
        if (p.row(reader) if reader else AT_END) in rows:
            return True
    return False
