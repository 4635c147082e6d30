"""Real memory: overlap and containment are those of the recorded ranges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapedelay.formats.errors import Unsupported
from tapedelay.replayer.layout import WORD_BYTES, Layout

Range = tuple[int, int, int]


def _ranges(low: int, high: int) -> st.SearchStrategy[list[Range]]:
    one = st.tuples(st.integers(0, 3), st.integers(low, high), st.integers(1, high))
    return st.lists(one, max_size=16).map(lambda found: [(r * 3, b, b + size) for r, b, size in found])


RANGES = st.one_of(_ranges(-5, 40), _ranges(0, 100_000))


def _layout(ranges: list[Range], **options: object) -> Layout:
    columns = list(zip(*ranges, strict=True)) if ranges else [(), (), ()]
    return Layout.of(*columns, **options)  # type: ignore[arg-type]


def _relation(a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int, int, int]:
    """How the borders of two ranges lie to each other."""
    return tuple(int(np.sign(x - y)) for x in a for y in b)  # type: ignore[return-value]


def _real(layout: Layout) -> list[tuple[int, int]]:
    return list(zip(layout.begin.tolist(), layout.end.tolist(), strict=True))


@given(RANGES, st.booleans())
def test_ranges_of_one_root_lie_to_each_other_as_recorded(ranges: list[Range], compact: bool) -> None:
    """Common bytes, containment, touching: all nine relations of two ranges."""
    layout = _layout(ranges, compact=compact)
    real = _real(layout)
    for (root, *a), x in zip(ranges, real, strict=True):
        for (other, *b), y in zip(ranges, real, strict=True):
            apart = x[1] <= y[0] or y[1] <= x[0]
            if root != other or a[1] <= b[0] or b[1] <= a[0]:
                assert apart
            else:
                assert _relation(x, y) == _relation((a[0], a[1]), (b[0], b[1]))


@given(RANGES)
def test_every_pattern_of_bytes_stays(ranges: list[Range]) -> None:
    """Whatever some ranges have in common and others leave out has bytes of its own, in both directions."""
    layout = _layout(ranges)

    def patterns(parts: list[Range]) -> set[frozenset[int]]:
        at = {(r, p) for r, b, e in parts for p in (b, e - 1, e)}
        found = {frozenset(i for i, (q, b, e) in enumerate(parts) if q == r and b <= p < e) for r, p in at}
        return found - {frozenset()}

    real = [(r, *x) for (r, _, _), x in zip(ranges, _real(layout), strict=True)]
    assert patterns(ranges) == patterns(real)


@given(RANGES, st.integers(1, 5))
def test_scaled_down_is_small_and_in_whole_words(ranges: list[Range], words: int) -> None:
    """No two segments share a word, none is longer than asked for."""
    layout = _layout(ranges, words=words)
    assert not (layout.begin % WORD_BYTES).any()
    assert not (layout.end % WORD_BYTES).any()
    assert layout.bytes <= 2 * len(ranges) * words * WORD_BYTES + 64 * len(layout.root)
    assert layout.bytes % 64 == 0


@given(RANGES)
def test_as_recorded_keeps_lengths_and_places_in_a_word(ranges: list[Range]) -> None:
    """A byte keeps its place in its word, a range its length, two ranges their distance."""
    layout = _layout(ranges, compact=False)
    for (root, begin, end), (x, y) in zip(ranges, _real(layout), strict=True):
        assert (x % WORD_BYTES, y - x) == (begin % WORD_BYTES, end - begin)
        at = layout.place(root)
        assert layout.root_begin[at] <= x < y <= layout.root_end[at] <= layout.bytes


@given(RANGES, st.booleans())
def test_back_to_recorded_bytes(ranges: list[Range], compact: bool) -> None:
    """Real bytes are told as recorded ones."""
    layout = _layout(ranges, compact=compact)
    for (root, begin, end), (x, y) in zip(ranges, _real(layout), strict=True):
        assert layout.recorded(root, x, y) == (begin, end)
        inside = layout.recorded(root, x, x + 1)
        assert begin == inside[0] < inside[1] <= end


@given(RANGES)
def test_roots_do_not_meet(ranges: list[Range]) -> None:
    """Each root has memory of its own."""
    layout = _layout(ranges)
    assert layout.root.tolist() == sorted({r for r, _, _ in ranges})
    assert (layout.root_begin % 64 == 0).all()
    assert (layout.root_end[:-1] <= layout.root_begin[1:]).all()


def test_too_much_memory_is_refused_with_what_it_needs() -> None:
    """As recorded a terabyte is refused; scaled down it is a few words."""
    ranges = [(0, 0, 1 << 40), (0, 5, 1 << 39)]
    with pytest.raises(Unsupported, match=r"1,099,511,627,840 bytes"):
        _layout(ranges, compact=False, where="some.tape")
    assert _layout(ranges).bytes <= 128
    with pytest.raises(Unsupported, match="scaled down"):
        _layout(ranges, limit_bytes=100)
    with pytest.raises(Unsupported):
        _layout([(0, -(1 << 62), 1 << 62)], compact=False)


@pytest.mark.parametrize("ranges", [[(0, 4, 4)], [(0, 5, 4)]])
def test_empty_ranges_are_a_fault_of_the_caller(ranges: list[Range]) -> None:
    """A range has bytes."""
    with pytest.raises(ValueError, match="empty"):
        _layout(ranges)
