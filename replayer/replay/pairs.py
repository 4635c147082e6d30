"""The two ops of a finding: whether the one that has to come late did."""

from __future__ import annotations

from ..check.findings import Finding
from ..check.roles import roles
from ..outcome import Outcome

__all__ = ["flipped"]


def flipped(finding: Finding, rows: tuple[int, ...], outcome: Outcome) -> bool:
    """Whether the two ops of a finding came the wrong way around in a run, or at once."""
    late, after = roles(finding, rows)
    start, end = int(outcome.start_ns[late]), int(outcome.end_ns[late])
    other = int(outcome.start_ns[after])
    return start >= 0 and other >= 0 and (end < 0 or end > other)  # what never ends is at it for ever
