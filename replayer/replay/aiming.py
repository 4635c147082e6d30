"""The one delay that turns two ops around or lets them overlap, from the times of a virtual run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ...formats.delays import BEFORE_START, Line, Pattern, Plan, print_anchor
from ...formats.delays.plan import MAX_NS
from ..check.findings import Finding
from ..check.roles import roles
from ..outcome import Outcome

__all__ = ["Aim", "aims", "plan_for"]


@dataclass(frozen=True)
class Aim:
    """One try.

    Attributes
    ----------
    row : int
        Row that is delayed.
    ns : int
        By how much.
    how : str
        ``flip`` or ``overlap``.
    """

    row: int
    ns: int
    how: str


def aims(
    finding: Finding,
    rows: tuple[int, ...],
    outcome: Outcome,
    *,
    margins: tuple[int, ...],
    scale: float = 1.0,
    parts: Mapping[int, Sequence[int]] = MappingProxyType({}),
) -> Iterator[Aim]:
    """Yield what to try for a finding, the most promising first.

    Parameters
    ----------
    finding : Finding
        A race or lifetime fault; a deadlock needs no delay.
    rows : tuple of int
        Its rows.
    outcome : Outcome
        Times of a virtual run without delays.
    margins : tuple of int
        What is added for certainty, in ns; each gives a try.
    scale : float
        Factor on times where the delay is to work.
    parts : mapping
        Rows that are parts of a row of the finding, where it has any: such an op ends with the last of them.
    """
    if finding.kind == "deadlock":
        return
    late, after = roles(finding, rows)
    start = {r: int(outcome.start_ns[r]) for r in rows}
    end = {r: int(outcome.end_ns[r]) for r in rows}
    if min(start.values()) < 0 or min(end.values()) < 0:
        return
    for margin in margins:
        yield from _flip(late, after, start, end, scale, margin)
    yield from _overlap(late, after, start, end, scale)
    for part in parts.get(late, ()):
        behind = max(end[after] - int(outcome.start_ns[part]), 0)
        yield from _aim(part, _rounded(round(behind * scale) + margins[0]), "overlap")


def _flip(
    late: int, after: int, start: dict[int, int], end: dict[int, int], scale: float, margin: int
) -> Iterator[Aim]:
    missing = max(round((end[after] - start[late]) * scale), 0) + margin
    yield from _aim(late, _rounded(missing), "flip")


def _overlap(
    late: int, after: int, start: dict[int, int], end: dict[int, int], scale: float
) -> Iterator[Aim]:
    for moved, still in ((late, after), (after, late)):
        middle = (start[still] + end[still]) // 2
        if end[still] > start[still] and middle > start[moved]:
            yield from _aim(moved, round((middle - start[moved]) * scale), "overlap")


def _aim(row: int, ns: int, how: str) -> Iterator[Aim]:
    if 0 < ns <= MAX_NS:
        yield Aim(row, ns, how)


def _rounded(ns: int) -> int:
    """Return a time rounded up to two digits, of microseconds at least."""
    scale = 1_000
    while ns > 100 * scale:
        scale *= 10
    return -(-ns // scale) * scale


def plan_for(aim: Aim, anchor: int | Pattern, finding: Finding, op: int) -> Plan:
    """Return the plan of an aim, with comments that say what it is for."""
    what = f"{finding.fault} on {finding.buffer}: {finding.text}"
    note = "" if isinstance(anchor, int) else f"op {op}"
    return Plan((Line(anchor, aim.ns, BEFORE_START, note=note),), (what,), print_anchor(anchor))
