"""Lifetime faults: memory touched outside of its generation, sync objects used past their end."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from ...formats.edges import Contract
from ...formats.plain import NULL, flat, ids, words
from ...formats.tape import Tape
from .accepting import Accepting
from .clocks import Chains, Clock
from .races import Lanes, Ranks
from .ranges import Access, Buffers, Ranges
from .thinning import POSSIBLE, SURE, UNKNOWN, Thinned

__all__ = ["FAULTS", "Fault", "Lifetimes"]

FAULTS = (
    "use-after-free",
    "free-in-flight",
    "use-before-alloc",
    "double-free",
    "destroy-pending",
    "use-after-destroy",
)

_USE = frozenset({"record", "wait", "semsig", "semwait", "coll", "compute", "kernel"})


@dataclass(slots=True)
class Fault:
    """A lifetime fault between rows `first` and `second`, the earlier in reference order first.

    `accepted` has what the two are for the baseline where that accepts them, else `NULL`.
    """

    first: int
    second: int
    fault: str
    buffer: int
    sync: int
    definite: bool
    assumed: bool
    access: int
    accepted: int | tuple[int, int]


@dataclass(slots=True)
class _Use:
    """A use of a thing: its row, whether the access is definite, and what it is for the baseline."""

    row: int
    definite: bool
    access: int
    sort: int


@dataclass
class _Thing:
    """A generation or sync object: where it begins and ends, and the uses before either has happened."""

    alloc: int = NULL
    end: int = NULL
    ends: list[int] = field(default_factory=list)
    sync: int = NULL
    buffer: int = NULL
    whole: bool = True
    # Latest use per (lane, queue, mode), whether its row stands after the row of the end, certainty and sort.
    uses: dict[tuple[Hashable, int, str, bool, bool, int], _Use] = field(default_factory=dict)
    # The same for the begin; uses whose row stands after it are all kept: their order decides.
    early: dict[tuple[Hashable, int, str, bool, int], _Use] = field(default_factory=dict)
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
        accepting: Accepting | None = None,
    ) -> None:
        self._accepting = accepting
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
        if self._syncs:
            self._sync_names = words(flat(tape.table("syncs")), "name")
        self._lineage: dict[int, list[_Thing]] = {}
        self._sets: dict[int, bool] = {}
        self.active = bool(self._things or self._syncs)

    def visit(
        self, unit: int, rows: tuple[int, ...] | list[int], clock: Clock, hopeful: Clock | None
    ) -> list[Fault]:
        """Return the faults between a unit and all before it, then remember its uses."""
        found: list[Fault] = []
        for row in rows:
            here: dict[tuple[Hashable, ...], Fault] = {}
            for fault in self._faults(unit, row, clock, hopeful):
                key = (fault.first, fault.buffer, fault.sync, fault.fault, fault.accepted)
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
        return other == unit or self._c.is_ancestor(other, unit)

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
        accepted = self._accepted(thing, first, second, name, access)
        return Fault(first, second, name, thing.buffer, thing.sync, definite, assumed, access, accepted)

    def _accepted(
        self, thing: _Thing, first: int, second: int, name: str, access: int
    ) -> int | tuple[int, int]:
        """Return the sorts of two ops where the baseline accepts this fault of theirs, else `NULL`."""
        accepting = self._accepting
        if accepting is None:
            return NULL
        one, other = self.sides(first, second, access)
        sorts = accepting.sort(*one), accepting.sort(*other)
        return (
            sorts if accepting.fault("lifetime", name, self.title(thing.buffer, thing.sync), *sorts) else NULL
        )

    def sides(self, first: int, second: int, access: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return two rows, each with its access: the one that ends or begins something has none."""
        second_uses = self._c.ops.kind[first] in ("free", "alloc", "destroy")
        return (first, NULL if second_uses else access), (second, access if second_uses else NULL)

    def title(self, buffer: int, sync: int) -> str:
        """Return the name of a memory or sync object for people."""
        if sync == NULL:
            return self._buffers.title(self._buffers.root[buffer])
        return self._sync_names[sync] or f"sync {sync}"

    def _at_end(
        self, thing: _Thing, unit: int, row: int, clock: Clock, hopeful: Clock | None
    ) -> Iterator[Fault]:
        found: Thinned[tuple[int, str, str, Hashable], _Use] = Thinned()
        for (_, queue, mode, after, _, _), use in thing.uses.items():
            name = self._end_fault(thing, after)
            if name and not self._before(use.row, clock) and not self._kin(use.row, unit):
                self._offer(found, (queue, mode, name), thing, use, row, hopeful)
        for (_, _, name, _), certainty, use in found:
            yield self._fault(thing, use.row, row, name, use.definite, certainty == UNKNOWN, use.access)
        thing.uses.clear()

    def _offer(
        self,
        found: Thinned[tuple[int, str, str, Hashable], _Use],
        key: tuple[int, str, str],
        thing: _Thing,
        use: _Use,
        row: int,
        hopeful: Clock | None,
    ) -> None:
        """Add the fault of an earlier use and an op to what is to be thinned."""
        if hopeful is not None and self._before(use.row, hopeful):
            certainty = UNKNOWN
        else:
            certainty = SURE if use.definite and self._c.ops.origin[row] != "inferred" else POSSIBLE
        accepted = self._accepted(thing, use.row, row, key[2], use.access)
        found.add((*key, accepted), certainty, self._ranks.rank[use.row], use)

    def _at_alloc(
        self, thing: _Thing, unit: int, row: int, clock: Clock, hopeful: Clock | None
    ) -> Iterator[Fault]:
        found: Thinned[tuple[int, str, str, Hashable], _Use] = Thinned()
        candidates = [(q, m, use) for (_, q, m, _, _), use in thing.early.items()]
        candidates += [(q, m, use) for q, m, use in thing.ahead if self._before(use.row, clock)]
        name = "use-before-alloc"
        for queue, mode, use in candidates:
            if not self._kin(use.row, unit):
                # That the use waited for something unseen would not help: it has not waited for the alloc.
                self._offer(found, (queue, mode, name), thing, use, row, None)
        for _, _, use in found:
            yield self._fault(thing, use.row, row, name, use.definite, False, use.access)
        thing.early.clear()
        thing.ahead.clear()

    def _remember(self, unit: int, row: int) -> None:
        queue = self._c.ops.queue[row]
        definite_op = self._c.ops.origin[row] != "inferred"
        for thing, mode, definite, access in self._uses(row):
            definite = definite and definite_op
            sort = NULL if self._accepting is None else self._accepting.sort(row, access)
            use = _Use(row, definite, access, sort)
            lane = self._lanes.of(unit, row)
            if thing.end != NULL and not self._started(thing.end):
                thing.uses[lane, queue, mode, row > thing.end, definite, sort] = use
            if thing.alloc != NULL and not self._started(thing.alloc):
                if row < thing.alloc:
                    thing.early[lane, queue, mode, definite, sort] = use
                else:
                    thing.ahead.append((queue, mode, use))
