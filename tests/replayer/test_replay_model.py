"""The virtual backend against a second replay that shares nothing with it, on random tiny tapes."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from tapedelay.formats.delays import PLACES, Delays
from tapedelay.formats.errors import InvalidTape
from tapedelay.formats.tape import Tape
from tapedelay.replayer.backends.protocol import Options
from tapedelay.replayer.backends.virtual import VirtualBackend
from tapedelay.replayer.outcome import AT_END, Outcome, Seen, WrongRead
from tapedelay.replayer.program import Program

from .random_tapes import BYTES, random_tape
from .replay_model import Model, Run, Wrong


def timed(tape: Tape, r: random.Random) -> Tape:
    """Give the ops of a tape random times, some of them none."""
    ops = tape.table("ops")
    now = 0
    columns: dict[str, list[int | None]] = {
        n: [] for n in ("issue_ns", "start_after_issue_ns", "duration_ns")
    }
    for _ in range(ops.num_rows):
        now += r.choice((0, 0, 1, 3, 10))
        columns["issue_ns"].append(now if r.random() < 0.8 else None)
        columns["start_after_issue_ns"].append(r.choice((None, 0, 2, 20)))
        columns["duration_ns"].append(r.choice((None, 0, 0, 1, 2, 5, 10, 40)))
    for name, values in columns.items():
        at = ops.schema.get_field_index(name)
        ops = ops.set_column(at, ops.schema.field(name), pa.array(values, pa.int64()))
    tables = {n: tape.table(n) for n in tape.present}
    return Tape(tape.manifest, {**tables, "ops": ops}, name=tape.name)


def random_delays(rows: int, r: random.Random) -> dict[tuple[int, str], int]:
    return {
        (r.randrange(rows), r.choice(PLACES)): r.choice((0, 1, 2, 5, 30, 1000))
        for _ in range(r.choice((0, 1, 1, 3, 8)))
    }


def as_delays(delays: dict[tuple[int, str], int]) -> Delays:
    return Delays.of([(row, PLACES.index(place), ns) for (row, place), ns in delays.items()])


def plain(seen: tuple[Seen, ...]) -> list[tuple[int, int, int, str]]:
    return [(s.begin, s.end, s.writer, s.state) for s in seen]


def key(w: WrongRead | Wrong) -> tuple[Any, ...]:
    saw, expected = (plain(w.saw), plain(w.expected)) if isinstance(w, WrongRead) else (w.saw, w.expected)
    return w.row, w.access, w.kind, w.root, w.begin, w.end, w.at_ns, w.derived, saw, expected


def agree(got: Outcome, run: Run) -> None:
    """Compare a run with the model's."""
    assert got.issue_ns.tolist() == run.issue
    assert got.start_ns.tolist() == run.start
    assert got.end_ns.tolist() == run.end
    assert got.wrong_count == len(run.wrong)
    assert sorted(map(key, got.wrong)) == sorted(map(key, run.wrong))
    facts = [w.at_ns for w in got.wrong if w.row != AT_END]
    assert facts == sorted(facts)
    if got.wrong:
        first = next(w for w in run.wrong if key(w) == key(got.wrong[0]))
        assert got.chain == run.memory.chain(first)
    else:
        assert got.chain == ()


def seeded_tape(seed: int) -> tuple[Tape, random.Random]:
    r = random.Random(seed)
    return timed(random_tape(r.randbytes(BYTES)), r), r


def compare(seed: int, seen: Counter[str]) -> None:
    tape, r = seeded_tape(seed)
    model = Model(tape)
    if model.refused():
        with pytest.raises(InvalidTape, match="part of itself"):
            Program.from_tape(tape)
        return
    program = Program.from_tape(tape)
    loaded = VirtualBackend().load(program, Options(wrong_limit=1000))
    assert program.gap_ns.tolist() == [model.gap(i) for i in range(model.n)]
    for _ in range(3):
        delays = random_delays(program.rows, r)
        run = model.replay(delays)
        got = loaded.run(as_delays(delays))
        agree(got, run)
        many = loaded.run_many([as_delays(delays)] * 2)
        assert many.wrong_count.tolist() == [got.wrong_count] * 2
        assert many.total_ns.tolist() == [got.total_ns] * 2
        if not got.stuck:
            order = program.interleaving(as_delays(delays)).schedule.tolist()
            assert order == run.events
        for w in got.wrong:
            seen[w.kind] += 1
            seen["derived"] += w.derived
            seen["at the end"] += w.row == AT_END
            seen.update(s.state for s in w.saw)
        seen["clean"] += got.clean
        seen["stuck"] += got.deadlock
        seen["chain"] += len(got.chain) > 2
        kinds = set(tape.table("ops")["kind"].to_pylist())
        seen.update(f"{k} wrong" for k in kinds if got.wrong_count)


@pytest.mark.parametrize("count", [200, pytest.param(5_000, marks=pytest.mark.soak)])
def test_runs_are_those_of_the_model(count: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(count):
        try:
            compare(seed, seen)
        except AssertionError as e:
            raise AssertionError(f"seed {seed}") from e
    # The comparison would be worth little on tapes where nothing happens.
    for what, least in {
        "stale": 50, "torn": 50, "freed": 50, "destroyed": 5, "derived": 50, "at the end": 50,
        "version": 50, "clean": 100, "stuck": 50, "chain": 2, "coll wrong": 20, "wait_any wrong": 20,
    }.items():  # fmt: skip
        assert seen[what] >= least, (what, seen)
