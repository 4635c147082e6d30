"""The wrapper that runs everything twice: equal runs pass, runs that may not differ and do are an error."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from tapedelay.formats.delays.resolved import BEFORE_START, Delays
from tapedelay.formats.errors import ReplayFailed
from tapedelay.formats.litmus import parse
from tapedelay.replayer.backends.protocol import Backend, Options
from tapedelay.replayer.backends.threads import ThreadsBackend
from tapedelay.replayer.backends.twice import Twice, difference
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.outcome import Outcome
from tapedelay.replayer.program import Program

from .broken_backends import Altered, jitter

RACE = parse("w | kernel | s0 | | A\nr | kernel | s1 | A | Y\n").tape()
LATE = Delays.of([(0, BEFORE_START, 5_000)])


def run(backend: Backend, *, pinned: bool = False) -> Outcome:
    program = Program.from_tape(RACE)
    loaded = Twice(backend).load(program, Options())
    try:
        return loaded.run(LATE, pin=program.interleaving(LATE) if pinned else None)
    finally:
        loaded.close()
        loaded.close()


def test_equal_runs_pass() -> None:
    outcome = run(VirtualBackend())
    assert outcome.wrong_count
    assert outcome.notes[-1] == "run twice"
    assert isinstance(Twice(VirtualBackend()), Backend)
    assert Twice(VirtualBackend()).capabilities() == VirtualBackend().capabilities()
    assert Twice(VirtualBackend()).available() == ""


def test_pinned_runs_in_real_time_see_the_same() -> None:
    for _ in range(10):
        assert run(ThreadsBackend(), pinned=True).wrong_count


def test_times_that_differ_are_told() -> None:
    with pytest.raises(ReplayFailed, match=r"two runs on virtual differ: end_ns of row 0: \d+ and \d+"):
        run(Altered(outcome=jitter()))


def test_without_the_claim_times_may_differ() -> None:
    assert run(Altered(outcome=jitter(), says={"deterministic": False, "real_time": True})).wrong_count


def test_wrong_reads_that_come_and_go_are_told() -> None:
    runs = count()

    def change(outcome: Outcome) -> Outcome:
        return outcome if next(runs) % 2 else replace(outcome, wrong=[], wrong_count=0, chain=())

    says = {"deterministic": False, "real_time": True, "pin": True}
    with pytest.raises(ReplayFailed, match="wrong_count 0 and"):
        run(Altered(outcome=change, says=says, takes_pins=True), pinned=True)
    assert run(Altered(outcome=change, says=says, takes_pins=True)) is not None


def test_what_may_not_differ() -> None:
    program = Program.from_tape(RACE)
    a = VirtualBackend().load(program, Options()).run(LATE)
    later = replace(a, issue_ns=a.issue_ns + 1, wrong=[replace(w, at_ns=w.at_ns + 1) for w in a.wrong])
    assert difference(a, a, deterministic=True, pinned=False) == ""
    assert difference(a, later, deterministic=False, pinned=True) == ""
    assert difference(a, later, deterministic=True, pinned=False).startswith("issue_ns of row 0")
    other = replace(a, wrong=[replace(a.wrong[0], kind="torn"), *a.wrong[1:]])
    assert "row 1 saw something wrong" in difference(a, other, deterministic=False, pinned=True)
    assert difference(a, other, deterministic=False, pinned=False) == ""
    stuck = replace(a, stuck=(1,))
    assert difference(a, stuck, deterministic=False, pinned=False) == "stuck () and (1,)"
    short = replace(a, end_ns=np.zeros(1, np.int64))
    assert difference(a, short, deterministic=True, pinned=False).startswith("end_ns")
