"""The recordings of llama.cpp bug #26040 on threads: bad is wrong under one delay, good never is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tapedelay.formats.delays import match_plan, plan_of
from tapedelay.formats.delays.randoms import random_delays
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape
from tapedelay.replayer.backends.protocol import Loaded, Options
from tapedelay.replayer.backends.threads import ThreadsBackend
from tapedelay.replayer.program import Program
from tapedelay.replayer.replay import replay, search

from ..replayer.aiming import NONE

SOAK = os.environ.get("TAPEDELAY_SOAK") == "1"
TRACES = Path(__file__).parents[2] / "traces"
AIMED = "first copy of model.input_embed on TAPE0 +20ms before_start"
RUNS = 100 if SOAK else 8


@cache
def recording(name: str) -> Tape:
    return load_tape(TRACES / f"ggml-26040-{name}.tape.zip")


@pytest.fixture
def good() -> Iterator[tuple[Program, Loaded]]:
    program = Program.from_tape(recording("good"))
    run = ThreadsBackend().load(program, Options())
    yield program, run
    run.close()


def test_search_finds_the_delay_that_makes_bad_wrong() -> None:
    (attempt,) = search(recording("bad"), backend="threads").attempts
    assert attempt.state == "confirmed"
    assert "model.input_embed" in attempt.finding.text
    assert attempt.told is not None
    assert attempt.replay is not None
    assert attempt.replay.backend == "threads"


def test_bad_is_wrong_under_the_aimed_delay_every_time() -> None:
    result = replay(recording("bad"), backend="threads", delays=AIMED, repeat=RUNS)
    assert result.runs == result.found == RUNS
    assert result.verdict == "confirmed"
    assert result.first is not None
    assert any("conv_states" in f.text for f in result.confirmed)


def test_bad_is_wrong_every_time_where_its_order_is_pinned() -> None:
    result = replay(recording("bad"), backend="threads", delays=AIMED, pin=True, repeat=RUNS)
    assert result.found == RUNS


@pytest.mark.parametrize("runs", [50, pytest.param(1_000, marks=pytest.mark.soak)])
def test_a_pinned_window_of_bad_hits_every_time(runs: int) -> None:
    result = replay(recording("bad"), backend="threads", delays=AIMED, pin=True, ops=(0, 150), repeat=runs)
    assert (result.runs, result.found, result.verdict) == (runs, runs, "confirmed")


def test_good_is_right_under_that_delay_and_as_recorded(good: tuple[Program, Loaded]) -> None:
    program, run = good
    aimed = match_plan(plan_of(AIMED), program.tape)
    assert [m.count for m in aimed.lines] == [1]
    for delays in (NONE, aimed.delays):
        assert run.run(delays).clean


@pytest.mark.parametrize("seed", range(RUNS))
def test_good_is_right_under_random_delays(good: tuple[Program, Loaded], seed: int) -> None:
    program, run = good
    outcome = run.run(random_delays(program.op_ids, seed, 400_000))
    assert outcome.reads > 1000
    assert outcome.clean, outcome.wrong[:3]
