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

Fact = tuple[int, int, str, int]
Byte = tuple[int, str]


def facts(outcome: Outcome) -> dict[Fact, set[Byte]]:
    """Return the wrong reads, each with the bytes at fault and what is wrong with them."""
    found = {}
    for w in outcome.wrong:
        kind = "value" if w.kind in ("stale", "torn") else w.kind
        found[w.row, w.access, kind, w.root] = {(b, s.state) for s in w.saw for b in range(s.begin, s.end)}
    return found


def missed(got: Outcome, expected: Outcome) -> int:
    """Return how many bytes at fault real memory does not show; there can be one in 256.

    A byte has no room for more than 8 bits of an op's value: now and then it is that of another op as well.
    """
    seen, wanted = facts(got), facts(expected)
    bytes_lost = 0
    assert set(seen) <= set(wanted)
    for fact, parts in wanted.items():
        lost = parts - seen.get(fact, set())
        assert seen.get(fact, set()) - parts <= {(b, "unknown") for b, _ in lost}
        assert len(lost) <= 1
        assert fact in seen or len(parts) == 1
        bytes_lost += len(lost)
    return bytes_lost


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
        try:
            counts["missed"] += missed(got, expected)
        except AssertionError as e:
            raise AssertionError(f"random tape {seed}") from e
        counts["bytes"] += sum(map(len, facts(expected).values()))
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
    assert counts["missed"] <= counts["bytes"] // 100, counts
