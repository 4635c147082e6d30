"""Races: every access against the latest conflicting unordered one per other queue and mode.

Accesses are kept per memory, *lane* and mode. A lane is a set of ops of one queue each of which ends before
the next starts, so that of a lane only the latest overlapping access can matter: if it comes before the op at
hand, all earlier ones do. A lane is a chain (see `clocks`); an op with children on an in-order queue overlaps
them and stands in a lane of its own depth.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from ...formats.edges import Contract
from .clocks import Chains, Clock
from .latest import LatestMap
from .ranges import WRITES, Access, Ranges, conflict, hazard

__all__ = ["Lanes", "Pair", "Races", "Ranks"]

_RECENT = 64
"""Distinct ranges kept in a plain table before the older half moves to the map."""


@dataclass(slots=True)
class Pair:
    """Two unordered accesses of rows `first` and `second` to one memory."""

    first: int
    second: int
    fault: str
    root: int
    begin: int
    end: int
    definite: bool
    assumed: bool
    first_access: int
    second_access: int


class Ranks:
    """Place of each row in the reference order, counted over rows."""

    def __init__(self, rows: int) -> None:
        self.rank = [-1] * rows
        self.rows: list[int] = []

    def add(self, row: int) -> None:
        """Note that a row starts."""
        self.rank[row] = len(self.rows)
        self.rows.append(row)


class Lanes:
    """Lane of each op, see the module's docstring."""

    def __init__(self, contract: Contract, chains: Chains) -> None:
        self._contract = contract
        self._chain = chains.chain
        self._depth: dict[int, int] = {}

    def start(self, unit: int) -> None:
        """Note that a unit starts, after those that it is part of."""
        if unit in self._contract.children:
            parents = self._contract.parents.get(unit, ())
            self._depth[unit] = 1 + max((self._depth[p] for p in parents), default=-1)

    def of(self, unit: int, row: int) -> Hashable:
        """Return the lane of a row of a unit that has started."""
        depth = self._depth.get(unit)
        return self._chain[row] if depth is None else (self._chain[row], depth)


