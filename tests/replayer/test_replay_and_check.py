"""What `check` says and what the virtual backend shows are one thing, both ways, on random tiny tapes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tapedelay.formats.delays import BEFORE_START, Delays
from tapedelay.formats.errors import InvalidTape
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.check import check_tape
from tapedelay.replayer.check.findings import Finding, Report
from tapedelay.replayer.outcome import Outcome
from tapedelay.replayer.program import Program

from .random_tapes import BYTES, random_tape
from .replay_model import Memory, Model
from .test_replay_model import as_delays, random_delays, timed

COUNTS = [300, pytest.param(5_000, marks=pytest.mark.soak)]


def loaded(seed: int) -> tuple[Any, Program, Report, random.Random] | None:
    r = random.Random(seed)
    tape = timed(random_tape(r.randbytes(BYTES)), r)
    try:
        report = check_tape(tape)
    except InvalidTape:
        return None
    program = Program.from_tape(tape)
    return VirtualBackend().load(program, Options(wrong_limit=1000)), program, report, r


@pytest.mark.parametrize("count", COUNTS)
def test_what_check_finds_nothing_on_is_clean_under_any_delays(count: int) -> None:
    clean = 0
    for seed in range(count):
        case = loaded(seed)
        if case is None or case[2].findings:
            continue
        run, program, _, r = case
        clean += 1
        many = run.run_many([as_delays(random_delays(program.rows, r)) for _ in range(40)])
        assert not many.wrong_count.any(), seed
    assert clean > 50


def flip(program: Program, outcome: Outcome, finding: Finding) -> Delays:
    """Return the delay that lets the first op of a pair start after the second is done."""
    first, second = (int(np.searchsorted(program.op_ids, o.op)) for o in (finding.ops[0], finding.ops[-1]))
    late = outcome.end_ns[second] - outcome.start_ns[first] + 1
    return Delays.of([(first, BEFORE_START, max(0, int(late)))])


def shows(model: Model, finding: Finding, rows: list[int]) -> int:
    """Return the row whose judged read must be wrong if the pair is turned around; -1: none must.

    A write that somebody has overwritten before the second op reads is missed by nobody.
    """
    if finding.fault not in ("RAW", "WAR"):
        return -1
    reader = finding.ops[-1 if finding.fault == "RAW" else 0]
    if reader.mode not in ("read", "update"):
        return -1
    if finding.fault == "WAR":
        return rows[0]
    seen, _ = Memory(model, []).reference()
    wrote = {c.writer for (row, _), cells in seen.items() if row == rows[-1] for c in cells.values()}
    return rows[-1] if rows[0] in wrote else -1


def turned(run: Any, program: Program, report: Report) -> Iterator[tuple[Finding, int, Outcome]]:
    """Yield the races that a delay has turned around, with the row whose read must be wrong."""
    plain = run.run(Delays.of())
    model = Model(program.tape)
    for finding in report.findings:
        if finding.kind != "race" or finding.verdict != "race":
            continue
        rows = [int(np.searchsorted(program.op_ids, o.op)) for o in finding.ops]
        reader = shows(model, finding, rows)
        if reader < 0 or plain.end_ns[rows].min() < 0:  # what never ends never writes
            continue
        got = run.run(flip(program, plain, finding))
        # Parts of the first op may hold the second back: then they cannot change places. At one instant the
        # first still comes first.
        if got.end_ns[rows[-1]] < got.start_ns[rows[0]]:
            yield finding, reader, got


@pytest.mark.parametrize("count", COUNTS)
def test_a_race_that_is_turned_around_shows_a_wrong_read(count: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(count):
        case = loaded(seed)
        for finding, reader, got in turned(*case[:3]) if case is not None else ():
            assert reader in {w.row for w in got.wrong}, (seed, finding)
            seen[finding.fault] += 1
    assert min(seen["RAW"], seen["WAR"]) > 10, seen
