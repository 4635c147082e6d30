"""The map from bytes to the latest op, against a plain array."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tapedelay.replayer._core import LatestMap

SIZE = 60
SPAN = st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(sorted).filter(lambda s: s[0] < s[1])


@given(st.lists(SPAN, max_size=60), st.lists(SPAN, min_size=1, max_size=20))
def test_it_is_an_array_of_bytes(covers: list[list[int]], questions: list[list[int]]) -> None:
    plain, found = [-1] * SIZE, LatestMap()
    for rank, (begin, end) in enumerate(covers):
        found.cover(begin, end, rank)
        plain[begin:end] = [rank] * (end - begin)
    for begin, end in questions:
        assert found.latest(begin, end) == max(plain[begin:end])
    assert found.top == len(covers) - 1


def test_it_is_the_same_over_many_blocks() -> None:
    size = 20 * 256
    rng = random.Random(3)
    plain, found = [-1] * size, LatestMap()
    for rank in range(size):
        begin = rng.randrange(size)
        end = min(size, begin + rng.choice((1, 1, 1, 2, 40, 900) if rank % 100 == 0 else (1, 1, 2)))
        found.cover(begin, end, rank)
        plain[begin:end] = [rank] * (end - begin)
        if rank % 7 == 0:
            begin = rng.randrange(size)
            end = min(size, begin + rng.choice((1, 10, size)))
            assert found.latest(begin, end) == max(plain[begin:end])
    runs = 1 + sum(a != b for a, b in pairwise(plain))
    assert found.size <= runs + size // 10, "ranges that are covered wholly are gone"
    assert found.blocks > 2
