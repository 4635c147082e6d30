"""The reference order: the topological order that always takes the lowest ready unit; and what is stuck."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .contract import Contract

__all__ = ["Order", "Ordering", "Stuck", "components"]


@dataclass(frozen=True)
class Stuck:
    """What never becomes ready.

    Attributes
    ----------
    units : tuple of int
        Every unit that never starts.
    never : tuple of int
        Rows that wait for a signal that no row gives.
    cycles : tuple of tuple of int
        Rows that wait for each other, one entry per strongly connected component.
    """

    units: tuple[int, ...]
    never: tuple[int, ...]
    cycles: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Order:
    """The reference order.

    Attributes
    ----------
    schedule : list of int
        ``u`` where unit u starts, ``~u`` where a unit with children ends; a unit without children ends as it
        starts.
    stuck : Stuck
        What is not in the schedule.
    """

    schedule: list[int]
    stuck: Stuck


class Ordering:
    """Computes the reference order of a contract."""

    def __init__(self, contract: Contract) -> None:
        self.c = contract
        rows = contract.ops.rows
        self.first, self.targets = contract.by_source()
        self.missing: list[int] = np.bincount(contract.target, minlength=rows).tolist() if rows else []
        for unit, parents in contract.parents.items():
            self.missing[unit] += len(parents)
        self.any_targets: dict[int, list[int]] = {}
        self.any_missing: dict[int, int] = {}
        for unit, records in contract.any_of.items():
            self.missing[unit] += len(records)
            self.any_missing[unit] = len(records)
            for record in records:
                self.any_targets.setdefault(record, []).append(unit)
        for row in contract.never:
            self.missing[contract.unit[row]] += 1
        self.open = {u: len(c) for u, c in contract.children.items()}
        self.started = bytearray(rows)
        self.ended = bytearray(rows)
        self.heap: list[int] = [u for u in contract.units() if self.missing[u] == 0]
        self.schedule: list[int] = []

    def run(self) -> Order:
        """Return the order."""
        heap, children = self.heap, self.c.children
        while True:
            while heap:
                unit = heapq.heappop(heap)
                if self.started[unit]:
                    continue
                self.started[unit] = 1
                self.schedule.append(unit)
                if unit in children:
                    for child in children[unit]:
                        self._ready(child)
                else:
                    self._end(unit)
            if not self._fire_any():
                break
        return Order(self.schedule, self._stuck())

    def _ready(self, unit: int) -> None:
        self.missing[unit] -= 1
        if self.missing[unit] == 0:
            heapq.heappush(self.heap, unit)

    def _end(self, unit: int) -> None:
        first, targets, missing, heap = self.first, self.targets, self.missing, self.heap
        todo = [unit]
        while todo:
            at = todo.pop()
            self.ended[at] = 1
            for target in targets[first[at] : first[at + 1]]:
                missing[target] -= 1
                if missing[target] == 0:
                    heapq.heappush(heap, target)
            for target in self.any_targets.get(at, ()):
                self.any_missing[target] -= 1
                self._ready(target)
            for parent in self.c.parents.get(at, ()):
                self.open[parent] -= 1
                if self.open[parent] == 0:
                    self.schedule.append(~parent)
                    todo.append(parent)

    def _fire_any(self) -> bool:
        """Start the lowest wait-for-any that only lacks records which cannot come before it."""
        for unit, records in sorted(self.c.any_of.items()):
            lacking = self.any_missing[unit]
            if not self.started[unit] and lacking < len(records) and self.missing[unit] == lacking:
                self.missing[unit] = 0
                heapq.heappush(self.heap, unit)
                return True
        return False

    def _stuck(self) -> Stuck:
        stuck = tuple(u for u in self.c.units() if not self.started[u])
        if not stuck:
            return Stuck((), (), ())
        unit = self.c.unit
        never = tuple(r for r in self.c.never if not self.started[unit[r]])
        return Stuck(stuck, never, tuple(self._cycles()))

    def _cycles(self) -> Iterator[tuple[int, ...]]:
        """Yield the rows that wait for each other; a unit with children waits as start and as end."""
        contract, rows = self.c, self.c.ops.rows
        first, sources = contract.by_target()

        def end_of(unit: int) -> int:
            return rows + unit if unit in contract.children else unit

        def waits_for(node: int) -> list[int]:
            unit = node - rows if node >= rows else node
            if node >= rows:
                below = [end_of(c) for c in contract.children[unit] if not self.ended[c]]
                return below if self.started[unit] else [unit, *below]
            found = [end_of(s) for s in sources[first[unit] : first[unit + 1]] if not self.ended[s]]
            found += [p for p in contract.parents.get(unit, ()) if not self.started[p]]
            found += [end_of(s) for s in contract.any_of.get(unit, ()) if not self.ended[s]]
            return found

        nodes = [u for u in contract.units() if not self.started[u]]
        nodes += [rows + u for u in contract.children if not self.ended[u]]
        for component in components(nodes, waits_for):
            units = {n - rows if n >= rows else n for n in component}
            if len(component) > 1 or component[0] in waits_for(component[0]):
                yield tuple(sorted(r for u in units for r in contract.rows_of(u)))


def components(nodes: Iterable[int], next_of: Callable[[int], Iterable[int]]) -> Iterator[list[int]]:
    """Yield the strongly connected components (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    for root in nodes:
        if root in index:
            continue
        work = [(root, iter(next_of(root)))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(next_of(other))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        other = stack.pop()
                        on_stack.discard(other)
                        component.append(other)
                        if other == node:
                            break
                    yield component
