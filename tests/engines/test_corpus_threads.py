"""The corpus on threads: wrong by the delay of search, fixed models right under it and under random ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapedelay.formats.litmus import read
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.backends.threads import ThreadsBackend
from tapedelay.replayer.program import Program

from ..replayer.aiming import NONE, small_delays
from ..replayer.corpus_cases import FIXED, RACY, moved, not_shown, searched


@pytest.mark.parametrize("file", RACY, ids=[f.stem for f in RACY])
def test_the_delay_of_search_shows_the_finding(file: Path) -> None:
    assert not_shown(file, "threads") == []


@pytest.mark.parametrize("file", FIXED, ids=[f.stem for f in FIXED])
def test_the_fixed_model_is_right_under_that_delay_and_random_ones(file: Path) -> None:
    litmus = read(file)
    program = Program.from_tape(litmus.tape("fixed"))
    run = ThreadsBackend().load(program, Options())
    aimed = [moved(a, litmus) for a in searched(file, "threads").attempts]
    for delays in [NONE, *aimed, *small_delays(program, 20, max_ns=1_000_000)]:
        assert run.run(delays).clean
    run.close()
