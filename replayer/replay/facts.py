"""What the wrong reads of one run come to, beside what a baseline accepts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..check.findings import Finding, Report
from ..outcome import Outcome, WrongRead
from .showing import Showing

__all__ = ["Facts", "facts_of", "open_deadlock", "open_unknown", "standing"]


@dataclass(frozen=True)
class Facts:
    """The wrong reads of a run that do not come out of earlier ones.

    Attributes
    ----------
    each : tuple of (WrongRead, tuple of Finding)
        Every one that is listed, with what it shows.
    shown : int
        Those that show a finding.
    other : int
        Those that `check` has nothing for.
    unknown : int
        Those that something unseen may prevent.
    accepted : int
        Those that a baseline accepts.
    """

    each: tuple[tuple[WrongRead, tuple[Finding, ...]], ...]
    shown: int
    other: int
    unknown: int
    accepted: int


def facts_of(outcome: Outcome, showing: Showing) -> Facts:
    """Return what the wrong reads of a run show."""
    each = tuple((w, tuple(showing.of(w, outcome))) for w in outcome.wrong if not w.derived)
    sorts = [standing(findings) for _, findings in each]
    return Facts(each, *(sorts.count(s) for s in ("shown", "other", "unknown", "accepted")))


def standing(findings: Sequence[Finding]) -> str:
    """Return what a wrong read counts as: ``shown``, ``other``, ``unknown`` or ``accepted``."""
    if not findings:
        return "other"
    left = [f for f in findings if not f.accepted]
    if not left:
        return "accepted"
    return "unknown" if all(f.verdict == "unknown" for f in left) else "shown"


def open_deadlock(report: Report) -> bool:
    """Whether ops that never start are more than a baseline accepts."""
    known = [f for f in report.findings if f.kind == "deadlock"]
    return not known or any(not f.accepted for f in known)


def open_unknown(report: Report) -> bool:
    """Whether `check` has pairs that something unseen may order, more than a baseline accepts."""
    return any(g.example.verdict == "unknown" and not g.example.accepted for g in report.groups)
