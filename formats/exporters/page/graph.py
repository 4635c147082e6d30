"""What comes before what, looked up op by op, by way of ops that a picture does not show."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy as np

from ...columns import Columns
from ...edges import RULES
from ..edges import Edges

__all__ = ["Graph"]

_SEARCHED = 20_000
"""Ops that are looked through on the way from one shown op to others."""


class Graph:
    """The edges of a tape, by row.

    The members of a collective count as one; what comes before an op comes before its parts, and its parts
    before what follows it.
    """

    def __init__(self, ops: Columns, edges: Edges) -> None:
        self._source, self._target, self._rule = edges
        self._by_target = np.argsort(self._target, kind="stable")
        self._first_in = np.searchsorted(self._target[self._by_target], np.arange(ops.rows + 1))
        self._by_source = np.argsort(self._source, kind="stable")
        self._first_out = np.searchsorted(self._source[self._by_source], np.arange(ops.rows + 1))
        self._ascends = bool((self._source < self._target).all())
        self._unit = _units(ops)
        self._queue = ops.ints("queue")
        ids, parent = ops.ints("op"), ops.ints("parent")
        self._parent: dict[int, int] = {}
        self._children: dict[int, list[int]] = {}
        for row in np.flatnonzero(parent >= 0).tolist():
            above = int(np.searchsorted(ids, parent[row]))
            self._parent[row] = above
            self._children.setdefault(above, []).append(row)

    def unit(self, row: int) -> int:
        """Return the row that stands for an op: the last member of a collective."""
        return self._unit.get(row, row)

    def before(self, row: int) -> list[tuple[int, str]]:
        """Return (row, rule) of what an op waits for."""
        found, seen = [], set()
        at: int | None = row
        while at is not None and at not in seen:
            seen.add(at)
            unit = self.unit(at)
            edges = self._by_target[self._first_in[unit] : self._first_in[unit + 1]]
            pairs = zip(self._source[edges].tolist(), self._rule[edges].tolist(), strict=True)
            found += [(s, RULES[r]) for s, r in pairs]
            at = self._parent.get(at)
        return found

    def after(self, row: int) -> list[tuple[int, str]]:
        """Return (row, rule) of what waits for an op."""
        unit = self.unit(row)
        edges = self._by_source[self._first_out[unit] : self._first_out[unit + 1]]
        pairs = zip(self._target[edges].tolist(), self._rule[edges].tolist(), strict=True)
        return [(t, RULES[r]) for t, r in pairs]

    def nearest_before(self, row: int, shown: Iterable[int]) -> dict[int, str]:
        """Return which of the shown ops come before one, and why, past ops that are not shown.

        Ops that only come before others of the result may be left out.
        """
        names: dict[int, int] = {}
        for other in shown:
            if self.unit(other) != self.unit(row):
                # of a collective the member that is on the queue of the op
                known = names.get(self.unit(other))
                if known is None or self._queue[other] == self._queue[row]:
                    names[self.unit(other)] = other
        lowest = min(names, default=0) if self._ascends else 0
        direct: dict[int, str] = {}
        for source, why in self.before(row):
            if direct.get(source, "program") == "program":
                direct[source] = why
        found: dict[int, str] = {}
        seen: set[int] = set()
        todo = [-s for s in direct]
        heapq.heapify(todo)
        while todo and len(seen) < _SEARCHED:
            at = -heapq.heappop(todo)
            if at in seen or at < lowest:
                continue
            seen.add(at)
            if at in names:
                found[names[at]] = direct.get(at, "through others")
                continue
            for source, _ in self.before(at):
                heapq.heappush(todo, -source)
            for child in self._children.get(at, ()):
                heapq.heappush(todo, -self.unit(child))
        return found


def _units(ops: Columns) -> dict[int, int]:
    """Return the last member of the collective of each row that is a member of one."""
    members = np.flatnonzero(ops.words("kind").isin(["coll"]))
    sync = ops.ints("sync")
    last = {int(sync[r]): int(r) for r in members if sync[r] >= 0}
    return {int(r): last[int(sync[r])] for r in members if sync[r] >= 0}
