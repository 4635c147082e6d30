"""Which ops of a tape a plan means."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.columns import Bools
from tapedelay.formats.delays import (
    AFTER_END,
    BEFORE_START,
    Anchors,
    Glob,
    match_plan,
    parse_expression,
    parse_plan,
    print_plan,
    random_delays,
    random_ns,
    random_plan,
)
from tapedelay.formats.delays.plan import MAX_NS, MAX_SEED, MAX_TOTAL_NS
from tapedelay.formats.errors import PlanError
from tapedelay.formats.litmus import parse
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape
from tapedelay.formats.window import window

TRACES = Path(__file__).resolve().parents[2] / "traces"


@pytest.fixture(scope="module")
def tape() -> Tape:
    """Ops 10, 20, ..., 90 on two host threads and two queues of one device."""
    b = TapeBuilder()
    cpu, gpu = b.device(name="CPU", kind="host"), b.device(name="TAPE0", kind="test")
    h0 = b.queue(device=cpu, name="host0", kind="host_thread")
    b.queue(device=cpu, name="host1", kind="host_thread")
    q0, q1 = b.queue(device=gpu, name="TAPE0"), b.queue(device=gpu, name="TAPE0.2")
    pool = b.buffer(device=gpu, name="pool", bytes=4096)
    part = b.buffer(device=gpu, name="part", bytes=1024, parent=pool, parent_offset=64)
    named = b.access_set([{"buffer": pool, "offset": 0, "bytes": 4, "mode": "read", "name": "norm-0"}])
    bare = b.access_set([{"buffer": part, "offset": 0, "bytes": 4, "mode": "write"}])
    far = b.access_set([{"buffer": None, "offset": 0, "bytes": 4, "mode": "write"}])
    rows = [
        ("host", "inputs", h0, bare),
        ("copy", "embed", q0, named),
        ("compute", "#1 norm-0", q0, bare),
        ("compute", "#1 norm-0", q1, None),
        ("sync", None, h0, 0),
        ("copy", "embed", q1, far),
        ("copy", "embed", q0, named),
        ("compute", "#2 norm-1", q0, 0),
        ("free", None, h0, 0),
    ]
    for op, (kind, name, queue, accesses) in enumerate(rows, 1):
        extra = {"target_kind": "all"} if kind == "sync" else {}
        b.op(op=10 * op, kind=kind, name=name, queue=queue, issuer=h0, access_set=accesses, **extra)
    return b.build()


@pytest.mark.parametrize(
    ("anchor", "ops"),
    [
        ("every op", [10, 20, 30, 40, 50, 60, 70, 80, 90]),
        ("every copy", [20, 60, 70]),
        ("every copy of embed", [20, 60, 70]),
        ("every copy of emb", []),
        ("every op of emb*", [20, 60, 70]),
        ("first copy", [20]),
        ("2nd copy", [60]),
        ("3rd copy", [70]),
        ("4th copy", []),
        ("last copy", [70]),
        ("last memset", []),
        ("every copy on TAPE0", [20, 60, 70]),  # the device of both queues
        ("every copy on TAPE0.2", [60]),
        ("every op on CPU", [10, 50, 90]),
        ("every op on host?", [10, 50, 90]),
        ("every op on nothing", []),
        ("every compute of norm-0", [30, 40]),
        ('every compute of "#1 norm-0"', [30, 40]),
        ("every compute of norm-?", [30, 40, 80]),
        ('every compute of "#*"', [30, 40, 80]),
        ("every op touching norm-0", [20, 70]),
        ("every op touching part", [10, 30]),
        ("every op touching pool", [10, 30]),  # not those that name a tensor
        ("every op touching *", [10, 20, 30, 70]),
        ("last copy of embed touching norm-0 on TAPE0", [70]),
        ("first copy +1", [30]),
        ("first copy +2", [70]),
        ("first copy +3", [80]),
        ("first copy +4", []),
        ("every copy +1", [30, 80]),
        ("every op on host0 +1", [50, 90]),
        ("last op +1", []),
        ("#20", [20]),
        ("#21", []),
        ("#0", []),
        ("#999999999999999999", []),
    ],
)
def test_anchors(tape: Tape, anchor: str, ops: list[int]) -> None:
    matched = match_plan(parse_expression(f"{anchor} +5ns after_end"), tape)
    assert [10 * (r + 1) for r in matched.delays.row.tolist()] == ops
    assert set(matched.delays.ns.tolist()) <= {5}
    assert set(matched.delays.place.tolist()) <= {AFTER_END}
    assert matched.lines[0].count == len(ops)
    assert bool(matched.unmatched) == (not ops)


def test_a_litmus_row_goes_by_its_label() -> None:
    tape = parse("one | host | H | | M |\n2 | copy | q | M | D | | name=two\n").tape()
    assert match_plan(parse_expression("first op of one +1ns"), tape).delays.row.tolist() == [0]
    assert match_plan(parse_expression("first op of two +1ns"), tape).delays.row.tolist() == [1]
    assert not len(match_plan(parse_expression("first op of 2 +1ns"), tape).delays)
    assert match_plan(parse_expression("every op touching M +1ns"), tape).delays.row.tolist() == [0, 1]


def test_lines_are_counted_and_add_up(tape: Tape) -> None:
    text = (
        "tapedelay-plan 1\n\n#20 +1ns\nevery copy +2ns before_start\n#20 +4ns after_end\n#25 +9ns\n#10 +0ns\n"
    )
    matched = match_plan(parse_plan(text), tape)
    d = matched.delays
    assert list(zip(d.row.tolist(), d.place.tolist(), d.ns.tolist(), strict=True)) == [
        (1, BEFORE_START, 3), (1, AFTER_END, 4), (5, BEFORE_START, 2), (6, BEFORE_START, 2),
    ]  # fmt: skip
    assert [(m.line, m.count) for m in matched.lines] == [(3, 1), (4, 3), (5, 1), (6, 0), (7, 1)]
    assert [m.text for m in matched.unmatched] == ["#25 +9ns before_start"]
    assert not len(match_plan(parse_plan("tapedelay-plan 1\n"), tape).delays)


def test_what_adds_up_to_too_much_is_refused(tape: Tape, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapedelay.formats.delays.match.MAX_TOTAL_NS", 20 * MAX_NS)
    text = "tapedelay-plan 1\nevery op +3600s\nevery op +3600s\n#10 +3600s\n#10 +3600s\n"
    assert match_plan(parse_plan(text), tape).delays.ns.max() == 4 * MAX_NS
    with pytest.raises(PlanError, match=r"plan:7: .*add up"):
        match_plan(parse_plan(text + "seed=1 max=3600s every alloc\nseed=1 max=3600s first op\n"), tape)


def test_delays_fit_the_clock() -> None:
    assert MAX_TOTAL_NS < 2**62


def test_how_manieth(tape: Tape) -> None:
    anchors = Anchors(tape)
    (line,) = parse_expression("every copy of embed +1ns").lines
    assert not isinstance(line.anchor, int)
    assert [anchors.nth(line.anchor, row) for row in range(9)] == [0, 1, 0, 0, 0, 2, 3, 0, 0]


def test_random_delays_are_the_same_everywhere() -> None:
    # mix(mix(seed) + op) mod (max + 1), as DELAYS.md says, in whole numbers
    def mix(z: int) -> int:
        z = (z + 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    ops = [0, 1, 2, 75, 10**17]
    for seed, most in ((7, 200_000), (0, 1), (MAX_SEED, MAX_NS), (3, 0)):
        expected = [mix((mix(seed) + op) % 2**64) % (most + 1) for op in ops]
        assert random_ns(seed, ops, most).tolist() == expected
    assert random_ns(7, [0, 1, 2], 200_000).tolist() == [58938, 6275, 68079]
    for seed, most in ((-1, 1), (2**64, 1), (1, -1), (1, MAX_NS + 1)):
        with pytest.raises(ValueError, match="not from 0 to"):
            random_ns(seed, ops, most)


def test_random_delays_are_written_out_exactly() -> None:
    tape = load_tape(TRACES / "ggml-26040-bad.tape.zip")
    rule = match_plan(parse_expression("seed=7 max=200us"), tape).delays
    plan = random_plan(tape, 7, 200_000)
    exact = match_plan(parse_plan(print_plan(plan)), tape).delays
    direct = random_delays(tape.table("ops").column("op").to_numpy(), 7, 200_000)
    for other in (exact, direct):
        for a, b in ((rule.row, other.row), (rule.place, other.place), (rule.ns, other.ns)):
            assert np.array_equal(a, b)
    assert len(rule) > 1_000
    assert 90_000 < rule.ns.mean() < 110_000
    assert rule.ns.max() <= 200_000


def test_a_window_has_the_same_random_delays() -> None:
    tape = load_tape(TRACES / "ggml-26040-bad.tape.zip")
    part = window(tape, 70, 100)
    plan = parse_expression("seed=7 max=200us")
    whole, few = match_plan(plan, tape).delays, match_plan(plan, part).delays
    of = dict(
        zip(tape.table("ops").column("op").to_numpy()[whole.row].tolist(), whole.ns.tolist(), strict=True)
    )
    ids = part.table("ops").column("op").to_numpy()[few.row].tolist()
    assert [of[i] for i in ids] == few.ns.tolist()
    assert len(few) >= 29


def test_the_aimed_delay_of_the_issue() -> None:
    tape = load_tape(TRACES / "ggml-26040-bad.tape.zip")
    plan = parse_expression("first copy of model.input_embed on TAPE0 +3ms before_start")
    assert match_plan(plan, tape).delays.row.tolist() == [75]


def implied_tape() -> Tape:
    """Ops 0 to 9 on a host thread and a queue; what no engine issued stands between them."""
    b = TapeBuilder()
    cpu = b.device(name="CPU", kind="host")
    h0 = b.queue(device=cpu, name="host0", kind="host_thread")
    q0 = b.queue(device=b.device(name="TAPE0", kind="test"), name="TAPE0")
    for kind, queue, origin in (
        ("host", h0, "inferred"),
        ("sync", h0, "declared"),
        ("copy", q0, "observed"),
        ("sync", h0, "observed"),
        ("host", h0, "inferred"),
        ("copy", q0, "declared"),
        ("copy", q0, "observed"),
        ("sync", h0, "declared"),
        ("sync", h0, "observed"),
        ("copy", q0, "observed"),
    ):
        extra = {"target_kind": "all"} if kind == "sync" else {}
        b.op(kind=kind, queue=queue, issuer=h0, access_set=0, origin=origin, **extra)
    return b.build()


@pytest.mark.parametrize(
    ("anchor", "ops"),
    [
        ("first sync", [3]),
        ("2nd sync on host0", [8]),
        ("last sync", [8]),
        ("every sync", [1, 3, 7, 8]),  # counts nothing
        ("2nd copy", [6]),
        ("2nd copy +1", [9]),
        ("every copy +1", [6, 9]),
        ("first op", [2]),
        ("first sync +1", [8]),
        ("2nd host", [4]),
        ("2nd host +1", [8]),
    ],
)
def test_counts_leave_out_what_no_engine_issues(anchor: str, ops: list[int]) -> None:
    tape = implied_tape()
    matched = match_plan(parse_expression(f"{anchor} +1us"), tape)
    assert Anchors(tape).op_ids[matched.delays.row].tolist() == ops


def test_many_lines_of_few_patterns_look_for_each_pattern_once(monkeypatch: pytest.MonkeyPatch) -> None:
    b = TapeBuilder()
    h = b.queue(device=b.device(name="CPU", kind="host"), name="host0", kind="host_thread")
    q = b.queue(device=b.device(name="TAPE0", kind="test"), name="TAPE0")
    for i in range(6_000):
        b.op(kind="copy" if i % 3 else "compute", queue=q, issuer=h, access_set=0)
    tape = b.build()
    lines = [f"{n}th copy on TAPE0 +{n}ns before_start" for n in range(4, 4_001)]
    lines += [f"{n}th compute on TAPE0 +5ns after_end" for n in range(4, 2_001)]
    looked: list[str] = []
    real = Anchors._mask

    def mask(self: Anchors, what: str, wanted: Glob | str) -> Bools:
        looked.append(what)
        return real(self, what, wanted)

    monkeypatch.setattr(Anchors, "_mask", mask)
    matched = match_plan(parse_expression("\n".join(lines)), tape)
    assert len(looked) == 4
    assert not matched.unmatched
    assert matched.delays.row.tolist()[:3] == [5, 7, 8]
    assert matched.delays.ns.tolist()[:3] == [4, 5, 6]
    assert len(matched.delays) == len(lines)
