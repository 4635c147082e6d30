"""Every racy model of the corpus is made wrong by the delay that search computes; the fixed one never is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapedelay.formats.litmus import read
from tapedelay.formats.tape import Tape
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.backends.virtual import LoadedVirtual, VirtualBackend
from tapedelay.replayer.program import Program
from tapedelay.replayer.replay import replay

from .aiming import small_delays
from .corpus_cases import FIXED, NOT_SHOWN, RACY, moved, not_shown, searched

OPS = [f for f in RACY if f.parent.name == "ops"]
RANDOM_PLANS = 1000


def loaded(tape: Tape) -> tuple[Program, LoadedVirtual]:
    program = Program.from_tape(tape)
    return program, VirtualBackend().load(program, Options())


def test_there_is_something_to_show() -> None:
    assert len(OPS) == 32
    assert len(RACY) > 90
    assert len(FIXED) > 85
    assert set(NOT_SHOWN) < {f.stem for f in RACY}
    assert not set(NOT_SHOWN) & {f.stem for f in OPS}


@pytest.mark.parametrize("file", RACY, ids=[f.stem for f in RACY])
def test_the_delay_of_search_shows_the_finding(file: Path) -> None:
    assert not_shown(file, "virtual") == []
    for attempt in searched(file).of("confirmed"):
        again = replay(read(file).tape("buggy"), delays=attempt.plan)
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
    """A hundred such plans make most of the racy models wrong, some time."""
    chosen = RACY[::3]
    shown = 0
    for file in chosen:
        program, run = loaded(read(file).tape("buggy"))
        shown += bool(run.run_many(small_delays(program, 100, max_ns=5_000)).wrong_count.any())
    assert shown > len(chosen) // 2


@pytest.mark.parametrize("file", OPS, ids=[f.stem for f in OPS])
def test_the_delay_of_search_shows_the_finding_on_threads(file: Path) -> None:
    assert not_shown(file, "threads") == []
