"""A pinned run on OpenCL sees, read for read, what the run in virtual time saw whose order it has."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tapedelay.formats.delays import match_plan, plan_of
from tapedelay.formats.errors import TapedelayError
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.outcome import Outcome
from tapedelay.replayer.program import Program

from ..replayer.aiming import NONE, small_delays
from ..replayer.random_tapes import BYTES, random_tape
from .opencl import backend, loaded

SOAK = os.environ.get("TAPEDELAY_SOAK") == "1"
OPTIONS = Options(wrong_limit=10_000)
BAD = Path(__file__).parents[2] / "traces" / "ggml-26040-bad.tape.zip"
AIMED = "first copy of model.input_embed on TAPE0 +20ms before_start"


def wrong(outcome: Outcome, *, kinds: bool) -> set[tuple[int, int, int, str]]:
    """Return what is wrong; where values share words of memory, bytes may not say what they were part of."""
    return {(w.row, w.access, w.root, w.kind if kinds else "") for w in outcome.wrong}


def agree(tape: Tape, plans: int, seed: int, *, compact: bool) -> Counter[str]:
    """Compare the two backends on a tape under some interleavings."""
    try:
        stuck = bool(Program.from_tape(tape).core.stuck()[0])
    except TapedelayError:
        return Counter(refused=1)
    if stuck:
        return Counter(stuck=1)
    counts: Counter[str] = Counter()
    options = Options(wrong_limit=10_000, compact=compact)
    with loaded(tape, options) as (program, run):
        parts = "parts " if program.tape.table("ops").column("parent").null_count < program.rows else ""
        virtual = VirtualBackend().load(program, options)
        for delays in [NONE, *small_delays(program, plans, seed=seed)]:
            expected = virtual.run(delays)
            got = run.run(NONE, pin=program.interleaving(delays))
            assert wrong(got, kinds=compact) == wrong(expected, kinds=compact), f"random tape {seed}"
            counts[parts + ("clean" if expected.clean else "wrong")] += 1
            counts["torn"] += any(w.kind == "torn" for w in expected.wrong)
    return counts


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_opencl_sees_what_virtual_time_shows(seed: int, compact: bool) -> None:
    backend()
    counts: Counter[str] = Counter()
    for i in range(400 if SOAK else 40):
        number = seed * 100_000 + i
        counts += agree(random_tape(random.Random(number).randbytes(BYTES)), 3, number, compact=compact)
    assert min(counts["clean"], counts["wrong"], counts["torn"]) > 10, counts
    assert counts["parts clean"] + counts["parts wrong"] > 0, counts


def test_a_pinned_interleaving_of_the_recording_of_the_bad_build_hits_every_time() -> None:
    with loaded(load_tape(BAD)) as (program, run):
        delays = match_plan(plan_of(AIMED), program.tape).delays
        pin = program.interleaving(delays)
        expected = VirtualBackend().load(program, OPTIONS).run(delays)
        first = expected.first
        assert first is not None
        for _ in range(100 if SOAK else 5):
            outcome = run.run(NONE, pin=pin)
            assert (first.row, first.access) in {(w.row, w.access) for w in outcome.wrong}
