"""`search`: for every finding of `check` the one delay that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...formats.commands.progress import Progress
from ...formats.commands.ranges import Range
from ...formats.delays import Delays, Plan, print_line
from ...formats.tape import Tape
from ..backends.protocol import Backend, Loaded, Options
from ..check import Baseline
from ..check.findings import Finding, Report
from ..check.lasting import lasting_anchor
from ..outcome import Outcome
from .aiming import aims, plan_for
from .api import judged
from .pairs import flipped
from .preparing import Case, backend_of, cut, schedulers_of, tape_of
from .results import Replay
from .timeline import parent_rows
from .told import Told, tell

__all__ = ["SCHEMA", "STATES", "Attempt", "Search", "search"]

SCHEMA = "tapedelay-search-1"
"""Name of the layout of `Search.as_dict`."""

STATES = ("confirmed", "unknown", "not shown", "not tried", "accepted")
"""What became of a finding: a value (or a deadlock) shows it; shown, but something unseen may prevent it; no
delay made any read wrong; Ctrl-C came first; the baseline accepts it, so it was not searched."""

_PAIRS = 8
_PARTS = 4
_RUNS_KEPT = 4


@dataclass
class Attempt:
    """One finding, and what was tried.

    Attributes
    ----------
    finding : Finding
        The pair.
    count : int
        How many pairs of its kind there are.
    state : str
        One of `STATES`.
    plan : Plan or None
        The delay that shows it; without lines where none is needed; None where nothing shows it.
    how : str
        ``flip``: one op was moved behind the other; ``overlap``: into it; ``as recorded``: no delay.
    as_recorded : bool
        A run without delays shows it too.
    reason : str
        Why it is not shown, or on which assumption it is.
    tried : int
        Runs.
    told : Told or None
        The wrong read that shows it; None for a deadlock.
    replay : Replay or None
        The run that shows it.
    """

    finding: Finding
    count: int
    state: str
    plan: Plan | None = None
    how: str = ""
    as_recorded: bool = False
    reason: str = ""
    tried: int = 0
    told: Told | None = None
    replay: Replay | None = None

    @property
    def expression(self) -> str:
        """The delay as ``--delays`` takes it; empty where there is none."""
        return print_line(self.plan.lines[0]) if self.plan is not None and self.plan.lines else ""

    def as_dict(self) -> dict[str, Any]:
        """Return the attempt for ``--json``."""
        return {
            "state": self.state,
            "count": self.count,
            "delays": self.expression or None,
            "how": self.how,
            "as_recorded": self.as_recorded,
            "reason": self.reason,
            "tried": self.tried,
            "finding": self.finding.as_dict(),
            "wrong": None
            if self.told is None or self.replay is None
            else self.told.as_dict(self.replay.names),
            "replay": None if self.replay is None else self.replay.as_dict(times=False),
        }


@dataclass
class Search:
    """The result of `search`.

    Attributes
    ----------
    tape, backend : str
        Names.
    report : Report
        What `check` found.
    source : Tape
        What ran: the tape, or a window of it.
    attempts : list of Attempt
        One for each kind of finding, or for each finding.
    runs : int
        Runs in all.
    interrupted : bool
        Ctrl-C ended it early.
    schedulers : dict of str to int
        Request schedulers of the tape, by engine: they are left out.
    """

    tape: str
    backend: str
    report: Report
    source: Tape
    attempts: list[Attempt] = field(default_factory=list)
    runs: int = 0
    interrupted: bool = False
    schedulers: dict[str, int] = field(default_factory=dict)

    def of(self, state: str) -> list[Attempt]:
        """Return the attempts that ended in a state."""
        return [a for a in self.attempts if a.state == state]

    @property
    def verdict(self) -> str:
        """``confirmed`` where a value shows a finding; else what `check` says."""
        return "confirmed" if self.of("confirmed") else self.report.verdict

    @property
    def exit_code(self) -> int:
        """1 where something is confirmed; else as that of `check`."""
        return 1 if self.of("confirmed") else self.report.exit_code

    def as_dict(self) -> dict[str, Any]:
        """Return the result for ``--json``.

        Keys: ``schema``, ``tape``, ``backend``, ``verdict``, ``exit_code``, ``runs``, ``interrupted``;
        ``counts`` (attempts per state); ``attempts`` (``state``, ``count``: pairs of this kind, ``delays``,
        ``how``, ``as_recorded``, ``reason``, ``tried``, ``finding`` as `check` has it, ``wrong``: the read
        that shows it, and ``replay``: that run without its times, as `replay` has them); ``conditions`` (of
        `check`); ``schedulers`` (left out: their number by engine).
        """
        return {
            "schema": SCHEMA,
            "tape": self.tape,
            "backend": self.backend,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "runs": self.runs,
            "interrupted": self.interrupted,
            "counts": {s: len(self.of(s)) for s in STATES},
            "attempts": [a.as_dict() for a in self.attempts],
            "conditions": [c.as_dict() for c in self.report.conditions],
            "schedulers": self.schedulers,
        }


def search(
    tape: Tape | str | Path,
    *,
    backend: str | Backend = "virtual",
    ops: Range | None = None,
    steps: Range | None = None,
    every: bool = False,
    baseline: Baseline | None = None,
    options: Options | None = None,
    margin_ns: int | None = None,
    progress: Progress | None = None,
) -> Search:
    """Find, for the findings of `check`, the one delay under which a read sees the wrong value.

    The delay is computed from the times of a run in virtual time: it moves the earlier op of the pair behind
    the later one, or else into it. It is run, and kept if it shows the finding.

    Parameters
    ----------
    tape : Tape or path
        A tape, or where it lies.
    backend : str or Backend
        Where the delays are tried; on one in real time their margin is in milliseconds.
    ops, steps : (int or None, int or None), optional
        A window: op ids, or steps, the last one not included.
    every : bool
        Search for every pair, not one of each kind.
    baseline : Baseline, optional
        Accepted findings: not searched.
    options : Options, optional
        How to run.
    margin_ns : int, optional
        What a delay adds to the least that shows the finding. An engine's times vary from run to run: a plan
        with a margin of milliseconds holds there, too. None: 1 us in virtual time, milliseconds in real time.
    progress : callable, optional
        Called with the findings done and the findings in all.

    Returns
    -------
    Search
        Per finding the plan, and the run that shows it. Ctrl-C ends it with what there is.

    Raises
    ------
    InputError, CannotJudge, UsageError, Unsupported, ReplayFailed
        As `replay`.
    """
    whole = tape_of(tape)
    case = Case(whole, cut(whole, ops, steps), baseline)
    chosen = backend_of(backend)
    options = options or Options()
    result = Search(case.whole.name, chosen.capabilities().name, case.report, case.tape)
    result.schedulers = schedulers_of(case.whole)
    loaded = chosen.load(case.program, options)
    try:
        _Searcher(case, chosen, loaded, options, result, margin_ns).run(every, progress)
    finally:
        loaded.close()
    return result


class _Searcher:
    def __init__(
        self,
        case: Case,
        backend: Backend,
        loaded: Loaded,
        options: Options,
        result: Search,
        margin_ns: int | None = None,
    ) -> None:
        self._case = case
        self._loaded = loaded
        self._result = result
        self._queue = case.anchors.queue
        able = backend.capabilities()
        if able.real_time:
            least = max(5_000_000, 20 * able.resolution_ns)
            self._margins: tuple[int, ...] = (least, 10 * least, 100 * least)
            self._scale = options.time_scale
        else:
            self._margins = (1_000,)
            self._scale = 1.0
        if margin_ns is not None:
            self._margins = (margin_ns, *self._margins)
        self._parents = parent_rows(case.program)
        self._plain: Outcome | None = None
        self._times: Outcome | None = None
        self._real = able.real_time
        self._known: dict[bytes, Outcome] = {}

    def run(self, every: bool, progress: Progress | None) -> None:
        groups = self._case.report.groups
        wanted: list[tuple[list[Finding], int]] = []
        for group in groups:
            pairs = self._pairs(group.example)
            if every and not group.example.accepted:
                wanted += [([f], group.count) for f in pairs]
            else:
                wanted.append((pairs[:_PAIRS], group.count))
        for at, (pairs, count) in enumerate(wanted):
            if self._result.interrupted:
                state = "accepted" if pairs[0].accepted else "not tried"
                self._result.attempts.append(Attempt(pairs[0], count, state))
                continue
            try:
                self._result.attempts.append(self._kind(pairs, count))
            except KeyboardInterrupt:
                self._result.interrupted = True
                self._result.attempts.append(Attempt(pairs[0], count, "not tried"))
            if progress is not None:
                progress(at + 1, len(wanted))

    def _pairs(self, example: Finding) -> list[Finding]:
        same = [
            f
            for f in self._case.report.findings
            if (f.verdict, f.signature) == (example.verdict, example.signature)
        ]
        return same or [example]

    def _kind(self, pairs: list[Finding], count: int) -> Attempt:
        """Try the pairs of one kind until one is shown."""
        if pairs[0].accepted:
            return Attempt(pairs[0], count, "accepted")
        first: Attempt | None = None
        for finding in pairs:
            attempt = self._try(finding, count)
            if attempt.state in ("confirmed", "unknown"):
                return attempt
            first = first or attempt
        assert first is not None
        return first

    def _try(self, finding: Finding, count: int) -> Attempt:
        rows = self._case.showing.rows(finding)
        plain = self._as_recorded()
        tried = 1
        shown = self._shows(finding, rows, plain)
        if shown and finding.kind != "race":
            return self._shown(finding, count, Plan(), "as recorded", plain, tried)
        turned = finding.kind == "race" and flipped(finding, rows, plain)
        for plan, delays, how in self._plans(finding, rows):
            outcome = self._run(delays)
            tried += 1
            if self._shows(finding, rows, outcome):
                return self._shown(finding, count, plan, how, outcome, tried, as_recorded=shown)
            turned = turned or flipped(finding, rows, outcome)
        if shown:
            return self._shown(finding, count, Plan(), "as recorded", plain, tried)
        return Attempt(finding, count, "not shown", reason=self._why_not(finding, turned), tried=tried)

    def _run(self, delays: Delays) -> Outcome:
        """Run it, unless the same delays have just been run in virtual time."""
        key = b"".join(a.tobytes() for a in (delays.row, delays.place, delays.ns))
        known = self._known.pop(key, None)
        if known is None:
            known = self._loaded.run(delays)
            self._result.runs += 1
        if not self._real:
            self._known[key] = known
            while len(self._known) > _RUNS_KEPT:
                del self._known[next(iter(self._known))]
        return known

    def _plans(self, finding: Finding, rows: tuple[int, ...]) -> Iterator[tuple[Plan, Delays, str]]:
        parts = {r: np.flatnonzero(self._parents == r)[:_PARTS].tolist() for r in rows}
        for aim in aims(
            finding, rows, self._virtual(), margins=self._margins, scale=self._scale, parts=parts
        ):
            op = int(self._case.op_ids[aim.row])
            row = int(np.searchsorted(self._case.anchors.op_ids, op))
            anchor = lasting_anchor(self._case.anchors, row, self._case.names.of(aim.row), self._queue)
            plan = plan_for(aim, anchor, finding, op)
            yield plan, self._case.match(plan)[0], aim.how

    def _as_recorded(self) -> Outcome:
        if self._plain is None:
            self._plain = self._loaded.run(Delays.of())
            self._result.runs += 1
        return self._plain

    def _virtual(self) -> Outcome:
        """Return the times of a run in virtual time without delays."""
        if self._times is None:
            if self._real:
                loaded = backend_of("virtual").load(self._case.program, Options(values=False))
                self._times = loaded.run(Delays.of())
                loaded.close()
            else:
                self._times = self._as_recorded()
        return self._times

    def _shows(self, finding: Finding, rows: tuple[int, ...], outcome: Outcome) -> bool:
        if finding.kind == "deadlock":
            return self._case.showing.stands(finding, outcome)
        return self._case.showing.wrong(finding, outcome) is not None

    def _shown(
        self,
        finding: Finding,
        count: int,
        plan: Plan,
        how: str,
        outcome: Outcome,
        tried: int,
        *,
        as_recorded: bool = True,
    ) -> Attempt:
        delays, lines = self._case.match(plan)
        wrong = None if finding.kind == "deadlock" else self._case.showing.wrong(finding, outcome)
        return Attempt(
            finding,
            count,
            "unknown" if finding.verdict == "unknown" else "confirmed",
            plan,
            how,
            as_recorded,
            {
                "unknown": "a wait that was not seen may prevent it",
                "possible": "if the ops touch what was inferred or may be written",
            }.get(finding.verdict, ""),
            tried,
            None if wrong is None else tell(wrong, self._case.names, [finding]),
            judged(self._case, plan, delays, lines, outcome, found=1, first_found=0),
        )

    def _why_not(self, finding: Finding, turned: bool) -> str:
        if finding.kind == "lifetime":
            return "nothing else uses the bytes, so no read can show it"
        if turned:
            return "turned around, but what was written there is overwritten before anything reads it"
        return "no delay turned the two around"
