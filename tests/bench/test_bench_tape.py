"""The bench tape is what the design says, ordered but for the planted race, and the same from one seed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from decode import bench_tape
from decode.memory import POSITIONS
from decode.one_token import QUEUES
from decode.tape import positions

from tapedelay.formats.columns import Columns
from tapedelay.formats.tape import Tape
from tapedelay.formats.validate import validate
from tapedelay.formats.write import write_tape
from tapedelay.replayer.check import check_tape
from tapedelay.replayer.columns import core_tape

OPS = 5000


@pytest.fixture(scope="module")
def tape() -> Tape:
    return bench_tape(OPS, seed=3)


def ops_of(tape: Tape) -> Columns:
    return Columns(tape.table("ops"))


@pytest.mark.parametrize("ops", [1, 169, 170, 171, 2000])
@pytest.mark.parametrize("race", [False, True])
def test_valid_with_any_count(ops: int, race: bool) -> None:
    made = bench_tape(ops, race=race)
    assert made.table("ops").num_rows == ops
    assert validate(made) == []


def test_nothing_is_unordered(tape: Tape) -> None:
    report = check_tape(tape)
    assert report.verdict == "clean"
    assert report.accesses_checked >= 6 * OPS


def test_the_planted_race_is_found_and_nothing_else() -> None:
    tape = bench_tape(OPS, seed=3, race=True)
    report = check_tape(tape)
    assert report.verdict == "race"
    # all pairs are those of one copy: nobody waits for it
    token = OPS // 170 // 2
    assert {(f.ops[0].kind, f.ops[0].name, f.ops[0].step) for f in report.findings} == {
        ("copy", "residual", token)
    }


def test_the_planted_race_takes_one_wait_away(tape: Tape) -> None:
    racy = bench_tape(OPS, seed=3, race=True)
    whole, changed = tape.table("ops").to_pylist(), racy.table("ops").to_pylist()
    differing = [(a, b) for a, b in zip(whole, changed, strict=True) if a != b]
    assert [(a["kind"], b["kind"]) for a, b in differing] == [("wait", "mark")]


def test_one_seed_one_tape(tmp_path: Path, tape: Tape) -> None:
    def content(name: str, made: Tape) -> list[bytes]:
        return [f.read_bytes() for f in sorted(write_tape(made, tmp_path / name).iterdir())]

    first = content("a.tape", tape)
    assert first == content("b.tape", bench_tape(OPS, seed=3))
    assert first != content("c.tape", bench_tape(OPS, seed=4))


def test_shape(tape: Tape) -> None:
    """8 queues on 2 devices, 2 host threads, 10 % syncs and events, 1 % partial overlaps."""
    assert len(QUEUES) == 10
    ops = ops_of(tape)
    assert set(ops.ints("queue").tolist()) == set(range(10))
    kinds = Counter(tape.table("ops").column("kind").to_pylist())
    assert 0.095 < sum(kinds[k] for k in ("record", "wait", "sync")) / OPS < 0.105
    kernels = ops.isin("kind", "kernel")
    names = {str(ops.words("name")[int(r)]) for r in np.flatnonzero(kernels)}
    assert {f"attention-{n}" for n in range(32)} <= names
    sets = Counter(bench_tape(100_000).table("ops").column("access_set").to_pylist())
    usual = sorted((n for n in sets.values() if n > 1), reverse=True)
    # every layer's kernels have two sets each: one that 99 % of the tokens use, one across its ranges
    few = sum(n for n in usual if n < 50)
    assert 0.005 < few / (100_000 * 128 / 170) < 0.015


def test_cache_grows_to_all_positions(tape: Tape) -> None:
    """2,000,000 ops end at the last of 20,000 positions; then a new sequence begins with the same prompt."""
    tokens = -(-2_000_000 // 170)
    at = positions(tokens + 1)
    assert at[tokens - 1] == POSITIONS - 1
    assert at[tokens] == at[0]
    assert (np.diff(at[:tokens]) == 1).all()
    ops = ops_of(tape)
    assert set(ops.ints("arg")[ops.valid("arg")].tolist()) == set(at[: OPS // 170 + 1].tolist())
    accesses = tape.table("accesses").to_pylist()[:300]
    assert any(a["mode"] == "write" and a["offset_per_arg"] for a in accesses)
    assert any(a["mode"] == "read" and a["bytes_per_arg"] for a in accesses)


def test_scratch_memory_is_used_again() -> None:
    buffers = bench_tape(100_000).table("buffers").to_pylist()
    scratch = [b for b in buffers if b["name"] == "scratch"]
    assert all(b["parent"] is not None and b["alloc_op"] is not None for b in scratch)
    assert max(b["generation"] for b in scratch) >= 2
    ranges = Counter((b["parent"], b["parent_offset"], b["bytes"]) for b in scratch)
    for key, count in ranges.items():
        mine = [b["generation"] for b in scratch if (b["parent"], b["parent_offset"], b["bytes"]) == key]
        assert mine == list(range(count))


def test_times_respect_every_edge(tape: Tape) -> None:
    """Nothing starts before it is issued or before what it waits for has ended."""
    ops = ops_of(tape)
    start = ops.ints("issue_ns") + ops.ints("start_after_issue_ns")
    end = start + ops.ints("duration_ns")
    source, target, rule = (np.asarray(a) for a in core_tape(tape).edges())
    assert len(source) > OPS
    # a wait begins when its turn comes, and ends when that has ended for which it waits
    waits = ops.isin("kind", "wait", "sync")[target]
    assert waits.any()
    assert (end[source] <= np.where(waits, end[target], start[target])).all()
    assert len(set(rule.tolist())) >= 4


def test_attention_takes_longer_the_more_it_reads() -> None:
    ops = ops_of(bench_tape(170 * 4000))
    names = ops.words("name")
    took = ops.ints("duration_ns")[names.isin(("attention-3",))]
    assert len(took) == 4000
    assert took[-500:].mean() > took[:500].mean() + 1000
