"""A map from bytes to the latest op that touched them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

__all__ = ["LatestMap"]

_BLOCK = 256


class LatestMap:
    """Disjoint ranges with a rank each; ranks only grow, so that a new range always covers what it overlaps.

    The ranges stand in blocks, each with its highest rank: a question over many ranges looks at blocks.
    """

    def __init__(self) -> None:
        self.top = -1
        self._heads: list[int] = []
        self._blocks: list[tuple[list[int], list[int], list[int]]] = []
        self._tops: list[int] = []

    def __len__(self) -> int:
        return sum(len(b[0]) for b in self._blocks)

    def cover(self, begin: int, end: int, rank: int) -> None:
        """Give the bytes ``[begin, end)`` to `rank`, which is at least as high as all before."""
        self.top = rank
        if not self._blocks:
            self._blocks.append(([begin], [end], [rank]))
            self._heads.append(begin)
            self._tops.append(rank)
            return
        first = max(bisect_right(self._heads, begin) - 1, 0)
        last = max(bisect_left(self._heads, end) - 1, first)
        if last > first:
            self._merge(first, last, begin, end)
        begins, ends, ranks = self._blocks[first]
        lo = bisect_right(ends, begin)
        hi = bisect_left(begins, end)
        new_begins, new_ends, new_ranks = [begin], [end], [rank]
        if lo < hi:
            if begins[lo] < begin:
                new_begins.insert(0, begins[lo])
                new_ends.insert(0, begin)
                new_ranks.insert(0, ranks[lo])
            if ends[hi - 1] > end:
                new_begins.append(end)
                new_ends.append(ends[hi - 1])
                new_ranks.append(ranks[hi - 1])
        begins[lo:hi], ends[lo:hi], ranks[lo:hi] = new_begins, new_ends, new_ranks
        self._heads[first] = begins[0]
        self._tops[first] = rank
        if len(begins) > 2 * _BLOCK:
            self._divide(first)

    def _merge(self, first: int, last: int, begin: int, end: int) -> None:
        """Join the blocks that a range touches; what lies wholly inside of it is dropped on the way."""
        begins, ends, ranks = self._blocks[first]
        for other in range(first + 1, last):
            assert self._blocks[other][0][0] >= begin
            assert self._blocks[other][1][-1] <= end
        for part, tail in zip((begins, ends, ranks), self._blocks[last], strict=True):
            part.extend(tail)
        del self._blocks[first + 1 : last + 1]
        del self._heads[first + 1 : last + 1]
        del self._tops[first + 1 : last + 1]

    def _divide(self, at: int) -> None:
        begins, ends, ranks = self._blocks[at]
        half = len(begins) // 2
        self._blocks[at : at + 1] = [
            (begins[:half], ends[:half], ranks[:half]),
            (begins[half:], ends[half:], ranks[half:]),
        ]
        self._heads.insert(at + 1, begins[half])
        self._tops[at : at + 1] = [max(ranks[:half]), max(ranks[half:])]

    def latest_of(self, spans: Iterable[tuple[int, int]]) -> int:
        """Return the highest rank in any of the ranges, or -1."""
        best = -1
        for begin, end in spans:
            best = max(best, self.latest(begin, end))
            if best == self.top:
                break
        return best

    def latest(self, begin: int, end: int) -> int:
        """Return the highest rank in ``[begin, end)``, or -1."""
        best = -1
        first = max(bisect_right(self._heads, begin) - 1, 0)
        for at in range(first, len(self._blocks)):
            if self._heads[at] >= end:
                break
            if self._tops[at] <= best:
                continue
            begins, ends, ranks = self._blocks[at]
            if begin <= begins[0] and ends[-1] <= end:
                best = self._tops[at]
                continue
            lo, hi = bisect_right(ends, begin), bisect_left(begins, end)
            if lo < hi:
                best = max(best, max(ranks[lo:hi]))
        return best
