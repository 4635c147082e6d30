"""What holds for every run of every program, whatever it is a case of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...formats.delays.resolved import AFTER_END, BEFORE_ISSUE, BEFORE_START, Delays
from ..outcome import AT_END, WRONG_KINDS, Outcome
from .case import Run

__all__ = ["audit"]

_STATES = ("version", "derived", "torn", "unknown")


def audit(run: Run, delays: Delays, *, wrong_limit: int, pinned: bool) -> str:
    """Return the first thing that is wrong with an outcome, in words; an empty string if nothing is."""
    return next(_faults(run, delays, wrong_limit, pinned), "")


def _faults(run: Run, delays: Delays, wrong_limit: int, pinned: bool) -> Iterator[str]:
    outcome = run.outcome
    if outcome.backend != run.capabilities.name:
        yield f"the outcome is of backend {outcome.backend!r}"
    for name in ("issue_ns", "start_ns", "end_ns"):
        times = getattr(outcome, name)
        if not isinstance(times, np.ndarray) or times.shape != (run.program.rows,) or times.dtype != np.int64:
            yield f"{name} is not an array of int64 with one time for each of {run.program.rows} rows"
            return
    yield from _stuck(run)
    yield from _times(run)
    yield from _edges(run)
    if not pinned:
        yield from _lengths(run)
        yield from _delays(run, delays)
    yield from _wrong(run, outcome, wrong_limit)


def _stuck(run: Run) -> Iterator[str]:
    outcome, core = run.outcome, run.program.core
    stuck, never, cycles = core.stuck()
    units = core.units()
    rows = set(np.flatnonzero(np.isin(units, stuck)).tolist()) if len(stuck) else set()
    if set(outcome.stuck) != rows:
        yield f"rows {sorted(outcome.stuck)} never start, by the edges rows {sorted(rows)}"
    if set(outcome.never) != set(never):
        yield f"rows {sorted(outcome.never)} wait for no signal, by the tape rows {sorted(never)}"
    if {frozenset(c) for c in outcome.cycles} != {frozenset(c) for c in cycles}:
        yield f"cycles {outcome.cycles}, by the edges {cycles}"
    ran = outcome.start_ns >= 0
    for row in range(run.program.rows):
        if (row in rows) == bool(ran[row]):
            yield f"row {row} {'has' if ran[row] else 'has not'} started"
            return


def _times(run: Run) -> Iterator[str]:
    outcome = run.outcome
    for row in np.flatnonzero(outcome.start_ns >= 0).tolist():
        issue, start, end = (int(t[row]) for t in (outcome.issue_ns, outcome.start_ns, outcome.end_ns))
        if issue < 0 or start < issue - run.slack_ns:
            yield f"row {row} starts at {start} ns and is issued at {issue} ns"
        # The end of an op whose parts never end is never, too.
        if 0 <= end < start:
            yield f"row {row} starts at {start} ns and ends at {end} ns"


def _edges(run: Run) -> Iterator[str]:
    start, end = run.outcome.start_ns, run.outcome.end_ns
    sources, targets, _ = run.program.core.edges()
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        if start[target] >= 0 and (end[source] < 0 or end[source] > start[target] + run.slack_ns):
            yield (
                f"row {target} starts at {int(start[target])} ns, before what it waits for "
                f"has ended (row {source}, at {int(end[source])} ns)"
            )
            return
    for unit in sorted(set(run.program.core.units().tolist())):
        for parent in run.program.core.parents(unit):
            if start[unit] >= 0 and start[unit] + run.slack_ns < start[parent]:
                yield f"row {unit} starts before row {parent}, which it is a part of"
            if end[parent] >= 0 and end[parent] + run.slack_ns < end[unit]:
                yield f"row {parent} ends before its part, row {unit}"


def _lengths(run: Run) -> Iterator[str]:
    outcome, units = run.outcome, run.program.core.units()
    parents = {int(p) for u in set(units.tolist()) for p in run.program.core.parents(u)}
    for row in np.flatnonzero(outcome.end_ns >= 0).tolist():
        if int(units[row]) in parents:
            continue
        took, least = int(outcome.end_ns[row] - outcome.start_ns[row]), int(run.program.duration_ns[row])
        if took + run.slack_ns < least:
            yield f"row {row} takes {took} ns, by the tape {least} ns"


def _delays(run: Run, delays: Delays) -> Iterator[str]:
    """A delay takes its time: before the issue against the thread's item before, and so on."""
    outcome, program = run.outcome, run.program
    for row, place, ns in zip(delays.row.tolist(), delays.place.tolist(), delays.ns.tolist(), strict=True):
        if outcome.start_ns[row] < 0 or outcome.end_ns[row] < 0:
            continue
        if place == BEFORE_ISSUE:
            before = _issued_before(run, row)
            took = int(outcome.issue_ns[row]) - (before if before >= 0 else 0)
            what = "issue"
        elif place == BEFORE_START:
            took, what = int(outcome.start_ns[row] - outcome.issue_ns[row]), "start"
        else:
            assert place == AFTER_END
            took = int(outcome.end_ns[row] - outcome.start_ns[row]) - int(program.duration_ns[row])
            what = "end"
        if took + run.slack_ns < ns:
            yield f"a delay of {ns} ns at the {what} of row {row} moves it by {took} ns at most"


def _issued_before(run: Run, row: int) -> int:
    """Return when the thread that issues a row had issued the one before; -1 where there is none."""
    issuer = run.program.issuer
    mine = np.flatnonzero((issuer == issuer[row]) & (np.arange(len(issuer)) < row))
    return int(run.outcome.issue_ns[mine[-1]]) if len(mine) and issuer[row] >= 0 else -1


def _wrong(run: Run, outcome: Outcome, limit: int) -> Iterator[str]:
    if not outcome.judged:
        if outcome.wrong or outcome.wrong_count:
            yield "reads are wrong in a run that judged none"
        return
    _, roots, _, _, modes, _ = run.program.core.accesses()
    reads = int(((modes == 0) | (modes == 2)).sum()) if len(roots) else 0
    stuck = bool(outcome.stuck)
    if reads and not stuck and outcome.reads < reads:
        yield f"{outcome.reads} reads judged, the tape has {reads}"
    if len(outcome.wrong) > limit or len(outcome.wrong) > outcome.wrong_count:
        yield f"{len(outcome.wrong)} wrong reads are told, of {outcome.wrong_count} and at most {limit}"
    if outcome.wrong_count and not outcome.wrong:
        yield f"none of {outcome.wrong_count} wrong reads is told"
    at = -1
    for w in outcome.wrong:
        if w.kind not in WRONG_KINDS:
            yield f"a wrong read of kind {w.kind!r}"
        if not AT_END <= w.row < run.program.rows:
            yield f"a wrong read of row {w.row}"
        if w.at_ns < at:
            yield "wrong reads are not in the order in which they became facts"
        at = w.at_ns
        for part in (*w.saw, *w.expected):
            if part.state not in _STATES or not w.begin <= part.begin < part.end <= w.end:
                yield f"row {w.row} saw {part} in bytes {w.begin}:{w.end}"
    if outcome.chain and outcome.chain[0] != outcome.wrong[0].row:
        first = outcome.wrong[0].row
        yield f"the chain begins at row {outcome.chain[0]}, the first wrong read is of row {first}"
