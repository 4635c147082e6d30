"""A pinned run on threads sees, read for read, what the run in virtual time saw whose order it has."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tapedelay.formats.errors import TapedelayError
from tapedelay.formats.tape import Tape
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.backends.threads import ThreadsBackend
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.outcome import Outcome
from tapedelay.replayer.program import Program

from .aiming import NONE, small_delays
from .random_tapes import BYTES, random_tape


def wrong(outcome: Outcome) -> set[tuple[int, int, str, int]]:
    return {(w.row, w.access, w.kind, w.root) for w in outcome.wrong}


def agree(tape: Tape, plans: int, seed: int) -> Counter[str]:
    """Compare the two backends on a tape under some interleavings."""
    try:
        program = Program.from_tape(tape)
    except TapedelayError:
        return Counter(refused=1)
    if program.core.stuck()[0]:
        return Counter(stuck=1)
    options = Options(wrong_limit=10_000)
    virtual = VirtualBackend().load(program, options)
    threads = ThreadsBackend().load(program, options)
    counts: Counter[str] = Counter()
    for delays in [NONE, *small_delays(program, plans, seed=seed)]:
        expected = virtual.run(delays)
        got = threads.run(NONE, pin=program.interleaving(delays))
        assert wrong(got) == wrong(expected), f"random tape {seed}"
        counts["clean" if expected.clean else "wrong"] += 1
    threads.close()
    return counts


@pytest.mark.parametrize("count", [50, pytest.param(500, marks=pytest.mark.soak)])
@pytest.mark.parametrize("seed", range(4))
def test_threads_see_what_virtual_time_shows(seed: int, count: int) -> None:
    counts: Counter[str] = Counter()
    for i in range(count):
        number = seed * 100_000 + i
        counts += agree(random_tape(random.Random(number).randbytes(BYTES)), 3, number)
    assert min(counts["clean"], counts["wrong"]) > 20, counts
