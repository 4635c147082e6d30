"""The OpenCL backend on the conformance kit, the corpus and the recordings of a real bug."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tapedelay.formats.delays import match_plan, plan_of
from tapedelay.formats.delays.randoms import random_delays
from tapedelay.formats.delays.resolved import BEFORE_START, Delays
from tapedelay.formats.litmus import read
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape
from tapedelay.replayer.backends.opencl import LoadedOpenCL
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.backends.twice import Twice
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.conformance import cases, core_cases, run_all
from tapedelay.replayer.outcome import WrongRead
from tapedelay.replayer.program import Program
from tapedelay.replayer.replay import replay

from ..replayer.aiming import NONE, small_delays
from ..replayer.corpus_cases import FILES, FIXED, RACY, moved, not_shown, searched
from .opencl import backend, loaded

SOAK = os.environ.get("TAPEDELAY_SOAK") == "1"
TRACES = Path(__file__).parents[2] / "traces"
AIMED = "first copy of model.input_embed on TAPE0 +20ms before_start"
RUNS = 20 if SOAK else 2
EVERY = 1 if SOAK else 6


def test_every_promise_of_the_protocol_is_kept() -> None:
    report = run_all(backend(), core_cases())
    assert report.passed, report.text()
    assert not report.of("skipped")


def test_patterns() -> None:
    chosen = [c for c in cases() if c.name.startswith("patterns/")][:: 1 if SOAK else 18]
    report = run_all(backend(), chosen)
    assert report.passed, report.text()
    assert len(report.of("passed")) == len(chosen) > 30


@pytest.mark.parametrize("file", RACY[::EVERY], ids=[f.stem for f in RACY[::EVERY]])
def test_the_delay_of_search_shows_the_finding(file: Path) -> None:
    backend()
    assert not_shown(file, "opencl") == []


@pytest.mark.parametrize("file", FIXED[::EVERY], ids=[f.stem for f in FIXED[::EVERY]])
def test_the_fixed_model_is_right_under_that_delay_and_random_ones(file: Path) -> None:
    backend()
    litmus = read(file)
    with loaded(litmus.tape("fixed")) as (program, run):
        aimed = [moved(a, litmus) for a in searched(file, "opencl").attempts]
        for delays in [NONE, *aimed, *small_delays(program, 20 if SOAK else 5, max_ns=1_000_000)]:
            assert run.run(delays).clean


def comparable(wrong: list[WrongRead], reduced: frozenset[int]) -> set[tuple[object, ...]]:
    """Return wrong reads without times; what a reduction in flight leaves in memory is a matter of bytes."""
    return {
        (w.row, w.access, w.kind, w.root, w.begin, w.end, w.derived)
        + (() if w.kind == "torn" and w.root in reduced else (w.saw, w.expected))
        for w in wrong
    }


@pytest.mark.parametrize("variant", ["buggy", "fixed"])
@pytest.mark.parametrize("file", FILES, ids=[f.stem for f in FILES])
def test_a_pinned_run_sees_what_a_virtual_one_sees(file: Path, variant: str) -> None:
    """Each row delayed in turn: real memory and virtual time tell the same wrong reads and the same chain."""
    tape = read(file).tape(variant)
    with loaded(tape) as (program, run):
        if program.core.stuck()[0]:
            assert run.run(NONE).stuck == VirtualBackend().load(program, Options()).run(NONE).stuck
            return
        virtual = VirtualBackend().load(program, Options())
        _, roots, _, _, modes, _ = program.core.accesses()
        reduced = frozenset(roots[modes == 4].tolist())
        for row in range(program.rows):
            delays = Delays.of([(row, BEFORE_START, 3_000_000)])
            expected, outcome = virtual.run(delays), run.run(delays, pin=program.interleaving(delays))
            assert comparable(outcome.wrong, reduced) == comparable(expected.wrong, reduced)
            assert outcome.chain == expected.chain


def test_pinned_runs_are_equal_twice() -> None:
    program = Program.from_tape(read(RACY[0]).tape())
    run = Twice(backend()).load(program, Options())
    delays = Delays.of([(1, BEFORE_START, 3_000_000)])
    for _ in range(200 if SOAK else 20):
        assert run.run(delays, pin=program.interleaving(delays)).wrong_count
    run.close()


@cache
def recording(name: str) -> Tape:
    return load_tape(TRACES / f"ggml-26040-{name}.tape.zip")


@pytest.fixture
def good() -> Iterator[tuple[Program, LoadedOpenCL]]:
    with loaded(recording("good")) as found:
        yield found


@pytest.mark.parametrize("pin", [False, True])
def test_the_recording_of_the_bad_build_is_wrong_under_one_delay(pin: bool) -> None:
    result = replay(recording("bad"), backend=backend(), delays=AIMED, pin=pin, repeat=RUNS)
    assert result.runs == result.found == RUNS
    assert result.verdict == "confirmed"
    assert any("conv_states" in f.text for f in result.confirmed)


def test_the_recording_of_the_good_build_is_right(good: tuple[Program, LoadedOpenCL]) -> None:
    program, run = good
    aimed = match_plan(plan_of(AIMED), program.tape)
    assert [m.count for m in aimed.lines] == [1]
    plans = [random_delays(program.op_ids, seed, 400_000) for seed in range(RUNS)]
    for delays in (NONE, aimed.delays, *plans):
        outcome = run.run(delays)
        assert outcome.clean, outcome.wrong[:3]
        assert outcome.reads > 1000
