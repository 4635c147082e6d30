"""Vector clocks: which earlier ops come before an op, one pass over the reference order.

Ops are laid on *chains* whose members are totally ordered: one chain per in-order queue, and for a queue that
is not in order as many as its ops need. A clock holds, per chain, how many of its ops have ended before. Op A
comes before op B exactly where B's clock holds A's position on A's chain. A wait for any of several events
knows only what all of its records share: the minimum per chain.

A second, optimistic pass also assumes that what was not seen did order things: an unresolved wait waited for
all ops before it, and so did every op of a device queue whose waits were not all seen; host threads whose
waits were not all seen met at every op that they ran or issued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice, pairwise

from ...formats.edges import Contract
from ...formats.plain import NULL

__all__ = ["NOT_ENDED", "Assumed", "Chains", "Clocks", "assumptions"]

Clock = list[int]

_TRIED = 64
"""Chains of a queue that is not in order that are tried for an op; with more there are just more chains."""

NOT_ENDED = 1 << 62
"""Position of an op that has not ended."""


class Chains:
    """Chain and position of every row; positions count from 1."""

    def __init__(self, contract: Contract) -> None:
        rows = contract.ops.rows
        self.count = contract.queues.rows
        self.chain = list(contract.ops.queue)
        self.position = [NOT_ENDED] * rows
        self.last = [0] * self.count
        self._contract = contract
        self._in_order = contract.queues.in_order
        # Per queue that is not in order, its chains with their last ops, the longest unused ones first.
        self._loose: dict[int, dict[int, int]] = {}
        self._sources = None if all(self._in_order) else contract.by_target()

    def place(self, row: int, clock: Clock) -> None:
        """Choose the chain of a row of a queue that is not in order: one whose last op comes before it."""
        queue = self.chain[row]
        if self._in_order[queue]:
            return
        tails = self._loose.setdefault(queue, {})
        chain = self._continued(row, tails)
        if chain == NULL:
            for chain in islice(tails, _TRIED):
                if self.position[tails[chain]] <= (clock[chain] if chain < len(clock) else 0):
                    break
            else:
                chain = self.count
                self.count += 1
                self.last.append(0)
        self.chain[row] = chain
        tails.pop(chain, None)
        tails[chain] = row

    def _continued(self, row: int, tails: dict[int, int]) -> int:
        """Return the chain that ends with something that the row waits for by name, or `NULL`."""
        if self._sources is None:
            return NULL
        first, sources = self._sources
        unit = self._contract.unit[row]
        for source in sources[first[unit] : first[unit + 1]]:
            for before in self._contract.rows_of(source):
                if tails.get(self.chain[before]) == before:
                    return self.chain[before]
        return NULL

    def end(self, row: int) -> None:
        """Give the row its position: it has ended."""
        chain = self.chain[row]
        self.last[chain] += 1
        self.position[row] = self.last[chain]


@dataclass(frozen=True)
class Assumed:
    """What the optimistic pass assumes.

    Attributes
    ----------
    waits : frozenset of int
        Rows that are assumed to have waited for every op before them.
    meets : dict
        Per host thread whose waits were not all seen: the host threads whose ops are assumed to come before
        its.
    """

    waits: frozenset[int]
    meets: dict[int, tuple[int, ...]]

    def __bool__(self) -> bool:
        return bool(self.waits or self.meets)


def assumptions(contract: Contract, unseen: set[int]) -> Assumed:
    """Return what to assume, given the queues whose waits were not all seen."""
    queues = contract.queues
    hosts = [q for q in range(queues.rows) if queues.host[q]]
    meets = {}
    for h in hosts:
        if h in unseen:
            others = tuple(
                o for o in hosts if o != h and (queues.process[o] == queues.process[h] or o in unseen)
            )
            if others:
                meets[h] = others
    waits = set(contract.unresolved)
    if any(not queues.host[q] for q in unseen):
        # Any op of such a queue may have waited for anything.
        waits.update(r for r, q in enumerate(contract.ops.queue) if q in unseen and not queues.host[q])
    return Assumed(frozenset(waits), meets)


class Clocks:
    """One pass: `start` and `end` are called along the schedule.

    Parameters
    ----------
    contract : Contract
        The edges.
    chains : Chains
        Shared between the passes; `end` of the chains is called by the caller, once.
    assumed : Assumed or None
        What this pass assumes beyond the contract.
    """

    def __init__(self, contract: Contract, chains: Chains, assumed: Assumed | None = None) -> None:
        self._c = contract
        self._chains = chains
        self._first, self._sources = contract.by_target()
        uses, _ = contract.by_source()
        self._uses = [b - a for a, b in pairwise(uses)]
        for records in contract.any_of.values():
            for r in records:
                self._uses[r] += 1
        self._ended: dict[int, Clock] = {}
        self._opened: dict[int, Clock] = {}
        self._inside: dict[int, Clock] = {}
        self._waits = assumed.waits if assumed else frozenset()
        self._meets = assumed.meets if assumed else {}
        self._watch: set[int] | None = None
        if assumed:
            self._watch = None if self._waits else {h for o in self._meets.values() for h in o}
        self._recent: dict[int, deque[tuple[int, int, Clock]]] = {}
        self._assumes = bool(assumed)
        # What ended in rows before the row that last waited for everything, and that row.
        self._everything: Clock = []
        self._everything_to = NULL
        self._done = bytearray(contract.ops.rows)
        self._low = 0

    def start(self, unit: int) -> Clock:
        """Return the clock of what comes before a unit; the list is changed by `end`."""
        contract, ended, uses = self._c, self._ended, self._uses
        chain, position = self._chains.chain, self._chains.position
        clock: Clock | None = None
        for source in self._sources[self._first[unit] : self._first[unit + 1]]:
            other = ended[source]
            uses[source] -= 1
            if not uses[source]:
                del ended[source]
            if clock is None:
                clock = other.copy() if uses[source] or self._assumes else other
                continue
            at = chain[source]
            if at >= len(clock) or clock[at] < position[source]:
                _join(clock, other)
        if clock is None:
            clock = []
        for parent in contract.parents.get(unit, ()):
            _join(clock, self._opened[parent])
        records = contract.any_of.get(unit)
        if records:
            _join(clock, self._shared(records))
        if self._assumes:
            self._assume(unit, clock)
        if len(clock) < self._chains.count:
            clock.extend([0] * (self._chains.count - len(clock)))
        if unit in contract.children:
            self._opened[unit] = clock.copy()
            self._inside[unit] = clock.copy()
        return clock

    def end(self, unit: int, clock: Clock | None) -> None:
        """Note that a unit has ended; `clock` is what `start` returned, None for a unit with children.

        The rows have their positions already.
        """
        contract, chains = self._c, self._chains
        if clock is None:
            clock = self._inside.pop(unit)
            del self._opened[unit]
        if len(clock) < chains.count:
            clock.extend([0] * (chains.count - len(clock)))
        rows = contract.members.get(unit) or (unit,)
        for row in rows:
            clock[chains.chain[row]] = chains.position[row]
        if self._uses[unit]:
            self._ended[unit] = clock
        for parent in contract.parents.get(unit, ()):
            _join(self._inside[parent], clock)
        if self._assumes:
            self._remember(rows, clock)

    def _shared(self, records: tuple[int, ...]) -> Clock:
        """Return what all records that have ended have in common."""
        found: Clock | None = None
        for record in records:
            other = self._ended.get(record)
            if other is None:
                continue
            found = list(other) if found is None else [min(a, b) for a, b in zip(found, other, strict=False)]
        for record in records:
            if record in self._ended:
                self._uses[record] -= 1
                if not self._uses[record]:
                    del self._ended[record]
        return found or []

    def _remember(self, rows: tuple[int, ...] | list[int], clock: Clock) -> None:
        chain, done = self._chains.chain, self._done
        for row in rows:
            done[row] = 1
            if self._watch is None or chain[row] in self._watch:
                self._recent.setdefault(chain[row], deque()).append((row, self._chains.position[row], clock))
        low, end = self._low, len(done)
        while low < end and done[low]:
            low += 1
        if low == self._low:
            return
        self._low = low
        # Every row to come is at or after `low`: of the rows below it only the last per chain matters.
        for row in rows:
            recent = self._recent.get(chain[row])
            while recent and len(recent) > 1 and recent[1][0] < low:
                recent.popleft()

    def _assume(self, unit: int, clock: Clock) -> None:
        queue, issuer, meets = self._c.ops.queue, self._c.ops.issuer, self._meets
        for row in self._c.members.get(unit) or (unit,):
            if row in self._waits:
                # Most of it is what the wait for everything before this one has found.
                if row < self._everything_to:
                    self._everything = []
                self._everything_to = row
                self._meet(self._everything, row, self._recent)
                _join(clock, self._everything)
            else:
                # To issue an op is something that the thread does: it may have met others just before.
                self._meet(clock, row, {*meets.get(queue[row], ()), *meets.get(issuer[row], ())})

    def _meet(self, clock: Clock, row: int, chains: Iterable[int]) -> None:
        """Raise `clock` to what has ended on some chains in rows before this one."""
        for chain in chains:
            for at, position, other in reversed(self._recent.get(chain, ())):
                if at < row:
                    if chain >= len(clock) or clock[chain] < position:
                        _join(clock, other)
                    break


def _join(clock: Clock, other: Clock) -> None:
    """Raise `clock` to at least `other`."""
    if len(other) > len(clock):
        clock.extend([0] * (len(other) - len(clock)))
    if len(other) == len(clock):
        clock[:] = [a if a > b else b for a, b in zip(clock, other, strict=True)]
    else:
        for i, value in enumerate(other):
            if value > clock[i]:
                clock[i] = value
