"""A run of the toy as a tape: what its calls did goes through the recorder of request schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tapedelay.formats.tape import Tape
from tapedelay.formats.write import write_tape
from tapedelay.recorder.requests import PoolRow, SchedulerRecorder, stop
from tapedelay.recorder.spools import collect_all
from tapedelay.replayer.rerun.drive import Call, Run, run
from tapedelay.replayer.rerun.protocol import BlockChange, Decision
from tapedelay.replayer.rerun.scenario import Scenario

from .toy import ToyDriver

__all__ = ["taped"]


def taped(scenario: Scenario, folder: Path, engine: str = "toy") -> Path:
    """Run a scenario on the toy and write its tape, as one of this engine."""
    spool = folder / "spool"
    spool.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAPEDELAY_SPOOL", str(spool))
        _recorded(scenario, engine)
    tape = collect_all(spool)
    assert isinstance(tape, Tape)
    path = folder / "toy.tape"
    write_tape(tape, path)
    return path


def _recorded(scenario: Scenario, engine: str) -> None:
    made = run(scenario, ToyDriver())
    assert made.drained
    assert not made.violations
    recorder = SchedulerRecorder(
        engine,
        "1.0",
        scenario.config,
        [PoolRow(p.name, p.units, p.reserved, p.tokens_per_unit) for p in scenario.pools],
    )
    for call in made.calls:
        _tell(recorder, call, made)
    stop()


def _tell(recorder: SchedulerRecorder, call: Call, made: Run) -> None:
    given = call.given
    numbers: Mapping[str, int] = {p.name: n for n, p in enumerate(made.pools)}
    if given.kind in ("step", "output"):
        recorder.begin(given.kind, decode_only=given.decode_only or None, step=call.step)
    elif given.kind == "abort":
        recorder.begin("abort", keys=[str(r) for r in given.requests])
    else:
        about = given.about()
        recorder.begin(
            given.kind,
            key=str(about[0]) if about else None,
            tokens=given.tokens or 0 if given.kind == "next_chunk" else None,
            value=given.value,
            word="last" if given.last else given.word,
        )
    if given.submission is not None:
        s = given.submission
        recorder.submit(
            str(s.request),
            prompt_tokens=s.prompt_tokens,
            max_tokens=s.max_tokens,
            priority=s.priority,
            flags=s.flags,
            reserve_tokens=s.reserve_tokens,
            prefixes=[(of, a, b) for r, of, a, b in made.scenario.prefixes if r == s.request],
        )
    for event in call.reaction.events:
        if isinstance(event, BlockChange):
            owner = None if event.request is None else str(event.request)
            recorder.blocks(event.action, numbers[event.pool], event.units, owner)
        elif event.kind not in ("prefill", "decode"):
            recorder.decision(event.kind, str(event.request))
    if given.kind == "step":
        recorder.schedule([_row(d) for d in call.reaction.scheduled()])
    if given.kind == "output":
        why = dict(call.reaction.ended or ())
        recorder.answers([(str(a.request), a.tokens, why.get(a.request)) for a in given.answers or ()])
    for pool, free in call.free.items():
        recorder.resources(numbers[pool], free, call.used[pool])
    recorder.end()


def _row(decision: Decision) -> tuple[str, int, int, bool]:
    return (
        str(decision.request),
        decision.tokens or 0,
        decision.computed_tokens or 0,
        decision.kind == "prefill",
    )
