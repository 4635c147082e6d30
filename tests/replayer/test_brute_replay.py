"""Virtual replay against a second judge that shares nothing with it, on random tiny tapes and delays."""

from __future__ import annotations

import os
import random
from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest

from tapedelay.formats.delays.resolved import AFTER_END, Delays
from tapedelay.formats.errors import TapedelayError
from tapedelay.formats.tape import Tape
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.outcome import AT_END, Outcome
from tapedelay.replayer.program import Program

from .aiming import NONE, small_delays
from .brute_force import BruteForce
from .brute_replay import BruteReplay
from .random_tapes import BYTES, random_tape

SOAK = bool(os.environ.get("TAPEDELAY_SOAK"))
Ints = npt.NDArray[np.int64]


def done_ns(brute: BruteReplay, outcome: Outcome, delays: Delays) -> Ints:
    """Return when the work of each row was done: its end without the delay behind it."""
    tail = np.zeros(len(outcome.end_ns), np.int64)
    tail[delays.row[delays.place == AFTER_END]] = delays.ns[delays.place == AFTER_END]
    for rows in brute.rows_of.values():
        tail[rows] = tail[rows].max()
    return np.where(outcome.end_ns < 0, -1, outcome.end_ns - tail)


def compare(brute: BruteReplay, outcome: Outcome, delays: Delays) -> int:
    """Compare one run with the second judge; return how many things are wrong in it."""
    runs = {row for g in brute.rules.ended for row in brute.rows_of[g]}
    assert {int(r) for r in np.flatnonzero(outcome.end_ns >= 0)} == runs
    judged = brute.judge(outcome.start_ns.tolist(), done_ns(brute, outcome, delays).tolist())
    values = [w for w in outcome.wrong if w.kind in ("stale", "torn")]
    assert {(w.row, w.access) for w in values if w.row != AT_END} == judged.reads
    assert {(w.row, w.access) for w in outcome.wrong if w.kind == "freed"} == judged.freed
    assert {w.row for w in outcome.wrong if w.kind == "destroyed"} == judged.destroyed
    freed = {
        brute.rules.root(o["target"])[0]
        for o in brute.rules.ops
        if o["kind"] == "free" and o["target"] is not None
    }
    at_end = {w.root for w in values if w.row == AT_END}
    assert at_end - freed == judged.at_end - freed
    assert outcome.wrong_count == len(outcome.wrong)
    return outcome.wrong_count


def agree(tape: Tape, plans: int, seed: int) -> Counter[str]:
    """Run a tape under random delays and compare each run."""
    counts: Counter[str] = Counter()
    try:
        program = Program.from_tape(tape)
    except TapedelayError:
        assert BruteForce(tape).refused()
        return Counter(refused=1)
    brute = BruteReplay(tape)
    faults = BruteForce(tape).run()
    safe = not faults.races and not faults.lifetimes and not faults.deadlocks
    counts["safe"] += safe
    loaded = VirtualBackend().load(program, Options(wrong_limit=10_000))
    chosen = [NONE, *small_delays(program, plans, seed=seed)]
    many = loaded.run_many(chosen)
    for i, delays in enumerate(chosen):
        outcome = loaded.run(delays)
        found = compare(brute, outcome, delays)
        assert (found, outcome.total_ns) == (many.wrong_count[i], many.total_ns[i])
        assert not (safe and found), "a fault that no checker knows"
        counts["wrong" if found else "clean"] += 1
    return counts


@pytest.mark.parametrize("seed", range(8))
def test_wrong_reads_are_those_of_the_second_judge(seed: int) -> None:
    counts: Counter[str] = Counter()
    for i in range(2000 if SOAK else 60):
        number = seed * 100_000 + i
        counts += agree(random_tape(random.Random(number).randbytes(BYTES)), 6, number)
    assert counts["wrong"] > 50, counts
    assert counts["clean"] > 50, counts
    assert counts["safe"] > 5, counts
