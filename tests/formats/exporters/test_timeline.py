"""When ops begin and end in a picture."""

from __future__ import annotations

import numpy as np
import pytest

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.exporters.timeline import OP_NS, timeline
from tapedelay.formats.litmus import parse
from tapedelay.formats.tape import Tape


def times_of(tape: Tape) -> list[tuple[int, int, int]]:
    times = timeline(tape)
    return list(zip(times.issue_ns.tolist(), times.start_ns.tolist(), times.end_ns.tolist(), strict=True))


def test_recorded_times_count_from_the_first() -> None:
    b = TapeBuilder()
    host, gpu = b.device(name="host", kind="host"), b.device(name="gpu", kind="gpu")
    h, q = b.queue(device=host, name="H", kind="host_thread"), b.queue(device=gpu, name="q")
    common = {"queue": q, "issuer": h, "access_set": 0}
    b.op(kind="kernel", issue_ns=1000, start_after_issue_ns=50, duration_ns=200, **common)
    b.op(kind="kernel", issue_ns=1100, start_after_issue_ns=-120, duration_ns=10, **common)
    b.op(kind="kernel", **common)  # nothing known
    b.op(kind="kernel", issue_ns=1300, **common)  # issued, as a real GPU tells it
    tape = b.build()
    times = timeline(tape)
    assert times_of(tape) == [(20, 70, 270), (120, 0, 10), (120, 120, 120), (320, 320, 320)]
    assert times.recorded
    assert times.origin_ns == 980
    assert times.lasting.tolist() == [True, True, False, False]
    assert times.timed.tolist() == [True, True, False, True]


def test_without_times_the_edges_say_when() -> None:
    text = """
1 | host | H | | M
2 | copy | s0 | M | D
3 | record | s0 | | | e
4 | kernel | s1 | | X
5 | wait | s1 | | | e
6 | kernel | s1 | D | Y | | dur=250
7 | sync | H | | | s1
8 | host | H | Y | |
"""
    us = OP_NS
    assert times_of(parse(text).tape()) == [
        (0, 0, us), (us, us, 2 * us), (us, 2 * us, 2 * us), (us, us, 2 * us), (us, 2 * us, 2 * us),
        (us, 2 * us, 2 * us + 250), (2 * us + 250,) * 3, (2 * us + 250, 2 * us + 250, 3 * us + 250),
    ]  # fmt: skip
    assert not timeline(parse(text).tape()).recorded


def test_a_whole_takes_as_long_as_its_parts_and_members_start_together() -> None:
    text = """
1 | compute | s0 | | |
2 | kernel | s1 | | A | | parent=1
3 | kernel | s1 | | A | | parent=1
4 | coll | s0 | | | c
5 | coll | s2 | | | c
"""
    us = OP_NS
    spans = [t[1:] for t in times_of(parse(text).tape())]
    assert spans == [(0, 2 * us), (0, us), (us, 2 * us), (2 * us, 3 * us), (2 * us, 3 * us)]


def test_what_never_starts_stands_at_the_end() -> None:
    text = "1 | kernel | s0 | | A |\n2 | semwait | s1 | | | s\n3 | kernel | s1 | | B |"
    times = timeline(parse(text).tape())
    assert times.start_ns.tolist() == [0, OP_NS, OP_NS]
    assert times.lasting.tolist() == [True, False, True]


@pytest.mark.parametrize("text", ["", "1 | host | H | | A |"])
def test_small_tapes(text: str) -> None:
    times = timeline(parse(text).tape())
    assert np.all(times.end_ns >= times.start_ns)
