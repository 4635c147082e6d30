"""`replay`: run a tape again, with delays, and judge every read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ...formats.commands.progress import Progress
from ...formats.commands.ranges import Range
from ...formats.delays import Delays, LineMatch, Plan
from ...formats.delays.plan import MAX_SEED
from ...formats.errors import UsageError
from ...formats.tape import Tape
from ..backends.protocol import Backend, Loaded, Options, Pin
from ..check import Baseline
from ..outcome import Outcome
from .facts import facts_of, standing
from .preparing import Case, backend_of, cut, plan_from, schedulers_of, tape_of
from .results import Replay
from .told import tell

__all__ = ["MAX_REPEAT", "replay", "seeded"]

MAX_REPEAT = 10_000_000
_TOLD = 100


def replay(
    tape: Tape | str | Path,
    *,
    backend: str | Backend = "virtual",
    delays: Plan | str | Iterable[Plan | str] | None = None,
    pin: bool = False,
    ops: Range | None = None,
    steps: Range | None = None,
    repeat: int = 1,
    baseline: Baseline | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Replay:
    """Run a tape on a backend and compare what every read saw with the reference order.

    Parameters
    ----------
    tape : Tape or path
        A tape, or where it lies (a directory, a zip file or a litmus file).
    backend : str or Backend
        ``virtual``, ``threads``, ``opencl``, or any other that is installed.
    delays : Plan, str, or several, optional
        Delays: a plan, a plan file, or an expression.
    pin : bool
        Enforce the interleaving that the delays have in virtual time, in place of the delays; not where
        some ops never start.
    ops, steps : (int or None, int or None), optional
        A window: op ids, or steps, the last one not included. What was in flight before is unknown.
    repeat : int
        Run so often. Lines with a seed take the next seed each time.
    baseline : Baseline, optional
        Accepted findings.
    options : Options, optional
        How to run.
    progress : callable, optional
        Called with the runs done and the runs in all.

    Returns
    -------
    Replay
        The verdict, the wrong reads in words, and the times of the first run that found something, else of
        the last one. Ctrl-C after the first run ends it with what there is, which is never clean.

    Raises
    ------
    InputError
        The tape or the plan is none.
    CannotJudge
        The tape tells of request schedulers alone: those are rerun.
    UsageError
        No line of the plan matches anything, nothing is in the window, no backend has that name, or it
        cannot be pinned.
    Unsupported
        The backend cannot do what the tape or the call needs.
    ReplayFailed
        The runtime below the backend failed.
    """
    if not 1 <= repeat <= MAX_REPEAT:
        raise UsageError(
            f"repeat {repeat}", expected=f"1 to {MAX_REPEAT:,}", next_step="choose another number"
        )
    whole = tape_of(tape)
    plan = plan_from(delays)
    chosen = backend_of(backend)
    case = Case(whole, cut(whole, ops, steps), baseline)
    options = options or Options()
    able = chosen.capabilities()
    if pin and not able.pin:
        raise UsageError(
            f"a pin on the backend {able.name}",
            expected="a backend in real time that can enforce an order, as threads",
            next_step="leave --pin out: the order is the same every time"
            if able.deterministic
            else "leave --pin out",
        )
    endless = pin and bool(case.program.core.stuck()[0])
    runs = _Runs(case, plan, pin and not endless)
    loaded = chosen.load(case.program, options)
    try:
        runs.do(loaded, repeat, progress)
    finally:
        loaded.close()
    assert runs.outcome is not None
    if endless:
        note = "not pinned: some ops never start, so there is no order of all events"
        runs.outcome = replace(runs.outcome, notes=(*runs.outcome.notes, note))
    return judged(
        case,
        runs.plan,
        runs.delays,
        runs.lines,
        runs.outcome,
        runs=runs.done,
        repeat=repeat,
        found=runs.found,
        first_found=runs.first_found,
        interrupted=runs.interrupted,
        pinned=pin and not endless,
    )


def judged(
    case: Case,
    plan: Plan,
    delays: Delays,
    lines: tuple[LineMatch, ...],
    outcome: Outcome,
    *,
    runs: int = 1,
    repeat: int | None = None,
    found: int = 0,
    first_found: int | None = None,
    interrupted: bool = False,
    pinned: bool = False,
) -> Replay:
    """Return a run as a result: what its wrong reads mean."""
    facts = facts_of(outcome, case.showing)
    rather = sorted(range(len(facts.each)), key=lambda i: standing(facts.each[i][1]) == "accepted")
    told = [tell(facts.each[i][0], case.names, facts.each[i][1]) for i in sorted(rather[:_TOLD])]
    return Replay(
        tape=case.whole.name,
        backend=outcome.backend,
        plan=plan,
        delays=delays,
        matched=lines,
        outcome=outcome,
        report=case.report,
        facts=facts,
        told=tuple(told),
        confirmed=tuple(case.showing.confirmed(outcome)),
        runs=runs,
        repeat=runs if repeat is None else repeat,
        found=found,
        first_found=first_found,
        interrupted=interrupted,
        pinned=pinned,
        program=case.program,
        names=case.names,
        schedulers=schedulers_of(case.whole),
    )


def seeded(plan: Plan, step: int) -> Plan:
    """Return a plan whose seeds are so many further."""
    if not step or not any(n.seed is not None for n in plan.lines):
        return plan
    return replace(
        plan,
        lines=tuple(n if n.seed is None else replace(n, seed=(n.seed + step) & MAX_SEED) for n in plan.lines),
    )


class _Runs:
    """Runs one after the other, until all are done or Ctrl-C."""

    def __init__(self, case: Case, plan: Plan, pin: bool) -> None:
        self._case = case
        self._base = plan
        self._pin = pin
        self.plan = plan
        self.delays = Delays.of()
        self.lines: tuple[LineMatch, ...] = ()
        self.outcome: Outcome | None = None
        self.done = self.found = self._weight = 0
        self.first_found: int | None = None
        self.interrupted = False

    def do(self, loaded: Loaded, repeat: int, progress: Progress | None) -> None:
        plan, delays = self._base, Delays.of()
        lines: tuple[LineMatch, ...] = ()
        pin: Pin | None = None
        try:
            for run in range(repeat):
                now = seeded(self._base, run)
                if not run or now is not plan:
                    plan = now
                    delays, lines = self._case.match(plan)
                    pin = self._case.program.interleaving(delays) if self._pin else None
                outcome = loaded.run(Delays.of() if pin is not None else delays, pin=pin)
                self._take(run, outcome, plan, delays, lines)
                if progress is not None:
                    progress(run + 1, repeat)
        except KeyboardInterrupt:
            if self.outcome is None:
                raise
            self.interrupted = True

    def _take(
        self, run: int, outcome: Outcome, plan: Plan, delays: Delays, lines: tuple[LineMatch, ...]
    ) -> None:
        self.done += 1
        weight = self._case.weight(outcome)
        self.found += weight > 0
        if weight > self._weight or not self._weight:
            self.outcome, self.plan, self.delays, self.lines = outcome, plan, delays, lines
            self._weight = weight
            if weight:
                self.first_found = run
