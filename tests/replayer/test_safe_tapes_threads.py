"""A random tape in which no two accesses can be turned around is right on threads, whatever is late."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tapedelay.formats.tape import Tape
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.backends.threads import ThreadsBackend
from tapedelay.replayer.program import Program

from .aiming import small_delays
from .brute_force import BruteForce
from .random_tapes import BYTES, random_tape


def safe_tapes(first: int, count: int) -> Iterator[tuple[int, Tape]]:
    """Yield random tapes of which the brute-force checker says that nothing is wrong with them."""
    for seed in range(first, first + count):
        tape = random_tape(random.Random(seed).randbytes(BYTES))
        rules = BruteForce(tape)
        if rules.refused():
            continue
        found = rules.run()
        if not found.races and not found.lifetimes and not found.deadlocks:
            yield seed, tape


@pytest.mark.parametrize("count", [100, pytest.param(2_000, marks=pytest.mark.soak)])
def test_threads_find_nothing_where_nothing_is(count: int) -> None:
    tapes = 0
    for seed, tape in safe_tapes(2_000_000, count):
        program = Program.from_tape(tape)
        run = ThreadsBackend().load(program, Options())
        for delays in small_delays(program, 3, seed=seed, max_ns=100_000):
            assert run.run(delays).clean, seed
        run.close()
        tapes += 1
    assert tapes > 25
