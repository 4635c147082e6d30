"""From the rows of a tape to its edges, in one pass."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

import numpy as np

from ..limits import MAX_ABOVE, MAX_QUEUES
from ..plain import NULL, flat, ids
from ..schema import OP_KINDS
from ..tape import Tape
from .columns import Ops, Queues, Table
from .contract import (
    ALLOC,
    BLOCKING,
    DEFAULT,
    EDGE,
    EVENT,
    FREE,
    ISSUE,
    PROGRAM,
    SEMAPHORE,
    SWITCH,
    SYNC,
    Contract,
)
from .declared import Declared
from .kinship import kinship
from .semaphores import pair_semaphores
from .switched import added_by_switches

__all__ = ["Resolver", "resolve"]


_KIND = {k: 1 << i for i, k in enumerate(OP_KINDS)}
_Blocked = tuple[int, int, int]
"""A unit that a host thread waited for, the rule that says so, and the queue on which the thread waited."""


def resolve(tape: Tape, *, suppose: Mapping[str, str] | None = None) -> Contract:
    """Return the edges of a tape.

    Parameters
    ----------
    tape : Tape
        The tape.
    suppose : mapping of str to str, optional
        States of debugging switches that hold instead of what the tape says, see `added_by_switches`.

    Raises
    ------
    InvalidTape
        If a reference points nowhere or a device names an unknown profile.
    CorruptTape
        If a table cannot be read.
    """
    return Resolver(tape, suppose).run()


class Resolver:
    """Walks the rows once and collects edges."""

    def __init__(self, tape: Tape, suppose: Mapping[str, str] | None = None) -> None:
        self.tape = tape
        self.check = Table(tape)
        self.ops = Ops(tape)
        self.queues = Queues(tape)
        self.declared = Declared(tape, self.check, added_by_switches(tape, suppose))
        self.check.dense(ids(flat(tape.table("queues")), "queue"), "queue")
        if self.queues.rows > MAX_QUEUES:
            raise self.check.error(f"{self.queues.rows} queues", f"at most {MAX_QUEUES}")
        self.check.below(self.queues.device, self.declared.devices, "device", nullable=False)
        self._check_ops(self.declared.buffers, self.declared.devices)
        self.lists = self._lists()

        self._sources = array("i")
        self._targets = array("i")
        self._rules = array("b")
        self._units()
        self.any_of: dict[int, tuple[int, ...]] = {}
        self.unresolved: set[int] = set()

    # --- reading ---

    def _check_ops(self, buffers: int, devices: int) -> None:
        ops, check = self.ops, self.check
        keys = np.asarray(ops.op, dtype=np.int64)
        if len(keys) and (keys[0] < 0 or (keys[1:] <= keys[:-1]).any()):
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
        kin = kinship(
            [s if k == "coll" else NULL for k, s in zip(ops.kind, ops.sync, strict=True)], ops.parent
        )
        for _, row, fault in kin.faults:
            expected = f"an op that is no part of itself, and of at most {MAX_ABOVE} others"
            raise self.check.error(f"op {ops.op[row]} {fault}", expected)
        self.unit, self.members, self.above = kin.unit, kin.members, kin.above
        self.parents, self.children = kin.parents, kin.children

    # --- edges ---

    def _edge(self, source: int, target: int, rule: int) -> bool:
        """Add an edge; False where the source is part of what the target is part of (it has only started)."""
        if source == target:
            return True
        if target in self.above and source in self.above[target]:
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
        signals = pair_semaphores(self.ops)
        self.unresolved.update(signals.unresolved)
        for signal, wait in signals.pairs:
            self._edge(self.unit[signal], self.unit[wait], SEMAPHORE)
        table = flat(self.tape.table("edges"))
        src = self.check.rows(ids(table, "src"), self.keys, "src")
        dst = self.check.rows(ids(table, "dst"), self.keys, "dst")
        for s, d in zip(src, dst, strict=True):
            self._edge(self.unit[s], self.unit[d], EDGE)
        return Contract(
            name=self.tape.name,
            ops=self.ops,
            queues=self.queues,
            unit=self.unit,
            members=self.members,
            parents=self.parents,
            children=self.children,
            above=self.above,
            profiles=self.declared.profiles,
            source=np.array(self._sources, dtype=np.int32),
            target=np.array(self._targets, dtype=np.int32),
            rule=np.array(self._rules, dtype=np.int8),
            any_of=self.any_of,
            unresolved=frozenset(self.unresolved),
            never=tuple(signals.never),
        )

    def _walk(self) -> None:
        ops, queues, unit_of = self.ops, self.queues, self.unit
        in_order, host = queues.in_order, queues.host
        count = queues.rows
        # The last op of an in-order queue, behind it those of its ancestors that have not ended.
        tails: list[list[int]] = [[] for _ in range(count)]
        # What a host thread waited for and its own ops do not cover yet.
        blocked: list[list[_Blocked]] = [[] for _ in range(count)]
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
        defaults = self.declared.default_queues(queues)
        default_of = {
            d: [q for q in members if defaults[q]]
            for d, members in of_device.items()
            if any(defaults[q] for q in members)
        }
        blocking = self.declared.blocking_sets()
        newest: dict[int, int] = {}
        added = self.declared.added
        any_added = any(added)
        serial: dict[int, list[int]] = {}
        last_part: dict[int, int] = {}
        last_kind: list[str | None] = [None] * count
        behind_collective: set[int] = set()

        for row in range(ops.rows):
            unit, queue, issuer, kind = unit_of[row], ops.queue[row], ops.issuer[row], ops.kind[row]
            issued = issuer != NULL and issuer != queue and host[issuer]
            open_tail: list[int] = []
            if in_order[queue]:
                open_tail = self._after(tails[queue], unit, PROGRAM)
                if blocked[queue]:
                    blocked[queue] = self._after_blocked(blocked[queue], unit)
            if issued:
                self._after(tails[issuer], unit, ISSUE)
                self._after_blocked(blocked[issuer], unit)
            device = queues.device[queue]
            bit = _KIND.get(kind or "", 0)
            if any_added:
                if not in_order[queue] and added[device].in_order & bit:
                    serial[queue] = [unit, *self._after(serial.get(queue, ()), unit, SWITCH)]
                if added[device].launch_in_order & bit:
                    for parent in self.parents.get(unit, ()):
                        if parent in last_part:
                            self._edge(last_part[parent], unit, SWITCH)
                        last_part[parent] = unit
                if issued and in_order[queue] and added[device].drains & bit and unit not in self.parents:
                    kept = [b for b in blocked[issuer] if b[2] != queue]
                    blocked[issuer] = kept + [(s, SWITCH, queue) for s in tails[queue]]
            if device in default_of:
                for other in of_device[device] if defaults[queue] else default_of[device]:
                    if other != queue:
                        after_queue(unit, other, queue, DEFAULT)

            stays = False
            if kind == "record":
                newest[ops.sync[row]] = row
                if last_kind[queue] == "coll":
                    behind_collective.add(row)
            elif kind == "wait":
                record = self._wait(row, newest)
                if issued and record in behind_collective and added[device].collective_waits:
                    on = ops.queue[record]
                    blocked[issuer] = [
                        b for b in blocked[issuer] if b[2] != on or not in_order[on] or b[0] > unit_of[record]
                    ]
                    blocked[issuer].append((unit_of[record], SWITCH, on))
            elif kind == "wait_any":
                self._wait_any(row, newest)
            elif kind == "sync":
                target, what = ops.target[row], ops.target_kind[row]
                if what == "queue" and target != NULL:
                    after_queue(unit, target, queue, SYNC)
                elif what == "device" and target != NULL:
                    for q in of_device.get(target, ()):
                        after_queue(unit, q, queue, SYNC)
                elif what == "all":
                    for q in not_host:
                        after_queue(unit, q, queue, SYNC)
            elif kind == "free" or kind == "alloc":
                at = self.declared.waits_for_device(ops, row)
                if at != NULL:
                    for q in of_device.get(at, ()):
                        after_queue(unit, q, queue, FREE if kind == "free" else ALLOC)
                    stays = True
            elif kind == "copy" and blocking:
                stays = ops.access_set[row] in blocking.get(device, ())
            rule = BLOCKING
            if added[device].blocks & bit and not stays and unit not in self.parents:
                stays, rule = True, SWITCH

            if in_order[queue]:
                tails[queue] = [unit, *open_tail] if open_tail else [unit]
            else:
                loose[queue].append(unit)
            seen[queue] += 1
            last_kind[queue] = kind
            if stays and issued:
                kept = [b for b in blocked[issuer] if b[0] in self.above.get(unit, ())]
                blocked[issuer] = [(unit, rule, queue), *kept]

    def _after_blocked(self, blocked: list[_Blocked], unit: int) -> list[_Blocked]:
        return [b for b in blocked if not self._edge(b[0], unit, b[1])]

    def _wait(self, row: int, newest: dict[int, int]) -> int:
        """Add the edge of a wait and return the row of its record, or `NULL`."""
        ops, unit = self.ops, self.unit
        if ops.sync_of[row] != NULL:
            self._edge(unit[ops.sync_of[row]], unit[row], EVENT)
            return ops.sync_of[row]
        state = ops.wait_state[row]
        if state == "unresolved":
            self.unresolved.add(row)
        elif state is None or state == "contract":
            record = newest.get(ops.sync[row], NULL)
            if record != NULL and ops.sync[row] != NULL:
                self._edge(unit[record], unit[row], EVENT)
                return record
        return NULL

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
            self._edge(units[0], unit[row], EVENT)
        elif units:
            self.any_of[unit[row]] = units
