"""`replay`: run a tape again, with delays, and judge every read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from ...formats.delays import Delays, LineMatch, Plan
from ...formats.delays.plan import MAX_SEED
from ...formats.errors import UsageError
from ...formats.tape import Tape
from ..backends.protocol import Backend, Loaded, Options, Pin
from ..check import Baseline
from ..outcome import Outcome
from .preparing import Case, Range, backend_of, cut, plan_from, tape_of
from .results import Replay
from .told import Told, tell

__all__ = ["MAX_REPEAT", "Progress", "replay", "seeded"]

MAX_REPEAT = 10_000_000
_TOLD = 100

Progress = Callable[[int, int], None]
"""Called after a run with how many of how many are done."""


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
        Enforce the interleaving that the delays have in virtual time, in place of the delays.
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
        the last one. Ctrl-C after the first run ends it with what there is.

    Raises
    ------
    InputError
        The tape or the plan is none.
    UsageError
        No line of the plan matches anything, nothing is in the window, or no backend has that name.
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
    runs = _Runs(case, plan, pin)
    loaded = chosen.load(case.program, options)
    try:
        runs.do(loaded, repeat, progress)
    finally:
        loaded.close()
    assert runs.outcome is not None
    return judged(
        case,
        runs.plan,
        runs.delays,
        runs.lines,
        runs.outcome,
        runs=runs.done,
        found=runs.found,
        first_found=runs.first_found,
        interrupted=runs.interrupted,
        pinned=pin,
    )


def judged(
    case: Case,
    plan: Plan,
    delays: Delays,
    lines: tuple[LineMatch, ...],
    outcome: Outcome,
    *,
    runs: int = 1,
    found: int = 0,
    first_found: int | None = None,
    interrupted: bool = False,
    pinned: bool = False,
) -> Replay:
    """Return a run as a result: what its wrong reads mean."""
    told: list[Told] = []
    for wrong in outcome.wrong:
        if not wrong.derived and len(told) < _TOLD:
            told.append(tell(wrong, case.names, case.showing.of(wrong, outcome)))
    return Replay(
        tape=case.whole.name,
        backend=outcome.backend,
        plan=plan,
        delays=delays,
        matched=lines,
        outcome=outcome,
        report=case.report,
        told=tuple(told),
        confirmed=tuple(case.showing.confirmed(outcome)),
        runs=runs,
        found=found,
        first_found=first_found,
        interrupted=interrupted,
        pinned=pinned,
        program=case.program,
        names=case.names,
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
        self.done = self.found = 0
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
        counts = self._case.counts(outcome)
        self.found += counts
        if self.first_found is None:
            self.outcome, self.plan, self.delays, self.lines = outcome, plan, delays, lines
            if counts:
                self.first_found = run
