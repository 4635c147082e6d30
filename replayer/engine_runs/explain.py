"""A failed comparison in words: what differs, the race behind it, and the commands that show it again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...formats.errors import TapedelayError
from ...formats.shown import plural, printable, quoted
from .program import near
from .results import EngineRun, EngineRuns

if TYPE_CHECKING:
    from ...formats.tape import Tape
    from ..check import Report

__all__ = ["explain"]

_KINDS = 3
"""Kinds of findings that are shown; `check` shows all."""

_SAID_LINES = 12

_HEADS = {
    "equal": "the program gives the same value under the plan as on synchronous devices",
    "differs": "the program gives another value under the plan than on synchronous devices",
    "unsteady": "the program gives another value every time, on synchronous devices too: no word on races",
    "vacuous": "no work ran on the device: a right answer would mean nothing",
    "unmatched": "the plan did not apply",
    "failed": "the program failed",
    "timeout": "the program did not end in time",
    "unrecorded": "the run was not recorded",
}


def explain(runs: EngineRuns, baseline: str | Path | None = None) -> list[str]:
    """Return a comparison as lines of text.

    Parameters
    ----------
    runs : EngineRuns
        What came of it.
    baseline : str or Path, optional
        Findings of `check` that are accepted.
    """
    lines = [_HEADS[runs.verdict]]
    if runs.verdict == "differs":
        lines += _differences(runs)
    elif runs.verdict == "unsteady" and runs.again is not None:
        lines += list(_unsteady(runs, runs.again))
    failing = runs.failing
    if failing is None:
        return [*map(printable, lines)]
    if failing.fault is not None:
        lines += [f"  {line}" for line in failing.fault.text().splitlines()]
    if failing.trouble in ("failed", "timeout", "unrecorded") and failing.said:
        lines += ["  it wrote:", *(f"    {line}" for line in failing.said.splitlines()[-_SAID_LINES:])]
    lines += list(_applied(failing))
    if failing is not runs.reference and failing.tape is not None and runs.verdict != "unsteady":
        lines += ["", *_findings(failing.tape, baseline)]
    lines += ["", *_again(runs, failing, baseline)]
    return [*map(printable, lines)]


def _differences(runs: EngineRuns) -> Iterator[str]:
    for i in runs.wrong[:_KINDS]:
        yield f"  {runs.runs[i].title}: {runs.differences[i]}"
    if len(runs.runs) > 1:
        count = f"{len(runs.wrong)} of {plural(len(runs.runs), 'run')} differ"
        yield f"  {count}" + (", all in the same way" if runs.same_wrong and len(runs.wrong) > 1 else "")


def _unsteady(runs: EngineRuns, again: EngineRun) -> Iterator[str]:
    if again.fault is not None:
        yield f"  the second synchronous run gave no value: {again.fault.found}"
        return
    yield f"  {runs.unsteady}"
    yield "  give pick= a function that takes out of it the part that counts: the tokens, say, not the times"


def _applied(run: EngineRun) -> Iterator[str]:
    for line in run.delays[:_KINDS]:
        yield f"  delay: {line.get('text', '')} (applied {_times(int(line.get('count', 0)))})"
    if len(run.delays) > _KINDS:
        yield f"  and {plural(len(run.delays) - _KINDS, 'more line')} of delays"


def _times(count: int) -> str:
    return {0: "never", 1: "once"}.get(count, f"{count:,} times")


def _findings(tape: Path, baseline: str | Path | None) -> list[str]:
    """Return what `check` says about a recording: a few kinds only, those first that the delays are about."""
    from ...formats.load import load_tape
    from ..check import check_tape, read_baseline
    from ..check.command import render

    try:
        loaded = load_tape(tape)
        report = check_tape(loaded, None if baseline is None else read_baseline(Path(baseline)))
        delayed = _Delayed(loaded)
    except TapedelayError as e:
        return [f"check cannot tell why: {line}" for line in e.text().splitlines()]
    head = render(report)[0]
    open_groups = [g for g in report.groups if not g.example.accepted]
    if not open_groups:
        return [f"check on its recording: {head}", "  so what went wrong is not in what the recording shows"]
    ranked = sorted(open_groups, key=lambda g: delayed.distance(report, g.example.signature))
    report.groups, report.conditions, report.stale = ranked[:_KINDS], [], []
    lines = [f"check on its recording: {head}", *render(report)[1:]]
    left = len(open_groups) - _KINDS
    return lines + ([f"and {plural(left, 'more kind')} of findings"] if left > 0 else [])


class _Delayed:
    """The ops of a tape that were delayed, and those that waited behind them."""

    def __init__(self, tape: Tape) -> None:
        self._ops = {op for op in tape.table("delays").column("op").to_pylist() if op is not None}
        self._queues: dict[str, int] = {}
        names = tape.table("queues").column("name").to_pylist()
        ops = tape.table("ops")
        queue_of = dict(zip(ops.column("op").to_pylist(), ops.column("queue").to_pylist(), strict=True))
        for op in sorted(self._ops):
            if op in queue_of:
                self._queues.setdefault(names[queue_of[op]], op)

    def distance(self, report: Report, signature: str) -> int:
        """Return 0 for a kind of finding about a delayed op, 1 behind one on its queue, else 2."""
        ops = [o for f in report.findings if f.signature == signature for o in f.ops]
        if any(o.op in self._ops for o in ops):
            return 0
        return 1 if any(o.op > self._queues.get(o.queue, o.op) for o in ops) else 2


def _again(runs: EngineRuns, run: EngineRun, baseline: str | Path | None) -> Iterator[str]:
    if run.tape is not None:
        accepted = "" if baseline is None else f" --baseline {_path(baseline)}"
        yield f"its recording: tapedelay check {_path(run.tape)}{accepted}"
    if run.plan is not None:
        yield f"the random plan of that run, written out: {_path(run.plan)}"
    yield f"to run it again: {_command(run, runs.setting.env)}"


def _path(path: str | Path) -> str:
    return quoted(near(path))


def _command(run: EngineRun, env: Mapping[str, str | None]) -> str:
    words = ["env"] * any(v is None for v in env.values())
    words += [f"-u {quoted(k)}" for k, v in env.items() if v is None]
    words += [f"{k}={quoted(v)}" for k, v in env.items() if v is not None]
    for word in run.command:
        words.append(_path(word) if os.path.isabs(word) else quoted(word))
    return " ".join(words)