class _Trace:
    """Accesses of one lane and mode to one memory, the latest per byte."""

    __slots__ = ("chain", "last", "mode", "old", "queue", "recent")

    def __init__(self, queue: int, chain: int, mode: str) -> None:
        self.queue = queue
        self.chain = chain
        self.mode = mode
        self.last = -1
        self.recent: dict[tuple[int, int], int] = {}
        self.old: LatestMap | None = None

    def add(self, begin: int, end: int, row: int, rank: list[int]) -> None:
        recent = self.recent
        span = (begin, end)
        if span in recent:
            del recent[span]
        recent[span] = row
        self.last = row
        if len(recent) > _RECENT:
            if self.old is None:
                self.old = LatestMap()
            for span in list(recent)[: _RECENT // 2]:
                self.old.cover(*span, rank[recent.pop(span)])

    def latest(self, begin: int, end: int, known: int, position: list[int], rows: list[int]) -> int:
        """Return the latest row that overlaps and is not among the first `known` of its chain, or -1."""
        for (low, high), row in reversed(self.recent.items()):
            if position[row] <= known:
                return -1
            if low < end and begin < high:
                return row
        old = self.old
        if old is not None and position[rows[old.top]] > known:
            rank = old.latest(begin, end)
            if rank >= 0 and position[rows[rank]] > known:
                return rows[rank]
        return -1


class _Memory:
    """The traces of one memory."""

    __slots__ = ("all", "found", "writes")

    def __init__(self) -> None:
        self.found: dict[tuple[Hashable, str], _Trace] = {}
        self.all: list[_Trace] = []
        self.writes: list[_Trace] = []

    def trace(self, lane: Hashable, queue: int, chain: int, mode: str) -> _Trace:
        key = (lane, mode)
        trace = self.found.get(key)
        if trace is None:
            trace = self.found[key] = _Trace(queue, chain, mode)
            self.all.append(trace)
            if mode in WRITES:
                self.writes.append(trace)
        return trace


class Races:
    """Finds races; `visit` is called for each unit as it starts, in reference order."""

    def __init__(
        self, contract: Contract, ranges: Ranges, chains: Chains, lanes: Lanes, ranks: Ranks
    ) -> None:
        self._contract = contract
        self._ranges = ranges
        self._chains = chains
        self._lanes = lanes
        self._ranks = ranks
        self._memory: dict[int, _Memory] = {}
        self.seen = 0

    def visit(
        self, unit: int, rows: tuple[int, ...] | list[int], clock: Clock, hopeful: Clock | None
    ) -> list[Pair]:
        """Return the races of a unit with all before it, then remember its accesses."""
        found: list[Pair] = []
        touched = False
        for row in rows:
            accesses = self._ranges.of(row)
            if accesses:
                touched = True
                self.seen += len(accesses)
                for access in accesses:
                    candidates = self._candidates(unit, access, clock)
                    if candidates:
                        found.extend(self._pairs(candidates, row, access, hopeful))
        if touched:
            self._remember(unit, rows)
        return _merged(found) if len(found) > 1 else found

    def _candidates(self, unit: int, access: Access, clock: Clock) -> dict[tuple[int, str], int] | None:
        memory = self._memory.get(access.root)
        if memory is None:
            return None
        position, rank, rows = self._chains.position, self._ranks.rank, self._ranks.rows
        mode = access.mode
        best: dict[tuple[int, str], int] | None = None
        for trace in memory.all if mode != "read" else memory.writes:
            known = clock[trace.chain]
            if position[trace.last] <= known or (mode == "reduce" and trace.mode == "reduce"):
                continue
            if access.spans is None:
                row = trace.latest(access.begin, access.end, known, position, rows)
            else:
                row = max(
                    (trace.latest(b, e, known, position, rows) for b, e in access.spans),
                    key=lambda r: rank[r] if r >= 0 else -1,
                )
            if row < 0 or self._kin(row, unit):
                continue
            if best is None:
                best = {}
            key = (trace.queue, trace.mode)
            if key not in best or rank[best[key]] < rank[row]:
                best[key] = row
        return best

    def _kin(self, row: int, unit: int) -> bool:
        """Whether `unit` is part of the op: the two never race, and what is older in its lane is ordered."""
        parents = self._contract.parents
        return unit in parents and self._contract.is_ancestor(self._contract.unit[row], unit)

    def _pairs(
        self, candidates: dict[tuple[int, str], int], row: int, access: Access, hopeful: Clock | None
    ) -> Iterator[Pair]:
        origin, chains = self._contract.ops.origin, self._chains
        for (_, mode), first in candidates.items():
            known = hopeful is not None and hopeful[chains.chain[first]] >= chains.position[first]
            sure = origin[row] != "inferred" and origin[first] != "inferred" and access.observed
            for other in self._ranges.of(first):
                if other.mode != mode or not conflict(mode, access.mode):
                    continue
                common = other.overlap(access)
                if common is not None:
                    definite = sure and other.observed
                    yield Pair(
                        first, row, hazard(mode, access.mode), access.root, *common,
                        definite, known, other.row, access.row,
                    )  # fmt: skip

    def _remember(self, unit: int, rows: tuple[int, ...] | list[int]) -> None:
        queue, chain, rank = self._contract.ops.queue, self._chains.chain, self._ranks.rank
        for row in rows:
            lane = self._lanes.of(unit, row)
            for access in self._ranges.of(row):
                memory = self._memory.get(access.root)
                if memory is None:
                    memory = self._memory[access.root] = _Memory()
                trace = memory.trace(lane, queue[row], chain[row], access.mode)
                if access.spans is None:
                    trace.add(access.begin, access.end, row, rank)
                else:
                    for begin, end in access.spans:
                        trace.add(begin, end, row, rank)


def _merged(pairs: list[Pair]) -> list[Pair]:
    """Join what is one pair of ops, hazard and memory: the hull of its bytes, definite where one part is."""
    found: dict[tuple[int, int, str, int], Pair] = {}
    for pair in pairs:
        known = found.setdefault((pair.first, pair.second, pair.fault, pair.root), pair)
        if known is not pair:
            known.begin = min(known.begin, pair.begin)
            known.end = max(known.end, pair.end)
            if pair.definite and not known.definite:
                known.definite = True
                known.first_access, known.second_access = pair.first_access, pair.second_access
    return list(found.values())
