"""Every racy model of the corpus is made wrong by the delay that search computes; the fixed one never is."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tapedelay.formats.delays.resolved import Delays
from tapedelay.formats.litmus import Litmus, read
from tapedelay.formats.tape import Tape
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.backends.virtual import LoadedVirtual, VirtualBackend
from tapedelay.replayer.program import Program
from tapedelay.replayer.replay import Attempt, Search, replay, search

from .aiming import NONE, small_delays

CORPUS = Path(__file__).parent.parent / "corpus"
FILES = sorted(CORPUS.glob("*/*.litmus"))
SURE = ("race", "possible", "lifetime", "deadlock")

NOT_SHOWN = {
    "double-free": "a second free touches no memory that anything reads",
    "graph-siblings": "the launch that both kernels are part of writes the bytes itself when it ends",
    "suballocation-use-after-free": "the pool that the range is part of is still there",
}
"""Models that no value can show, and why."""

RANDOM_PLANS = 1000


def claims(litmus: Litmus, variant: str) -> int:
    """Return how many findings a file states that are more than unknown."""
    return sum(v.kind in SURE for v in litmus.verdicts(variant))


RACY = [f for f in FILES if claims(read(f), "buggy")]
FIXED = [f for f in RACY if all(v.kind == "clean" for v in read(f).verdicts("fixed"))]


def loaded(tape: Tape) -> tuple[Program, LoadedVirtual]:
    program = Program.from_tape(tape)
    return program, VirtualBackend().load(program, Options())


@cache
def searched(file: Path) -> Search:
    return search(read(file).tape("buggy"), every=True)


def moved(attempt: Attempt, litmus: Litmus) -> Delays:
    """Return the delays of a plan on the ops of the same labels in the fixed variant."""
    if attempt.replay is None:
        return NONE
    program = Program.from_tape(litmus.tape("buggy"))
    fixed = litmus.labels("fixed")
    label = {op: name for name, op in litmus.labels("buggy").items()}
    delays = attempt.replay.delays
    named = [
        (label[int(program.op_ids[row])], place, ns)
        for row, place, ns in zip(delays.row.tolist(), delays.place.tolist(), delays.ns.tolist(), strict=True)
    ]
    return Delays.of([(fixed[name], place, ns) for name, place, ns in named if name in fixed])


def test_there_is_something_to_show() -> None:
    assert len([f for f in RACY if f.parent.name == "ops"]) == 32
    assert len(RACY) > 90
    assert len(FIXED) > 85
    assert set(NOT_SHOWN) < {f.stem for f in RACY}


@pytest.mark.parametrize("file", RACY, ids=[f.stem for f in RACY])
def test_the_delay_of_search_shows_the_finding(file: Path) -> None:
    litmus = read(file)
    tape = litmus.tape("buggy")
    found = [a for a in searched(file).attempts if a.finding.verdict in SURE]
    assert len(found) == claims(litmus, "buggy")
    for attempt in found:
        if file.stem in NOT_SHOWN:
            assert attempt.state == "not shown"
            assert attempt.reason
            continue
        assert attempt.state == "confirmed", attempt.reason
        assert attempt.plan is not None
        again = replay(tape, delays=attempt.plan)
        assert not again.outcome.clean
        assert again.exit_code == 1
        assert attempt.finding in again.confirmed


@pytest.mark.parametrize("file", FIXED, ids=[f.stem for f in FIXED])
def test_the_fixed_model_is_right_under_that_delay_and_a_thousand_others(file: Path) -> None:
    litmus = read(file)
    program, run = loaded(litmus.tape("fixed"))
    for attempt in searched(file).attempts:
        assert run.run(moved(attempt, litmus)).clean
    plans = [d for n in (100, 5_000) for d in small_delays(program, RANDOM_PLANS // 2, max_ns=n)]
    counts = run.run_many(plans).wrong_count
    assert len(counts) == RANDOM_PLANS
    assert not counts.any()
    assert run.run(plans[-1]).clean


def test_random_delays_would_show_a_racy_model() -> None:
    """The same thousand delays make most of the racy models wrong, some time."""
    shown = 0
    chosen = RACY[::3]
    for file in chosen:
        program, run = loaded(read(file).tape("buggy"))
        shown += bool(run.run_many(small_delays(program, 100, max_ns=5_000)).wrong_count.any())
    assert shown > len(chosen) // 2
