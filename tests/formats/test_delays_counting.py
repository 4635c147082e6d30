"""Op ids of a tape as patterns that count, and those that no engine could follow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.delays import Line, Plan, counting_plan, match_plan, print_line, random_plan
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape
from tapedelay.formats.window import window_of_ops

TRACES = Path(__file__).resolve().parents[2] / "traces"


@pytest.fixture(scope="module")
def recorded() -> Tape:
    return load_tape(TRACES / "ggml-26040-bad.tape.zip")


def test_the_same_delays_by_counting(recorded: Tape) -> None:
    exact = random_plan(recorded, 1, 200_000)
    plan, by_id = counting_plan(exact, recorded)
    assert len(plan.lines) == len(exact.lines)
    assert by_id == sum(isinstance(n.anchor, int) for n in plan.lines)
    assert 0 < by_id < len(plan.lines) / 20
    kinds = recorded.table("ops").column("kind").to_pylist()
    origins = recorded.table("ops").column("origin").to_pylist()
    for line in plan.lines:
        if isinstance(line.anchor, int):
            assert origins[line.anchor] != "observed" or kinds[line.anchor] in ("alloc", "mark")
            assert line.note
    before, after = match_plan(exact, recorded).delays, match_plan(plan, recorded).delays
    for column in ("row", "place", "ns"):
        assert (getattr(before, column) == getattr(after, column)).all()


def test_counts_of_a_window_are_others(recorded: Tape) -> None:
    part = window_of_ops(recorded, 70, 141)
    plan, by_id = counting_plan(Plan((Line(75, 5),)), part)
    assert by_id == 1
    assert plan.lines[0].anchor == 75
    assert "window" in plan.lines[0].note
    lossy = Tape(
        replace(recorded.manifest, lost=3, complete=False),
        {n: recorded.table(n) for n in recorded.present},
    )
    assert "lost" in counting_plan(Plan((Line(75, 5),)), lossy)[0].lines[0].note
    assert print_line(counting_plan(Plan((Line(75, 5),)), recorded)[0].lines[0]).endswith(
        " copy on TAPE0 +5ns before_start"
    )


@pytest.mark.parametrize(
    ("name", "held"), [("split copy", False), ("p1.split copy.2", False), ("event", True)]
)
def test_the_event_of_a_copy_between_queues_is_no_op_that_can_be_held(name: str, held: bool) -> None:
    b = TapeBuilder()
    d = b.device(name="gpu", kind="gpu")
    h = b.queue(device=d, name="host0", kind="host_thread")
    q = b.queue(device=d, name="gpu")
    sync = b.sync(name=name, kind="other")
    b.op(kind="record", queue=q, issuer=h, sync=sync)
    b.op(kind="copy", queue=q, issuer=h)
    plan, by_id = counting_plan(Plan((Line(0, 5), Line(1, 5))), b.build())
    assert by_id == (not held)
    assert print_line(plan.lines[0]) == ("first record on gpu" if held else "#0") + " +5ns before_start"
