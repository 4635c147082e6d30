"""Races: every access against the latest conflicting unordered ones per other queue and mode.

Accesses are kept per memory, *lane*, mode and certainty. A lane is a set of ops of one queue each of which
ends before the next starts, so that of a lane only the latest overlapping access can matter: if it comes
before the op at hand, all earlier ones do. A lane is a chain (see `clocks`); an op with children on an
in-order queue overlaps them and stands in a lane of its own depth.

`thinning` says which of the pairs are reported. What a baseline accepts is kept apart throughout, so that it
hides nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from ...formats.edges import Contract
from ...formats.plain import NULL
from .accepting import Accepting
from .clocks import Chains, Clock
from .latest import LatestMap
from .ranges import WRITES, Access, Ranges, Span, hazard
from .thinning import POSSIBLE, SURE, UNKNOWN, Thinned

__all__ = ["Lanes", "Pair", "Races", "Ranks"]

_RECENT = 64
"""Distinct ranges kept in a plain table before the older half moves to the map."""

_PARTS = 1024
"""Access sets whose ranges are kept sorted."""


@dataclass(slots=True)
class Pair:
    """Two unordered accesses of rows `first` and `second` to one memory.

    `accepted` has what the two are for the baseline where that accepts them, else `NULL`. `hull`: not all
    bytes from `begin` to `end` need be common ones.
    """

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
    accepted: int | tuple[int, int]
    hull: bool


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
    """Accesses of one lane, mode and certainty to one memory, the latest per byte."""

    __slots__ = ("chain", "last", "mode", "observed", "old", "queue", "recent", "sort")

    def __init__(self, queue: int, chain: int, mode: str, observed: bool, sort: int) -> None:
        self.queue = queue
        self.chain = chain
        self.mode = mode
        self.observed = observed
        self.sort = sort
        self.last = -1
        self.recent: dict[Span, int] = {}
        self.old: LatestMap | None = None

    def add(self, span: Span, row: int, rank: list[int]) -> None:
        recent = self.recent
        if span in recent:
            del recent[span]
        recent[span] = row
        self.last = row
        if len(recent) > _RECENT:
            self._age(_RECENT // 2, rank)

    def add_many(self, spans: Sequence[Span], row: int, rank: list[int]) -> None:
        if len(spans) < _RECENT // 2:
            for span in spans:
                self.add(span, row, rank)
            return
        old = self._age(len(self.recent), rank)
        for begin, end in spans:
            old.cover(begin, end, rank[row])
        self.last = row

    def _age(self, count: int, rank: list[int]) -> LatestMap:
        """Move the oldest ranges from the table to the map."""
        if self.old is None:
            self.old = LatestMap()
        for span in list(self.recent)[:count]:
            self.old.cover(*span, rank[self.recent.pop(span)])
        return self.old

    def latest(self, access: Access, known: int, position: list[int], rows: list[int]) -> int:
        """Return the latest row that overlaps and is not among the first `known` of its chain, or -1."""
        begin, end, spans = access.begin, access.end, access.spans
        for (low, high), row in reversed(self.recent.items()):
            if position[row] <= known:
                return -1
            if low < end and begin < high and (spans is None or _touches(spans, low, high)):
                return row
        old = self.old
        if old is not None and position[rows[old.top]] > known:
            rank = old.latest(begin, end) if spans is None else old.latest_of(spans)
            if rank >= 0 and position[rows[rank]] > known:
                return rows[rank]
        return -1


def _touches(spans: Sequence[Span], begin: int, end: int) -> bool:
    """Whether one of the spans, which are disjoint and ascend, overlaps ``[begin, end)``."""
    at = bisect_right(spans, begin, key=_end)
    return at < len(spans) and spans[at][0] < end


def _end(span: Span) -> int:
    return span[1]


class _Memory:
    """The traces of one memory."""

    __slots__ = ("all", "found", "writes")

    def __init__(self) -> None:
        self.found: dict[tuple[Hashable, str, bool, int], _Trace] = {}
        self.all: list[_Trace] = []
        self.writes: list[_Trace] = []

    def trace(self, lane: Hashable, queue: int, chain: int, mode: str, observed: bool, sort: int) -> _Trace:
        key = (lane, mode, observed, sort)
        trace = self.found.get(key)
        if trace is None:
            trace = self.found[key] = _Trace(queue, chain, mode, observed, sort)
            self.all.append(trace)
            if mode in WRITES:
                self.writes.append(trace)
        return trace


class _Part:
    """Ranges of one op in one memory, mode and certainty; says what overlaps an access without a walk."""

    __slots__ = ("_begins", "_ends", "_lows", "_tops", "observed", "sort")

    def __init__(self, observed: bool, sort: int, ranges: list[tuple[int, int, int]]) -> None:
        self.observed = observed
        self.sort = sort
        ranges.sort(key=lambda r: r[0])
        self._begins = [r[0] for r in ranges]
        # Of those that begin no later: the greatest end.
        self._tops = list(accumulate((r[1] for r in ranges), max))
        ranges.sort(key=lambda r: r[1])
        self._ends = [r[1] for r in ranges]
        # Of those that end no earlier: the least begin, and the first row of `accesses` that has it.
        self._lows = list(accumulate(((r[0], r[2]) for r in reversed(ranges)), min))[::-1]

    def overlap(self, access: Access) -> tuple[int, int, int, bool] | None:
        """Return the hull of the common bytes, the row of `accesses` that has the first, and whether there
        may be gaps; or None.
        """
        spans = access.ranges()
        first = next((found for s in spans if (found := self._common(*s)) is not None), None)
        if first is None or len(spans) == 1:
            return first
        last = next(found for s in reversed(spans) if (found := self._common(*s)) is not None)
        return first[0], last[1], first[2], True

    def _common(self, begin: int, end: int) -> tuple[int, int, int, bool] | None:
        at = bisect_left(self._begins, end) - 1
        if at < 0 or self._tops[at] <= begin:
            return None
        before = bisect_right(self._ends, begin)
        low, row = self._lows[before]
        return max(begin, low), min(end, self._tops[at]), row, at > before


class Races:
    """Finds races; `visit` is called for each unit as it starts, in reference order."""

    def __init__(
        self,
        contract: Contract,
        ranges: Ranges,
        chains: Chains,
        lanes: Lanes,
        ranks: Ranks,
        accepting: Accepting | None = None,
    ) -> None:
        self._contract = contract
        self._ranges = ranges
        self._chains = chains
        self._lanes = lanes
        self._ranks = ranks
        self._accepting = accepting
        self._memory: dict[int, _Memory] = {}
        self._parts_of: dict[int, dict[tuple[int, str], list[_Part]]] = {}
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
                    candidates = self._candidates(unit, row, access, clock, hopeful)
                    if candidates is not None:
                        found.extend(self._pairs(candidates, row, access))
        if touched:
            self._remember(unit, rows)
        if len(found) < 2:
            return found
        rank = self._ranks.rank
        return sorted(_merged(found), key=lambda p: rank[p.first])

    def _candidates(
        self, unit: int, row: int, access: Access, clock: Clock, hopeful: Clock | None
    ) -> Thinned[tuple[int, str, int], int] | None:
        memory = self._memory.get(access.root)
        if memory is None:
            return None
        position, rank, rows = self._chains.position, self._ranks.rank, self._ranks.rows
        mode = access.mode
        found: Thinned[tuple[int, str, int], int] | None = None
        for trace in reversed(memory.all if mode != "read" else memory.writes):
            known = clock[trace.chain]
            if position[trace.last] <= known or (mode == "reduce" and trace.mode == "reduce"):
                continue
            if found is not None and found.sure((trace.queue, trace.mode, NULL)) > rank[trace.last]:
                continue
            first = trace.latest(access, known, position, rows)
            if first < 0 or self._kin(first, unit):
                continue
            if found is None:
                found = Thinned()
                sure = access.observed and self._contract.ops.origin[row] != "inferred"
                accepting = self._accepting
                second = NULL if accepting is None else accepting.sort(row, access.row)
            if hopeful is not None and hopeful[trace.chain] >= position[first]:
                certainty = UNKNOWN
            else:
                certainty = SURE if sure and trace.observed else POSSIBLE
            apart = self._apart(trace.sort, trace.mode, second, access)
            found.add((trace.queue, trace.mode, apart), certainty, rank[first], first)
        return found

    def _apart(self, first: int, mode: str, second: int, access: Access) -> int:
        """Return the sort of the earlier access where the baseline accepts the two, else `NULL`."""
        accepting = self._accepting
        if accepting is None or first == NULL:
            return NULL
        accepted = accepting.race(hazard(mode, access.mode), access.root, first, second)
        return first if accepted else NULL

    def _kin(self, row: int, unit: int) -> bool:
        """Whether `unit` is part of the op: the two never race, and what is older in its lane is ordered."""
        above = self._contract.above
        return unit in above and self._contract.unit[row] in above[unit]

    def _pairs(
        self, candidates: Thinned[tuple[int, str, int], int], row: int, access: Access
    ) -> Iterator[Pair]:
        origin, accepting = self._contract.ops.origin, self._accepting
        sure = access.observed and origin[row] != "inferred"
        second = NULL if accepting is None else accepting.sort(row, access.row)
        for (_, mode, apart), certainty, first in candidates:
            for part in self._parts(first).get((access.root, mode), ()):
                if accepting is not None and self._apart(part.sort, mode, second, access) != apart:
                    continue
                common = part.overlap(access)
                if common is not None:
                    yield Pair(
                        first, row, hazard(mode, access.mode), access.root, common[0], common[1],
                        sure and part.observed and origin[first] != "inferred", certainty == UNKNOWN,
                        common[2], access.row, NULL if apart == NULL else (apart, second), common[3],
                    )  # fmt: skip

    def _parts(self, row: int) -> dict[tuple[int, str], list[_Part]]:
        """Return what an op touches, per memory and mode."""
        fixed = self._accepting is None and self._ranges.is_fixed(row)
        key = self._contract.ops.access_set[row] if fixed else ~row
        known = self._parts_of.get(key)
        if known is None:
            sorted_out: dict[tuple[int, str, bool, int], list[tuple[int, int, int]]] = {}
            for a in self._ranges.of(row):
                sort = NULL if self._accepting is None else self._accepting.sort(row, a.row)
                ranges = sorted_out.setdefault((a.root, a.mode, a.observed, sort), [])
                ranges.extend((begin, end, a.row) for begin, end in a.ranges())
            known = {}
            for (root, mode, observed, sort), ranges in sorted_out.items():
                known.setdefault((root, mode), []).append(_Part(observed, sort, ranges))
            if len(self._parts_of) >= _PARTS:
                self._parts_of.clear()
            self._parts_of[key] = known
        return known

    def _remember(self, unit: int, rows: tuple[int, ...] | list[int]) -> None:
        ops, chain, rank = self._contract.ops, self._chains.chain, self._ranks.rank
        accepting = self._accepting
        for row in rows:
            accesses = self._ranges.of(row)
            if not accesses:
                continue
            lane = self._lanes.of(unit, row)
            seen = ops.origin[row] != "inferred"
            bundles: dict[_Trace, list[Span]] | None = {} if len(accesses) >= _RECENT else None
            for access in accesses:
                memory = self._memory.get(access.root)
                if memory is None:
                    memory = self._memory[access.root] = _Memory()
                sort = NULL if accepting is None else accepting.sort(row, access.row)
                trace = memory.trace(
                    lane, ops.queue[row], chain[row], access.mode, seen and access.observed, sort
                )
                if bundles is not None:
                    bundles.setdefault(trace, []).extend(access.ranges())
                elif access.spans is None:
                    trace.add((access.begin, access.end), row, rank)
                else:
                    trace.add_many(access.spans, row, rank)
            if bundles is not None:
                for trace, spans in bundles.items():
                    trace.add_many(spans, row, rank)


def _merged(pairs: list[Pair]) -> list[Pair]:
    """Join what is one pair of ops, hazard and memory: the hull of its bytes, definite where one part is."""
    found: dict[tuple[Hashable, ...], Pair] = {}
    for pair in pairs:
        known = found.setdefault((pair.first, pair.second, pair.fault, pair.root, pair.accepted), pair)
        if known is not pair:
            known.hull |= pair.hull or (pair.begin, pair.end) != (known.begin, known.end)
            known.begin = min(known.begin, pair.begin)
            known.end = max(known.end, pair.end)
            if pair.definite and not known.definite:
                known.definite = True
                known.first_access, known.second_access = pair.first_access, pair.second_access
    return list(found.values())
