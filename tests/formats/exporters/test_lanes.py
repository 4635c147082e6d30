"""No two ops of one lane overlap, unless one is the other's parent."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tapedelay.formats.exporters.lanes import Lanes


def test_one_after_the_other_is_one_lane() -> None:
    lanes = Lanes()
    assert [lanes.place(i, -1, 10 * i, 10 * i + 10) for i in range(5)] == [0] * 5
    assert lanes.count == 1


def test_what_overlaps_lies_apart_and_lanes_are_used_again() -> None:
    lanes = Lanes()
    placed = [
        lanes.place(i, -1, *span) for i, span in enumerate([(0, 10), (5, 15), (9, 12), (10, 20), (15, 16)])
    ]
    assert placed == [0, 1, 2, 0, 1]


def test_a_part_lies_inside_its_whole() -> None:
    lanes = Lanes()
    assert lanes.place(1, -1, 0, 100) == 0
    assert lanes.place(2, 1, 0, 40) == 0
    assert lanes.place(3, 2, 10, 20) == 0
    assert lanes.place(4, 1, 30, 60) == 1  # its sibling goes on
    assert lanes.place(5, 1, 60, 100) == 0
    assert lanes.place(6, 1, 99, 101) == 1  # longer than its whole
    assert lanes.place(7, -1, 99, 100) == 2


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=60), st.integers(0, 5))
def test_never_two_at_once(spans: list[tuple[int, int]], seed: int) -> None:
    lanes = Lanes()
    chance = random.Random(seed)
    spans = sorted((start, start + size) for start, size in spans)
    taken: list[tuple[int, int, int, int]] = []
    parents: dict[int, int] = {}
    for op, (start, end) in enumerate(spans):
        parent = parents[op] = chance.randrange(op) if op and chance.random() < 0.5 else -1
        lane = lanes.place(op, parent, start, end)
        for other, a, b, its in taken:
            if its == lane and a < end and start < b:
                above = op
                while above not in (other, -1):
                    above = parents[above]
                assert above == other
                assert (a, b) != (start, end) or a <= start
                assert a <= start <= end <= b
        taken.append((op, start, end, lane))
    assert lanes.count <= len(spans)
