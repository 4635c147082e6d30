"""The edge contract as code: which op completes before which other op starts, and the reference order.

`resolve` reads the columns of a tape once and returns a `Contract`. Its nodes are *units*: a unit is one op,
or all members of one collective, and is named by the row of its last member (its issue index). An edge
``source -> target`` says that the source has ended before the target starts.

An op with children (rows that name it as their parent) starts before and ends after them: its predecessors
come before the children, the children before what follows it. An edge from an op to one of its own
descendants therefore counts from its start and adds nothing.

`Contract.order` gives the reference order: the topological order that always takes the lowest ready issue
index. What never becomes ready is stuck: a semaphore wait without its signal, a cycle, and all that depends
on them.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .errors import InvalidTape
from .plain import NULL, flags, flat, ids, optional, words
from .profiles import Profile, find_profile
from .tape import Tape

__all__ = ["RULES", "Contract", "Ops", "Order", "Queues", "Stuck", "Table", "resolve"]

RULES = (
    "program",            # program order of a host thread, FIFO order of an in-order queue
    "issue",              # what a thread did before it issued an op
    "event",              # record -> wait
    "sync",               # queue, device or everything -> host thread
    "semaphore",          # signal -> wait
    "edge",               # a row of `edges`
    "blocking_copy",      # declared: the issuer waits for its copy
    "free_synchronises",  # declared: a free waits for the device
    "alloc_synchronises", # declared: an alloc waits for the device
    "default_queue",      # declared: the legacy default queue
)  # fmt: skip
"""Why there is an edge; `Contract.rule` holds indices into this."""

(_PROGRAM, _ISSUE, _EVENT, _SYNC, _SEMAPHORE, _EDGE, _BLOCKING, _FREE, _ALLOC, _DEFAULT) = range(len(RULES))


class Ops:
    """The columns of `ops` that order and accesses need, as lists; null ids are `NULL`."""

    def __init__(self, tape: Tape) -> None:
        table = flat(tape.table("ops"))
        self.rows: int = table.num_rows
        self.op = ids(table, "op")
        self.kind = words(table, "kind")
        self.queue = ids(table, "queue")
        self.issuer = ids(table, "issuer")
        self.parent = ids(table, "parent")
        self.sync = ids(table, "sync")
        self.value = optional(table, "value")
        self.sync_of = ids(table, "sync_of")
        self.wait_state = words(table, "wait_state")
        self.target_kind = words(table, "target_kind")
        self.target = ids(table, "target")
        self.access_set = ids(table, "access_set")
        self.arg = optional(table, "arg")
        self.list = ids(table, "list")
        self.origin = words(table, "origin")


class Queues:
    """The columns of `queues` and what is derived from the devices."""

    def __init__(self, tape: Tape) -> None:
        table = flat(tape.table("queues"))
        self.rows: int = table.num_rows
        self.device = ids(table, "device")
        self.name = words(table, "name")
        self.kind = words(table, "kind")
        self.process = ids(table, "process")
        self.host = [k == "host_thread" for k in self.kind]
        # A host thread runs its program in order whatever the column says.
        self.in_order = [o or h for o, h in zip(flags(table, "in_order"), self.host, strict=True)]


class Table:
    """Checks references while the columns are read; every failure is an `InvalidTape`."""

    def __init__(self, tape: Tape) -> None:
        self.name = tape.name

    def error(self, found: str, expected: str) -> InvalidTape:
        """Return the error."""
        return InvalidTape(
            found,
            expected=expected,
            where=self.name,
            next_step="`tapedelay info --validate` lists every fault",
        )

    def dense(self, values: Sequence[int], what: str) -> None:
        """Refuse ids that are not 0 .. rows-1."""
        if values != list(range(len(values))):
            raise self.error(f"{what} ids have gaps", f"0 .. {len(values) - 1}, in order")

    def below(self, values: Sequence[int], limit: int, what: str, *, nullable: bool = True) -> None:
        """Refuse references outside of 0 .. limit-1."""
        got = np.asarray(values, dtype=np.int64)
        bad = np.flatnonzero((got >= limit) | (got < (NULL if nullable else 0)))
        if bad.size:
            row = int(bad[0])
            raise self.error(f"row {row}: {what} {values[row]}", f"a number below {limit}")

    def rows(self, values: Sequence[int], keys: npt.NDArray[np.int64], what: str) -> list[int]:
        """Return the row of each op id; `NULL` stays."""
        got = np.asarray(values, dtype=np.int64)
        if not (got != NULL).any():
            return list(values)
        at = np.searchsorted(keys, got)
        at[at == len(keys)] = 0
        bad = np.flatnonzero((got != NULL) & (keys[at] != got if len(keys) else True))
        if bad.size:
            row = int(bad[0])
            raise self.error(f"row {row}: {what} {values[row]}", "the id of an op of this tape")
        at[got == NULL] = NULL
        found: list[int] = at.tolist()
        return found


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


@dataclass
class Contract:
    """The resolved edges of a tape.

    Attributes
    ----------
    ops, queues : Ops, Queues
        The columns.
    unit : list of int
        Unit of each row.
    members : dict
        Rows of the units that have more than one.
    parents, children : dict
        Parent units of a unit and the reverse; units without any are left out.
    source, target, rule : numpy.ndarray
        Edges between units, in no particular order; `rule` indexes `RULES`.
    any_of : dict
        For a wait for any of several events: the record units, all of them needed to bound what is ordered.
    unresolved : frozenset of int
        Rows that wait for something that was not seen.
    never : tuple of int
        Rows that wait for a signal that no row gives.
    profiles : list of Profile
        Profile of each device.
    """

    name: str
    ops: Ops
    queues: Queues
    unit: list[int]
    members: dict[int, list[int]]
    parents: dict[int, tuple[int, ...]]
    children: dict[int, list[int]]
    profiles: list[Profile]
    source: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    target: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    rule: npt.NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))
    any_of: dict[int, tuple[int, ...]] = field(default_factory=dict)
    unresolved: frozenset[int] = frozenset()
    never: tuple[int, ...] = ()

    def rows_of(self, unit: int) -> Sequence[int]:
        """Return the rows of a unit, in row order."""
        return self.members.get(unit) or (unit,)

    def units(self) -> Iterator[int]:
        """Yield every unit by issue index."""
        return (r for r, u in enumerate(self.unit) if r == u)

    def is_ancestor(self, ancestor: int, unit: int) -> bool:
        """Whether `unit` is part of `ancestor`, directly or not."""
        return _is_ancestor(self.parents, ancestor, unit)

    def by_target(self) -> tuple[list[int], list[int]]:
        """Return (first, sources): the sources of unit u are ``sources[first[u]:first[u+1]]``."""
        return _grouped(self.target, self.source, self.ops.rows)

    def by_source(self) -> tuple[list[int], list[int]]:
        """Return (first, targets): the targets of unit u are ``targets[first[u]:first[u+1]]``."""
        return _grouped(self.source, self.target, self.ops.rows)

    def order(self) -> Order:
        """Return the reference order and what is stuck."""
        return _Ordering(self).run()


def _grouped(
    key: npt.NDArray[np.int32], value: npt.NDArray[np.int32], rows: int
) -> tuple[list[int], list[int]]:
    by = np.argsort(key, kind="stable")
    counts = np.bincount(key, minlength=rows) if len(key) else np.zeros(rows, np.int64)
    first = np.concatenate(([0], np.cumsum(counts)))
    return first.tolist(), value[by].tolist()


def _is_ancestor(parents: dict[int, tuple[int, ...]], ancestor: int, unit: int) -> bool:
    todo, seen = list(parents.get(unit, ())), set()
    while todo:
        at = todo.pop()
        if at == ancestor:
            return True
        if at not in seen:
            seen.add(at)
            todo.extend(parents.get(at, ()))
    return False


def resolve(tape: Tape) -> Contract:
    """Return the edges of a tape.

    Raises
    ------
    InvalidTape
        If a reference points nowhere or a device names an unknown profile.
    CorruptTape
        If a table cannot be read.
    """
    return _Resolver(tape).run()


class _Resolver:
    """Walks the rows once and collects edges."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.check = Table(tape)
        self.ops = Ops(tape)
        self.queues = Queues(tape)
        devices = flat(tape.table("devices"))
        self.check.dense(ids(devices, "device"), "device")
        self.check.dense(ids(flat(tape.table("queues")), "queue"), "queue")
        self.check.below(self.queues.device, devices.num_rows, "device", nullable=False)
        self.host_devices = [k == "host" for k in words(devices, "kind")]
        found: dict[str, Profile] = {}
        self.profiles = []
        for name in words(devices, "profile"):
            if str(name) not in found:
                found[str(name)] = find_profile(str(name), tape.manifest.profiles, where=tape.name)
            self.profiles.append(found[str(name)])
        buffers = flat(tape.table("buffers"))
        self.buffer_device = ids(buffers, "device")
        self.buffer_kind = words(buffers, "kind")
        self.check.below(self.buffer_device, devices.num_rows, "device", nullable=False)
        self._check_ops(buffers.num_rows, devices.num_rows)
        self.lists = self._lists()

        self._sources = array("i")
        self._targets = array("i")
        self._rules = array("b")
        self._units()
        self.any_of: dict[int, tuple[int, ...]] = {}
        self.unresolved: set[int] = set()
        self.never: list[int] = []

    # --- reading ---

    def _check_ops(self, buffers: int, devices: int) -> None:
        ops, check = self.ops, self.check
        keys = np.asarray(ops.op, dtype=np.int64)
        if len(keys) and (keys[0] < 0 or (np.diff(keys) <= 0).any()):
            raise check.error("op ids do not grow", "strictly increasing ids from row to row")
        self.keys = keys
        syncs = flat(self.tape.table("syncs"))
        check.dense(ids(syncs, "sync"), "sync")
        check.below(ops.queue, self.queues.rows, "queue", nullable=False)
        check.below(ops.issuer, self.queues.rows, "issuer")
        check.below(ops.sync, syncs.num_rows, "sync")
        ops.parent = check.rows(ops.parent, keys, "parent")
        ops.sync_of = check.rows(ops.sync_of, keys, "sync_of")
        self.syncs = syncs.num_rows
        for row, (kind, target) in enumerate(zip(ops.kind, ops.target, strict=True)):
            if target == NULL:
                continue
            if kind in ("alloc", "free"):
                limit, what = buffers, "buffer"
            elif kind == "sync":
                limit, what = (
                    (self.queues.rows, "queue") if ops.target_kind[row] == "queue" else (devices, "device")
                )
                if ops.target_kind[row] == "all":
                    continue
            else:
                continue
            if not 0 <= target < limit:
                raise check.error(f"row {row}: target {target}", f"a {what} id below {limit}")

    def _lists(self) -> dict[int, list[int]]:
        table = flat(self.tape.table("lists"))
        found: dict[int, list[int]] = {}
        for key, unit in zip(ids(table, "list"), ids(table, "unit"), strict=True):
            found.setdefault(key, []).append(unit)
        return found

    def _units(self) -> None:
        ops = self.ops
        self.unit = list(range(ops.rows))
        self.members: dict[int, list[int]] = {}
        joint: dict[int, list[int]] = {}
        for row, kind in enumerate(ops.kind):
            if kind == "coll" and ops.sync[row] != NULL:
                joint.setdefault(ops.sync[row], []).append(row)
        for rows in joint.values():
            if len(rows) > 1:
                self.members[rows[-1]] = rows
                for row in rows:
                    self.unit[row] = rows[-1]
        self.parents: dict[int, tuple[int, ...]] = {}
        self.children: dict[int, list[int]] = {}
        for row, parent in enumerate(ops.parent):
            if parent == NULL:
                continue
            child, above = self.unit[row], self.unit[parent]
            known = self.parents.get(child, ())
            if above not in known:
                self.parents[child] = (*known, above)
                self.children.setdefault(above, []).append(child)

    # --- edges ---

    def _edge(self, source: int, target: int, rule: int) -> bool:
        """Add an edge; False where the source is part of what the target is part of (it has only started)."""
        if source == target:
            return True
        if target in self.parents and _is_ancestor(self.parents, source, target):
            return False
        self._sources.append(source)
        self._targets.append(target)
        self._rules.append(rule)
        return True

    def _after(self, tail: Iterable[int], unit: int, rule: int) -> list[int]:
        """Order `unit` after a tail and return what of the tail it does not cover: its own ancestors."""
        return [s for s in tail if not self._edge(s, unit, rule)]

    def run(self) -> Contract:
        """Return the contract."""
        self._walk()
        self._semaphores()
        table = flat(self.tape.table("edges"))
        src = self.check.rows(ids(table, "src"), self.keys, "src")
        dst = self.check.rows(ids(table, "dst"), self.keys, "dst")
        for s, d in zip(src, dst, strict=True):
            self._edge(self.unit[s], self.unit[d], _EDGE)
        return Contract(
            name=self.tape.name,
            ops=self.ops,
            queues=self.queues,
            unit=self.unit,
            members=self.members,
            parents=self.parents,
            children=self.children,
            profiles=self.profiles,
            source=np.array(self._sources, dtype=np.int32),
            target=np.array(self._targets, dtype=np.int32),
            rule=np.array(self._rules, dtype=np.int8),
            any_of=self.any_of,
            unresolved=frozenset(self.unresolved),
            never=tuple(self.never),
        )

    def _walk(self) -> None:
        ops, queues, unit_of = self.ops, self.queues, self.unit
        in_order, host = queues.in_order, queues.host
        count = queues.rows
        # The last op of an in-order queue, behind it those of its ancestors that have not ended.
        tails: list[list[int]] = [[] for _ in range(count)]
        # Copies that a host thread waited for and that its own ops do not cover yet.
        blocked: list[list[int]] = [[] for _ in range(count)]
        # All ops of a queue that is not in order.
        loose: list[list[int]] = [[] for _ in range(count)]
        seen = [0] * count
        waited: dict[tuple[int, int], int] = {}

        def after_queue(unit: int, queue: int, waiter: int, rule: int) -> None:
            # What an earlier op of the same in-order queue has waited for is covered by program order.
            plain = in_order[waiter] and unit not in self.parents
            known = waited.get((waiter, queue), 0) if plain else 0
            if plain:
                waited[waiter, queue] = seen[queue]
            if known == seen[queue]:
                return
            for s in tails[queue] if in_order[queue] else loose[queue][known:]:
                self._edge(s, unit, rule)

        of_device: dict[int, list[int]] = {}
        for q in range(count):
            of_device.setdefault(queues.device[q], []).append(q)
        not_host = [q for q in range(count) if not host[q]]
        defaults = [
            queues.kind[q] == "default" and self.profiles[queues.device[q]].default_queue_blocks
            for q in range(count)
        ]
        default_of = {
            d: [q for q in members if defaults[q]]
            for d, members in of_device.items()
            if any(defaults[q] for q in members)
        }
        blocking = self._blocking_sets()
        newest: dict[int, int] = {}

        for row in range(ops.rows):
            unit, queue, issuer, kind = unit_of[row], ops.queue[row], ops.issuer[row], ops.kind[row]
            open_tail: list[int] = []
            if in_order[queue]:
                open_tail = self._after(tails[queue], unit, _PROGRAM)
                if blocked[queue]:
                    blocked[queue] = self._after(blocked[queue], unit, _BLOCKING)
            if issuer != NULL and issuer != queue and host[issuer]:
                self._after(tails[issuer], unit, _ISSUE)
                if blocked[issuer]:
                    self._after(blocked[issuer], unit, _BLOCKING)
            device = queues.device[queue]
            if device in default_of:
                for other in of_device[device] if defaults[queue] else default_of[device]:
                    if other != queue:
                        after_queue(unit, other, queue, _DEFAULT)

            stays = False
            if kind == "record":
                newest[ops.sync[row]] = row
            elif kind == "wait":
                self._wait(row, newest)
            elif kind == "wait_any":
                self._wait_any(row, newest)
            elif kind == "sync":
                target, what = ops.target[row], ops.target_kind[row]
                if what == "queue" and target != NULL:
                    after_queue(unit, target, queue, _SYNC)
                elif what == "device" and target != NULL:
                    for q in of_device.get(target, ()):
                        after_queue(unit, q, queue, _SYNC)
                elif what == "all":
                    for q in not_host:
                        after_queue(unit, q, queue, _SYNC)
            elif (kind == "free" or kind == "alloc") and ops.target[row] != NULL:
                at = self.buffer_device[ops.target[row]]
                profile = self.profiles[at]
                if profile.free_synchronises if kind == "free" else profile.alloc_synchronises:
                    for q in of_device.get(at, ()):
                        after_queue(unit, q, queue, _FREE if kind == "free" else _ALLOC)
                    stays = True
            elif kind == "copy" and blocking:
                stays = ops.access_set[row] in blocking.get(device, ())

            if in_order[queue]:
                tails[queue] = [unit, *open_tail] if open_tail else [unit]
            else:
                loose[queue].append(unit)
            seen[queue] += 1
            if stays and issuer != NULL and issuer != queue and host[issuer]:
                kept = [s for s in blocked[issuer] if _is_ancestor(self.parents, s, unit)]
                blocked[issuer] = [unit, *kept]

    def _blocking_sets(self) -> dict[int, set[int]]:
        """Return, per device whose profile has blocking copies, the access sets that are such copies."""
        wanted = {d: set(p.blocking_copies) for d, p in enumerate(self.profiles) if p.blocking_copies}
        if not wanted:
            return {}
        table = flat(self.tape.table("accesses"))
        sides: dict[int, tuple[set[str], set[str]]] = {}
        rows = zip(ids(table, "set"), ids(table, "buffer"), words(table, "mode"), strict=True)
        for key, buffer, mode in rows:
            if buffer != NULL and not 0 <= buffer < len(self.buffer_device):
                raise self.check.error(f"access set {key}: buffer {buffer}", "a buffer of this tape")
            if buffer == NULL:
                side = "h"
            elif self.buffer_kind[buffer] == "pinned":
                side = "p"
            else:
                side = "h" if self.host_devices[self.buffer_device[buffer]] else "d"
            reads, writes = sides.setdefault(key, (set(), set()))
            (reads if mode == "read" else writes).add(side)
        return {
            device: {
                key
                for key, (reads, writes) in sides.items()
                if any(f"{a}2{b}" in directions for a in reads for b in writes)
            }
            for device, directions in wanted.items()
        }

    def _wait(self, row: int, newest: dict[int, int]) -> None:
        ops, unit = self.ops, self.unit
        if ops.sync_of[row] != NULL:
            self._edge(unit[ops.sync_of[row]], unit[row], _EVENT)
            return
        state = ops.wait_state[row]
        if state == "unresolved":
            self.unresolved.add(row)
        elif state is None or state == "contract":
            record = newest.get(ops.sync[row], NULL)
            if record != NULL and ops.sync[row] != NULL:
                self._edge(unit[record], unit[row], _EVENT)

    def _wait_any(self, row: int, newest: dict[int, int]) -> None:
        ops, unit = self.ops, self.unit
        if ops.sync_of[row] != NULL or ops.wait_state[row] not in (None, "contract"):
            self._wait(row, {})
            return
        if ops.list[row] == NULL:
            return
        names = self.lists.get(ops.list[row])
        if names is None:
            raise self.check.error(f"row {row}: list {ops.list[row]}", "a list of this tape")
        self.check.below(names, self.syncs, f"list {ops.list[row]}: sync", nullable=False)
        records = [newest.get(s, NULL) for s in names]
        if NULL in records:
            return
        units = tuple(dict.fromkeys(unit[r] for r in records))
        if len(units) == 1:
            self._edge(units[0], unit[row], _EVENT)
        elif units:
            self.any_of[unit[row]] = units

    def _semaphores(self) -> None:
        ops, unit = self.ops, self.unit
        binary: dict[int, list[int]] = {}
        timeline: dict[int, tuple[list[int], list[int]]] = {}
        for row, kind in enumerate(ops.kind):
            if kind != "semsig":
                continue
            value = ops.value[row]
            if value is None:
                binary.setdefault(ops.sync[row], []).append(row)
            else:
                tops, rows = timeline.setdefault(ops.sync[row], ([], []))
                if (
                    not tops or value > tops[-1]
                ):  # a signal that does not raise the maximum is first for nobody
                    tops.append(value)
                    rows.append(row)
        turn: dict[int, int] = {}
        for row, kind in enumerate(ops.kind):
            if kind != "semwait":
                continue
            sync, value = ops.sync[row], ops.value[row]
            signal = NULL
            if value is None:
                k = turn.get(sync, 0)
                turn[sync] = k + 1
                signals = binary.get(sync, ())
                if k < len(signals):
                    signal = signals[k]
            elif sync in timeline:
                tops, rows = timeline[sync]
                at = bisect_left(tops, value)
                if at < len(rows):
                    signal = rows[at]
            if ops.sync_of[row] != NULL:
                signal = ops.sync_of[row]
            elif ops.wait_state[row] == "unresolved":
                self.unresolved.add(row)
                continue
            if signal == NULL:
                self.never.append(row)
            else:
                self._edge(unit[signal], unit[row], _SEMAPHORE)


class _Ordering:
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
        for component in _components(nodes, waits_for):
            units = {n - rows if n >= rows else n for n in component}
            if len(component) > 1 or component[0] in waits_for(component[0]):
                yield tuple(sorted(r for u in units for r in contract.rows_of(u)))


def _components(nodes: Iterable[int], next_of) -> Iterator[list[int]]:  # type: ignore[no-untyped-def]
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
