"""The two ops of a finding: which one has to come late, and whether it did."""

from __future__ import annotations

from ..check.findings import Finding
from ..outcome import Outcome

__all__ = ["flipped", "roles"]

_ENDS = ("free", "destroy")


def roles(finding: Finding, rows: tuple[int, ...]) -> tuple[int, int]:
    """Return which op has to come late, and after which one."""
    first, second = rows
    kinds = [o.kind for o in finding.ops]
    if finding.fault == "use-before-alloc":
        return (first, second) if kinds[0] == "alloc" else (second, first)
    if finding.kind == "lifetime" and kinds[0] in _ENDS and kinds[1] not in _ENDS:
        return second, first
    return first, second


def flipped(finding: Finding, rows: tuple[int, ...], outcome: Outcome) -> bool:
    """Whether the two ops of a finding came the wrong way around in a run, or at once."""
    late, after = roles(finding, rows)
    start, end = int(outcome.start_ns[late]), int(outcome.end_ns[late])
    other = int(outcome.start_ns[after])
    return start >= 0 and other >= 0 and (end < 0 or end > other)  # what never ends is at it for ever
