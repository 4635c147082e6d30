"""Lanes for ops that overlap: on one lane, an op follows another or lies inside of its parent."""

from __future__ import annotations

import heapq

__all__ = ["Lanes"]


class Lanes:
    """Gives the ops of one track their lanes; they come in the order in which they start.

    An op takes the lowest lane where nothing goes on any more, or the lane of its parent where it lies inside
    of what goes on there.
    """

    def __init__(self) -> None:
        self.count = 0
        self._free: list[int] = []
        self._busy: list[tuple[int, int]] = []
        self._open: dict[int, list[tuple[int, int]]] = {}
        self._lane_of: dict[int, int] = {}

    def place(self, op: int, parent: int, start: int, end: int) -> int:
        """Return the lane of an op.

        Parameters
        ----------
        op, parent : int
            Any numbers that tell ops apart; `parent` may be one that never came.
        start, end : int
            When it begins and ends, ns; the starts do not decrease.
        """
        while self._busy and self._busy[0][0] <= start:
            lane = heapq.heappop(self._busy)[1]
            for ended, _ in self._open.pop(lane):
                self._lane_of.pop(ended, None)
            heapq.heappush(self._free, lane)
        lane = self._lane_of.get(parent, -1)
        if lane >= 0 and self._fits(lane, parent, start, end):
            self._open[lane].append((op, end))
        else:
            if self._free:
                lane = heapq.heappop(self._free)
            else:
                lane = self.count
                self.count += 1
            self._open[lane] = [(op, end)]
            heapq.heappush(self._busy, (end, lane))
        self._lane_of[op] = lane
        return lane

    def _fits(self, lane: int, parent: int, start: int, end: int) -> bool:
        stack = self._open[lane]
        while len(stack) > 1 and stack[-1][1] <= start:
            self._lane_of.pop(stack.pop()[0], None)
        return stack[-1][0] == parent and end <= stack[-1][1]
