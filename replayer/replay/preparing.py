"""From what the caller gives to what runs: tape, window, program, backend, delays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...formats.commands.ranges import Range
from ...formats.delays import Anchors, Delays, LineMatch, Matched, Plan, match_plan, plan_of
from ...formats.errors import CannotJudge, UsageError
from ...formats.load import load_tape
from ...formats.shown import quoted
from ...formats.tape import Tape
from ...formats.window import window_of_ops
from ..backends.protocol import Backend
from ..check import Baseline, Report, check_tape
from ..outcome import Outcome
from ..program import Program, window_of_steps
from .facts import facts_of, open_deadlock
from .names import Names
from .showing import Showing

__all__ = ["Case", "backend_of", "cut", "plan_from", "schedulers_of", "tape_of"]


class Case:
    """One tape, or a window of it, ready to run.

    Parameters
    ----------
    whole : Tape
        The tape; anchors are looked up in it.
    tape : Tape
        What runs.
    baseline : Baseline or None
        Accepted findings.
    """

    def __init__(self, whole: Tape, tape: Tape, baseline: Baseline | None = None) -> None:
        self.whole = whole
        self.tape = tape
        self.names = Names(tape)
        self.program = Program.from_tape(tape)
        self.op_ids = np.asarray(self.program.op_ids, np.int64)
        self.report: Report = check_tape(tape, baseline, schedulers=False)
        self.showing = Showing(self.report, self.names, self.program)
        self._plain = not any(
            g.example.accepted or g.example.verdict == "unknown" for g in self.report.groups
        )
        self.anchors = Anchors(whole)

    def match(self, plan: Plan) -> tuple[Delays, tuple[LineMatch, ...]]:
        """Return the delays of a plan by row of what runs; what a line matched outside does not count.

        Raises
        ------
        UsageError
            The plan has lines, and none of them matches anything.
        PlanError
            The delays add up to too much.
        """
        matched = match_plan(plan, self.anchors)
        if self.tape is not self.whole:
            matched = self._inside(plan, matched)
        if matched.lines and not any(m.count for m in matched.lines):
            first = matched.lines[0]
            where = f"{plan.name}:{first.line}" if plan.name != "--delays" else plan.name
            raise UsageError(
                f"no op matches: {first.text}"
                + (" (and no other line does)" if len(matched.lines) > 1 else ""),
                expected="a delay of an op of this tape"
                + (" inside of the window" * (self.tape is not self.whole)),
                where=where,
                next_step=f"tapedelay info --dump {self.whole.where}, to see what its ops are called",
            )
        return matched.delays, matched.lines

    def weight(self, outcome: Outcome) -> int:
        """Return what a run shows that no baseline accepts: 2 if certain, 1 something, 0 nothing."""
        if outcome.clean:
            return 0
        if self._plain or (outcome.stuck and open_deadlock(self.report)):
            return 2
        facts = facts_of(outcome, self.showing)
        if facts.shown or facts.other:
            return 2
        return int(bool(facts.unknown or outcome.unlisted))

    def _inside(self, plan: Plan, matched: Matched) -> Matched:
        whole_ids = self.anchors.op_ids
        lines = matched.lines
        if len(plan.lines) <= 1_000:
            each = [match_plan(Plan((n,)), self.anchors).delays for n in plan.lines]
            counts = [int(np.isin(whole_ids[d.row], self.op_ids).sum()) for d in each]
            lines = tuple(replace(m, count=c) for m, c in zip(lines, counts, strict=True))
        d = matched.delays
        ids = whole_ids[d.row]
        keep = np.isin(ids, self.op_ids)
        rows = np.searchsorted(self.op_ids, ids[keep]).astype(np.int32)
        return Matched(Delays(rows, d.place[keep], d.ns[keep]), lines)


def cut(tape: Tape, ops: Range | None = None, steps: Range | None = None) -> Tape:
    """Return the window of a tape, by op ids or by steps; the tape itself without either.

    Raises
    ------
    UsageError
        Both are given, nothing is inside, or the tape knows no steps.
    """
    if ops is None and steps is None:
        return tape
    if ops is not None and steps is not None:
        raise UsageError("a range of ops and one of steps", expected="one of them", next_step="leave one out")
    if ops is not None:
        return window_of_ops(tape, *ops)
    assert steps is not None
    return window_of_steps(tape, steps[0] or 0, 1 << 62 if steps[1] is None else steps[1])


def tape_of(tape: Tape | str | Path) -> Tape:
    """Return a tape to be replayed, or the one of a path.

    Raises
    ------
    CannotJudge
        It tells of request schedulers alone: those are rerun.
    """
    found = tape if isinstance(tape, Tape) else load_tape(tape)
    if found.rows("schedulers") and not found.rows("ops"):
        engine = found.table("schedulers").column("engine")[0].as_py()
        raise CannotJudge(
            "nothing to replay: it tells of request schedulers alone",
            expected="device ops",
            where=found.where,
            next_step=f"tapedelay rerun {quoted(found.where)} --engine {quoted(engine)}",
        )
    return found


def schedulers_of(tape: Tape) -> dict[str, int]:
    """Return how many request schedulers of each engine a tape has; a replay leaves them out."""
    return dict(Counter(tape.table("schedulers").column("engine").to_pylist()))


def plan_from(delays: Plan | str | Iterable[Plan | str] | None) -> Plan:
    """Return the plan that a caller means: one, text or file names, several of them, or none."""
    if delays is None:
        return Plan()
    if isinstance(delays, Plan):
        return delays
    if isinstance(delays, str):
        return plan_of(delays)
    plans = [p if isinstance(p, Plan) else plan_of(p) for p in delays]
    if len(plans) == 1:
        return plans[0]
    whole = Plan(tuple(n for p in plans for n in p.lines), name="--delays")
    # which line of which file matched nothing cannot be said by one number
    return replace(whole, lines=tuple(replace(n, number=0) for n in whole.lines))


def backend_of(backend: Backend | str) -> Backend:
    """Return a backend, or the one of a name.

    Raises
    ------
    UsageError
        No backend has that name.
    """
    if not isinstance(backend, str):
        return backend
    from ..backends.registry import find_backend

    return find_backend(backend)
