"""The two ops of a finding: which one has to come late for it to show."""

from __future__ import annotations

from .findings import Finding

__all__ = ["roles"]

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
