"""Lifetime faults: memory touched outside of its generation, sync objects used past their end."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from ...formats.edges import Contract
from ...formats.plain import NULL, flat, ids
from ...formats.tape import Tape
from .clocks import Chains, Clock
from .races import Lanes, Ranks
from .ranges import Access, Buffers, Ranges

__all__ = ["FAULTS", "Fault", "Lifetimes"]

FAULTS = (
    "use-after-free",
    "free-in-flight",
    "use-before-alloc",
    "double-free",
    "destroy-pending",
    "use-after-destroy",
)

K = TypeVar("K", bound=Hashable)

_USE = frozenset({"record", "wait", "semsig", "semwait", "coll", "compute", "kernel"})


@dataclass(slots=True)
class Fault:
    """A lifetime fault between rows `first` and `second`, the earlier in reference order first."""

    first: int
    second: int
    fault: str
    buffer: int
    sync: int
    definite: bool
    assumed: bool
    access: int


@dataclass(slots=True)
class _Use:
    """A use of a thing: its row and whether the access is definite."""

    row: int
    definite: bool
    access: int


@dataclass
class _Thing:
    """A generation or sync object: where it begins and ends, and the uses before either has happened."""

    alloc: int = NULL
    end: int = NULL
    ends: list[int] = field(default_factory=list)
    sync: int = NULL
    buffer: int = NULL
    whole: bool = True
    # Latest use per (lane, queue, mode) and whether its row stands after the row of the end.
    uses: dict[tuple[Hashable, int, str, bool], _Use] = field(default_factory=dict)
    # The same for the begin; uses whose row stands after it are all kept: their order decides.
    early: dict[tuple[Hashable, int, str], _Use] = field(default_factory=dict)
    ahead: list[tuple[int, str, _Use]] = field(default_factory=list)


class Lifetimes:
    """Finds lifetime faults; `visit` is called for each unit as it starts, in reference order."""

    def __init__(
        self,
        tape: Tape,
        contract: Contract,
        buffers: Buffers,
        ranges: Ranges,
        chains: Chains,
        lanes: Lanes,
        ranks: Ranks,
    ) -> None:
        self._c = contract
        self._buffers = buffers
        self._ranges = ranges
        self._chains = chains
        self._lanes = lanes
        self._ranks = ranks
        ops = contract.ops
        self._things: dict[int, _Thing] = {}
        self._syncs: dict[int, _Thing] = {}
        self._at: dict[int, tuple[_Thing, str]] = {}
        lists = flat(tape.table("lists"))
        self._lists: dict[int, list[int]] = {}
        for row, kind in enumerate(ops.kind):
            if kind in ("alloc", "free") and ops.target[row] != NULL:
                thing = self._things.setdefault(ops.target[row], _Thing(buffer=ops.target[row]))
                thing.whole = buffers.is_whole(ops.target[row])
                if kind == "free":
                    thing.ends.append(row)
                    thing.end = row if thing.end == NULL else thing.end
                elif thing.alloc == NULL:
                    thing.alloc = row
                self._at[row] = (thing, str(kind))
            elif kind == "destroy" and ops.sync[row] != NULL:
                thing = self._syncs.setdefault(ops.sync[row], _Thing(sync=ops.sync[row]))
                if thing.end == NULL:
                    thing.end = row
                    self._at[row] = (thing, "free")
        if self._syncs:
            for key, unit in zip(ids(lists, "list"), ids(lists, "unit"), strict=True):
                self._lists.setdefault(key, []).append(unit)
        self._lineage: dict[int, list[_Thing]] = {}
        self._sets: dict[int, bool] = {}
        self.active = bool(self._things or self._syncs)

    def visit(
        self, unit: int, rows: tuple[int, ...] | list[int], clock: Clock, hopeful: Clock | None
    ) -> list[Fault]:
        """Return the faults between a unit and all before it, then remember its uses."""
        found: list[Fault] = []
        for row in rows:
            here: dict[tuple[int, int, int, str], Fault] = {}
            for fault in self._faults(unit, row, clock, hopeful):
                key = (fault.first, fault.buffer, fault.sync, fault.fault)
                known = here.setdefault(key, fault)
                known.definite |= fault.definite
            found.extend(here.values())
        for row in rows:
            self._remember(unit, row)
        return found

    # --- helpers ---

    def _before(self, row: int, clock: Clock) -> bool:
        """Whether a row that started earlier comes before the op whose clock this is."""
        return clock[self._chains.chain[row]] >= self._chains.position[row]

    def _kin(self, row: int, unit: int) -> bool:
        other = self._c.unit[row]
        return other == unit or (unit in self._c.parents and self._c.is_ancestor(other, unit))

    def _started(self, row: int) -> bool:
        return row != NULL and self._ranks.rank[row] >= 0

    def _uses(self, row: int) -> Iterator[tuple[_Thing, str, bool, int]]:
        """Yield what a row uses: thing, mode, definite, access."""
        if self._things and self._touches(row):
            for access in self._ranges.of(row):
                for thing in self._of_buffer(access):
                    yield thing, access.mode, access.observed, access.row
        if self._syncs:
            ops = self._c.ops
            if ops.kind[row] in _USE:
                names = [ops.sync[row]]
            elif ops.kind[row] == "wait_any":
                names = self._lists.get(ops.list[row], [])
            else:
                return
            for name in dict.fromkeys(names):
                if name in self._syncs:
                    yield self._syncs[name], "", True, NULL

    def _touches(self, row: int) -> bool:
        """Whether the op touches anything that begins or ends."""
        key = self._c.ops.access_set[row]
        known = self._sets.get(key)
        if known is None:
            known = self._sets[key] = any(
                b in self._things
                for named in self._ranges.buffers_of(key)
                for b in self._buffers.lineage(named)
            )
        return known

    def _of_buffer(self, access: Access) -> list[_Thing]:
        known = self._lineage.get(access.buffer)
        if known is None:
            known = [self._things[b] for b in self._buffers.lineage(access.buffer) if b in self._things]
            self._lineage[access.buffer] = known
        return known

    # --- the faults ---

    def _faults(self, unit: int, row: int, clock: Clock, hopeful: Clock | None) -> Iterator[Fault]:
        ops = self._c.ops
        at = self._at.get(row)
        if at is not None:
            thing, kind = at
            if kind == "alloc":
                if row == thing.alloc:
                    yield from self._at_alloc(thing, unit, row, clock, hopeful)
            else:
                earlier = [r for r in thing.ends if r != row and self._started(r) and not self._kin(r, unit)]
                if earlier:
                    first = min(earlier, key=lambda r: self._ranks.rank[r])
                    yield self._fault(thing, first, row, "double-free", True, False, NULL)
                if row == thing.end:
                    yield from self._at_end(thing, unit, row, clock, hopeful)
        for thing, _, definite, access in self._uses(row):
            definite = definite and ops.origin[row] != "inferred"
            if self._started(thing.end) and not self._kin(thing.end, unit):
                end = thing.end
                after = self._before(end, clock) or row > end
                name = self._end_fault(thing, after)
                if name:
                    yield self._fault(thing, end, row, name, definite, False, access)
            if (
                self._started(thing.alloc)
                and row < thing.alloc
                and not self._kin(thing.alloc, unit)
                and not (self._before(thing.alloc, clock))
            ):
                assumed = hopeful is not None and self._before(thing.alloc, hopeful)
                yield self._fault(thing, thing.alloc, row, "use-before-alloc", definite, assumed, access)

    def _end_fault(self, thing: _Thing, after: bool) -> str:
        """Return the fault of a use that does not come before the end; empty where it is none."""
        if thing.sync != NULL:
            return "use-after-destroy" if after else "destroy-pending"
        if after:
            return "use-after-free"
        # Freeing a range of a live buffer is bookkeeping: only its reuse can be wrong, and that is a race.
        return "free-in-flight" if thing.whole else ""

    def _fault(
        self, thing: _Thing, first: int, second: int, name: str, definite: bool, assumed: bool, access: int
    ) -> Fault:
        origin = self._c.ops.origin
        definite = definite and origin[first] != "inferred" and origin[second] != "inferred"
        return Fault(first, second, name, thing.buffer, thing.sync, definite, assumed, access)

    def _at_end(
        self, thing: _Thing, unit: int, row: int, clock: Clock, hopeful: Clock | None
    ) -> Iterator[Fault]:
        best: dict[tuple[int, str, bool], _Use] = {}
        for (_, queue, mode, after), use in thing.uses.items():
            if self._before(use.row, clock) or self._kin(use.row, unit):
                continue
            self._later(best, (queue, mode, after), use)
        for (_, _, after), use in best.items():
            name = self._end_fault(thing, after)
            if name:
                assumed = hopeful is not None and self._before(use.row, hopeful)
                yield self._fault(thing, use.row, row, name, use.definite, assumed, use.access)
        thing.uses.clear()

    def _at_alloc(
        self, thing: _Thing, unit: int, row: int, clock: Clock, hopeful: Clock | None
    ) -> Iterator[Fault]:
        best: dict[tuple[int, str], _Use] = {}
        candidates = [(q, m, use) for (_, q, m), use in thing.early.items()]
        candidates += [(q, m, use) for q, m, use in thing.ahead if self._before(use.row, clock)]
        for queue, mode, use in candidates:
            if not self._kin(use.row, unit):
                self._later(best, (queue, mode), use)
        for use in best.values():
            yield self._fault(thing, use.row, row, "use-before-alloc", use.definite, False, use.access)
        thing.early.clear()
        thing.ahead.clear()

    def _later(self, best: dict[K, _Use], key: K, use: _Use) -> None:
        """Keep the later of two uses in reference order."""
        known = best.get(key)
        if known is None or self._ranks.rank[known.row] <= self._ranks.rank[use.row]:
            _keep(best, key, use)

    def _remember(self, unit: int, row: int) -> None:
        queue = self._c.ops.queue[row]
        definite_op = self._c.ops.origin[row] != "inferred"
        for thing, mode, definite, access in self._uses(row):
            use = _Use(row, definite and definite_op, access)
            lane = self._lanes.of(unit, row)
            if thing.end != NULL and not self._started(thing.end):
                _keep(thing.uses, (lane, queue, mode, row > thing.end), use)
            if thing.alloc != NULL and not self._started(thing.alloc):
                if row < thing.alloc:
                    _keep(thing.early, (lane, queue, mode), use)
                else:
                    thing.ahead.append((queue, mode, use))


def _keep(table: dict[K, _Use], key: K, use: _Use) -> None:
    """Keep the latest use; several accesses of one op count as one, definite where one is."""
    known = table.get(key)
    if known is None or known.row != use.row or (use.definite and not known.definite):
        table[key] = use
