"""One process's records to rows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....formats.builder import TapeBuilder
from ....formats.tape import Coverage, Process
from .calls import CallLog
from .definitions import Spool
from .delays import Applied, applied, before_start_ns, wanted_slots
from .gaps import ops_of_gap
from .graphs import GraphTables
from .inputs import Filling, Moment, infer
from .layout import NO_QUEUE, NONE, Flag, Kind, Stop
from .places import Naming, Places
from .record import Record
from .rows import AFTER, BEFORE, SELF, AccessSets, OpRows
from .serial import Call, handovers
from .sets import TouchedBytes
from .steps import Steps

__all__ = ["ProcessCollector"]

_SCHEDULER_CALLS: dict[int, str] = {
    Kind.SCHED_COMPUTE: "compute",
    Kind.SCHED_ALLOC: "allocate",
    Kind.SCHED_RESET: "reset",
}
_DONE_IN_PART = (Kind.COMPUTE, Kind.SCHED_COMPUTE)
_TAKE_TIME = ("compute", "copy", "memset", "sync")
# Plain numbers: an operator of IntFlag costs as much as all else that is done for a record.
_HOST, _FOREIGN, _FAILED, _META, _CHILD, _SPAN = (
    int(f) for f in (Flag.HOST, Flag.FOREIGN, Flag.FAILED, Flag.META, Flag.CHILD, Flag.SPAN)
)


@dataclass
class _Group:
    """A call on a meta device: the calls that it made on its simple devices are part of it."""

    op: int
    queue: int
    position: int
    start_ns: int
    empty: bool
    children: int = 0


class ProcessCollector:
    """Turns the records of one process into rows.

    Parameters
    ----------
    spool : Spool
        What the process wrote.
    process : int
        Its ordinal.
    positions : list of int
        The place of each record in the issue order of all processes.
    shift_ns : int
        Added to the process's times gives times since the tape's origin.
    rows, sets, builder, naming, graphs
        Where rows, tables and names go.
    """

    def __init__(
        self,
        spool: Spool,
        process: int,
        positions: list[int],
        shift_ns: int,
        *,
        rows: OpRows,
        sets: AccessSets,
        builder: TapeBuilder,
        naming: Naming,
        graphs: GraphTables,
    ) -> None:
        self.spool = spool
        self.process = process
        self.positions = positions
        self.shift_ns = shift_ns
        self.rows = rows
        self.builder = builder
        self.naming = naming
        self.places = Places(spool, builder, naming, process)
        self.steps = Steps(spool)
        self._first_graph = graphs.add(spool, self.places, process, self.steps, positions)
        self._touched = TouchedBytes(self.places, sets)
        self.failed_computes = 0
        self.device_computes = 0
        self.unresolved = 0
        self.handovers: Counter[str] = Counter()
        self._ops_on: Counter[int] = Counter()
        self._timed_on: Counter[int] = Counter()
        self._timeable_on: Counter[int] = Counter()
        self._unknown_on: Counter[int] = Counter()
        self._computes: Counter[int] = Counter()
        self._alloc: dict[int, int] = {}
        self._free: dict[int, int] = {}
        self._copies: dict[int, tuple[int, int]] = {}
        self._recorded: dict[tuple[int, int], int] = {}
        self._waits: list[tuple[int, int, int]] = []
        self._groups: dict[int, _Group | None] = {}
        self._metas: list[_Group] = []
        self._last_of: dict[int, int] = {}
        # Without a second thread there is nobody to hand over to.
        self._log = CallLog(spool) if sum(spool.host_threads()) > 1 else None
        self._moments: dict[int, list[Moment]] = {}
        self._step_at: dict[int, int] = {}
        self._other_sync: dict[str, int] = {}
        # A record that is not there was dropped then, and came before everything that is.
        self._before_the_window = spool.dropped > 0 and spool.lost == 0
        self._runs: dict[int, tuple[int, int]] = {}
        self._held_up = dict.fromkeys(wanted_slots(spool), -1)
        self._late_start = before_start_ns(spool)
        # The switch was set when the devices were made, which are all of them synchronous then.
        synchronous = spool.switches.get("TAPEDELAY_SYNC") == "on"
        self._synchronous = {
            q
            for q, made in zip(self.places.queues, spool.queues, strict=True)
            if q is not None and synchronous and spool.devices[made.device].is_test
        }

    # --- the walk ---------------------------------------------------------------------------------------

    def run(self) -> None:
        """Add the rows of all records, then what only the whole shows."""
        r = self.spool.records
        runs = r[r["kind"] == Kind.EXEC]
        times = zip(runs["issue_ns"].tolist(), runs["end_ns"].tolist(), strict=True)
        self._runs = dict(zip(runs["a"].tolist(), times, strict=True))
        kept = np.flatnonzero(np.isin(r["kind"], _TAKEN))
        columns = (r[n][kept].tolist() for n in Record._fields[2:])
        slots = self.spool.slots[kept].tolist()
        positions = np.array(self.positions, np.int64)[kept].tolist()
        for record in map(Record, positions, slots, *columns):
            self._take(record)
        self.rows.give_steps(self.positions, self.steps.step, self.steps.split)
        self._close_metas()
        self._resolve()
        self._add_handovers()
        self._step_at = dict(zip(self.positions, self.steps.step.tolist(), strict=True))
        for thread, moments in self._moments.items():
            for filling in infer(moments):
                self._add_filling(thread, filling)

    def _take(self, r: Record) -> None:
        if r.kind == Kind.GAP:
            self._add_gap(r)
            return
        handler = _HANDLERS.get(r.kind)
        if handler is None:  # a queue was made
            if self._log:
                self._log.add(r, None)
            return
        if not r.is_child:  # the thread's meta call has returned
            self._groups[r.thread] = None
        if r.flags & _FAILED and r.kind not in _DONE_IN_PART:  # it was declined and did nothing
            return
        group = self._groups.get(r.thread)
        host = self.places.thread(r.thread)
        on_host = bool(r.flags & _HOST) or r.queue == NO_QUEUE
        values: dict[str, Any] = {
            "queue": host if on_host else self.places.queue_of(r.queue, r.thread),
            "issuer": host,
            "name": None if r.name == NONE else self.spool.names[r.name],
            "issue_ns": r.issue_ns + self.shift_ns,
            "parent": None if group is None else group.op,
            "access_set": 0,
            **self._times(r),
        }
        if not handler(self, r, values):  # nothing that orders or touches anything
            return
        op = self.rows.add_values(r.position, SELF, values)
        if r.slot in self._held_up:
            self._held_up[r.slot] = op
        self._count(values)
        self._complete(r, values)
        if group is not None:
            group.children += 1
            self._last_of[group.position] = r.position
        if self._log:
            self._log.add(r, None if group is None else (group.position, group.start_ns))
        if r.flags & _META:
            no_nodes = r.kind != Kind.COMPUTE or r.e == 0
            group = _Group(op, values["queue"], r.position, r.issue_ns, no_nodes)
            self._groups[r.thread] = group
            self._metas.append(group)
        self._remember(r, op)

    def _times(self, r: Record) -> dict[str, int]:
        run = self._runs.get(r.slot)
        if run is not None:
            return {
                "start_after_issue_ns": max(0, run[0] - r.issue_ns),
                "duration_ns": max(0, run[1] - run[0]),
            }
        if r.end_ns:
            # a wait is held up when it is over
            late = 0 if r.kind in (Kind.SYNC, Kind.EVENT_SYNC) else self._late_start.get(r.slot, 0)
            return {"start_after_issue_ns": late, "duration_ns": max(0, r.end_ns - r.issue_ns - late)}
        return {}

    def _count(self, values: dict[str, Any]) -> None:
        queue = values["queue"]
        self._ops_on[queue] += 1
        if values["kind"] in _TAKE_TIME:
            self._timeable_on[queue] += 1
            self._timed_on[queue] += "duration_ns" in values
        self._unknown_on[queue] += values["access_set"] is None

    def _remember(self, r: Record, op: int) -> None:
        if r.kind == Kind.COPY:
            self._copies[r.slot] = (op, r.position)
        elif r.kind == Kind.EVENT_RECORD:
            self._recorded[r.d, r.a] = op
        elif r.kind in (Kind.EVENT_WAIT, Kind.EVENT_SYNC):
            if r.flags & _FOREIGN:
                self.rows.set(op, wait_state="foreign")
            elif r.a == 0 and r.d in self.spool.late_events:  # its record was perhaps before the recorder
                self.rows.set(op, wait_state="unresolved")
                self.unresolved += 1
            elif r.a == 0:
                self.rows.set(op, wait_state="none")
            else:
                self._waits.append((op, r.d, r.a))
        elif r.kind == Kind.BUFFER_ALLOC:
            self._alloc[r.e] = op
        elif r.kind == Kind.BUFFER_FREE:
            self._free.setdefault(r.e, op)  # a second free is the fault that check names

    def _moment(self, r: Record, **what: Any) -> None:
        group = self._groups.get(r.thread)
        position = r.position if group is None else group.position
        self._moments.setdefault(r.thread, []).append(Moment(position, **what))

    # --- one kind each: fill in the values; False: not worth an op ------------------------------------------

    def _on_compute(self, r: Record, values: dict[str, Any]) -> bool:
        device = self.places.devices[self.spool.queues[r.queue].device]
        self._computes[device] += 1
        values["kind"] = "compute"
        values["name"] = f"#{self._computes[device]}"
        failed = bool(r.flags & _FAILED)
        self.failed_computes += failed
        if r.flags & _META:  # its accesses are its children's
            return True
        self.device_computes += values["queue"] != values["issuer"]
        if r.d == NONE:
            values["access_set"] = None
            return True
        values["access_set"], written = self._touched.graph(r.d, failed)
        values["name"] = f"{values['name']} {written}".rstrip()
        self._moment(r, graph=r.d, inputs=self._touched.inputs(r.d))
        return True

    def _on_copy(self, r: Record, values: dict[str, Any]) -> bool:
        values |= {"kind": "copy", "bytes": r.c}
        values["access_set"] = self._touched.pair(r.d, r.a, r.e, r.b, r.c, wide=bool(r.flags & _SPAN))
        if r.kind == Kind.SET and r.d == NONE and r.e != NONE and values["queue"] == values["issuer"]:
            self._moment(r, write=(r.e, r.b, r.b + r.c))
        return True

    def _on_fill(self, r: Record, values: dict[str, Any]) -> bool:
        start, size = (r.b, r.c) if r.kind == Kind.MEMSET else (0, self.spool.buffers[r.e].bytes)
        values |= {"kind": "memset", "bytes": size}
        values["access_set"] = self._touched.pair(NONE, 0, r.e, start, size, source=False)
        return True

    def _on_event(self, r: Record, values: dict[str, Any]) -> bool:
        values |= {
            "kind": "record" if r.kind == Kind.EVENT_RECORD else "wait",
            "sync": self.places.syncs[r.d],
        }
        if r.kind == Kind.EVENT_SYNC:
            values["queue"] = values["issuer"]
            self._moment(r, waits=True)
        return True

    def _on_sync(self, r: Record, values: dict[str, Any]) -> bool:
        target = self.places.queues[r.queue]
        if target is None:  # a backend that works on the calling thread: nothing to wait for
            return False
        values |= {"kind": "sync", "queue": values["issuer"], "target_kind": "queue", "target": target}
        self._moment(r, waits=True)
        return True

    def _on_life(self, r: Record, values: dict[str, Any]) -> bool:
        values |= {"kind": "alloc" if r.kind == Kind.BUFFER_ALLOC else "free", "queue": values["issuer"]}
        values["target"] = self.places.buffers[r.e]
        return True

    def _on_event_free(self, r: Record, values: dict[str, Any]) -> bool:
        values |= {"kind": "destroy", "queue": values["issuer"], "sync": self.places.syncs[r.d]}
        return True

    def _on_queue_free(self, r: Record, values: dict[str, Any]) -> bool:
        values |= {"kind": "mark", "queue": values["issuer"], "name": "queue freed"}
        return True

    def _on_scheduler(self, r: Record, values: dict[str, Any]) -> bool:
        """A call on the scheduler is no work of its own: a mark, without the time of what was done in it."""
        for name in ("start_after_issue_ns", "duration_ns"):
            values.pop(name, None)
        what = _SCHEDULER_CALLS[r.kind]
        if r.kind != Kind.SCHED_RESET and r.d != NONE:
            what += f" graph {self._first_graph + r.d}"
        values |= {"kind": "mark", "queue": values["issuer"], "name": f"scheduler {what}"}
        return True

    def _on_split_copy_wait(self, r: Record, values: dict[str, Any]) -> bool:
        """The copy runs on one queue and the destination's queue waits for it: an event that has no name."""
        values |= {"kind": "wait", "sync": self._sync("split copy")}
        copy = self._copies.get(r.a)
        if copy is None and self._before_the_window:
            values["wait_state"] = "none"
            return True
        if copy is None:  # its record was lost
            values["wait_state"] = "unresolved"
            self.unresolved += 1
            return True
        op, at = copy
        of_copy = {n: self.rows.get(op, n) for n in ("queue", "issuer", "issue_ns", "parent")}
        values["sync_of"] = self.rows.add(
            at, AFTER, kind="record", sync=values["sync"], access_set=0, **of_copy
        )
        return True

    # --- what needs the whole walk --------------------------------------------------------------------------

    def _complete(self, r: Record, values: dict[str, Any]) -> None:
        """On a synchronous test device a call returns when the work is done."""
        if values["queue"] in self._synchronous:
            self._insert(r.position, AFTER, values, kind="sync", target_kind="queue", target=values["queue"])

    def _insert(self, position: int, place: int, beside: dict[str, Any], **values: Any) -> int:
        """Add an op of the host thread beside one of its calls, and part of the same meta call."""
        host = beside["issuer"]
        common = {"queue": host, "issuer": host, "issue_ns": beside["issue_ns"], "parent": beside["parent"]}
        return self.rows.add(position, place, **common, access_set=0, origin="declared", **values)

    def _sync(self, name: str) -> int:
        found = self._other_sync.get(name)
        if found is None:
            fresh = self.naming.fresh("syncs", name)
            found = self.builder.sync(name=fresh, kind="other", process=self.process)
            self._other_sync[name] = found
        return found

    def _close_metas(self) -> None:
        """A meta call touches what its children touch; a compute whose children were not seen is unknown."""
        for group in self._metas:
            if group.children:
                self.rows.set(group.op, access_set=0)
            elif not group.empty:
                self.rows.set(group.op, access_set=None)
                self._unknown_on[group.queue] += 1

    def _resolve(self) -> None:
        for op, event, generation in self._waits:
            record = self._recorded.get((event, generation))
            if record is None and self._before_the_window:
                self.rows.set(op, wait_state="none")
            elif record is None or not self.rows.precedes(record, op):
                # It was lost, or two threads called in the same moment and which came first is not known.
                self.rows.set(op, wait_state="unresolved")
                self.unresolved += 1
            else:
                self.rows.set(op, sync_of=record)

    def _add_handovers(self) -> None:
        for before, after, why in handovers(self._log.calls if self._log else (), self._last_of):
            self.handovers[why] += 1
            sync = self._sync("api-serial")
            record = self._insert(
                self._last_of.get(before.position, before.position),
                AFTER,
                self._beside(before),
                kind="record",
                sync=sync,
                name="api-serial",
            )
            beside = self._beside(after)
            self._insert(
                after.position, BEFORE, beside, kind="wait", sync=sync, sync_of=record, name="api-serial"
            )

    def _add_gap(self, r: Record) -> None:
        for values in ops_of_gap(r, self.places):
            values["issue_ns"] = r.issue_ns + self.shift_ns
            if values["kind"] == "wait":
                values["sync"] = self._sync("gap")
            self.rows.add_values(r.position, SELF, values)

    def _beside(self, call: Call) -> dict[str, Any]:
        issuer = self.places.thread(call.thread)
        return {"issuer": issuer, "issue_ns": None, "parent": None}

    def _add_filling(self, thread: int, filling: Filling) -> None:
        host = self.places.thread(thread)
        before = filling.before
        op = self.rows.add(
            filling.position if before else self._last_of.get(filling.position, filling.position),
            BEFORE if before else AFTER,
            kind="host",
            name="inputs",
            queue=host,
            issuer=host,
            access_set=self._touched.inferred(filling.writes),
            origin="inferred",
        )
        self.rows.set_step(op, self._step_at[filling.compute])

    def link_buffers(self) -> None:
        """Name the ops that begin and end each buffer, once ops have their numbers."""
        rows = self.builder.rows("buffers")
        for column, ops in (("alloc_op", self._alloc), ("free_op", self._free)):
            for buffer, op in ops.items():
                rows[self.places.buffers[buffer]][column] = int(self.rows.numbered[op])

    def delays(self) -> Applied:
        """Return the delays that were applied, and the op of each."""
        return applied(self.spool, self._held_up)

    # --- manifest -------------------------------------------------------------------------------------------

    def process_entry(self) -> Process:
        """Return what the manifest says about the process."""
        s = self.spool
        return Process(
            self.process,
            complete=s.complete,
            records=s.recorded,
            lost=s.lost,
            wall_offset_ns=s.wall_ns - s.mono_ns - self.shift_ns if len(s.records) else None,
        )

    def coverage(self) -> list[Coverage]:
        """Return how much was seen of each of the process's queues."""
        entries = [
            Coverage(
                q,
                accesses=self._level(self._ops_on[q] - self._unknown_on[q], self._ops_on[q]),
                host_accesses="partial",
                waits="partial",
                times=self._level(self._timed_on[q], self._timeable_on[q]),
            )
            for q in self.places.threads
            if q is not None
        ]
        entries += [
            Coverage(
                q,
                accesses=self._level(self._ops_on[q] - self._unknown_on[q], self._ops_on[q]),
                times=self._level(self._timed_on[q], self._timeable_on[q]),
            )
            for q in self.places.queues
            if q is not None
        ]
        return entries

    @staticmethod
    def _level(seen: int, of: int) -> str:
        return "full" if seen >= of else "partial" if seen else "none"

    def notes(self) -> list[str]:
        """Return what is to be said about the recording, in words."""
        found = list(self.spool.notes)
        if self.failed_computes:
            found.append(
                f"{self.failed_computes} computes failed: how much of their work was done is not known"
            )
        if self.unresolved:
            found.append(
                f"{self.unresolved} waits whose record was not seen: findings that depend on them are unknown"
            )
        if self.steps.unsplit:
            found.append(
                f"{self.steps.unsplit} steps were computed in other pieces than the scheduler's splits: "
                "their ops have no split"
            )
        if self.spool.torn:
            found.append("the last definition was cut short: the process died while it wrote it")
        if self.spool.failed:
            found.append(_stopped(self.spool))
        return found


_STOPPED = {
    Stop.MEMORY: "the process ran out of memory",
    Stop.THREAD: "the process could have no more threads",
    Stop.FORK: "forks of the process could not be seen",
}


def _stopped(s: Spool) -> str:
    """Return why a process's recording ended before the process did."""
    text = "recording stopped early: "
    if s.why in _STOPPED:
        return text + _STOPPED[Stop(s.why)]
    reason = f" ({os.strerror(s.error)})" if 0 < s.error < 4096 else ""
    return f"{text}the spool could not be written any more{reason}"


_Handler = Callable[[ProcessCollector, Record, dict[str, Any]], bool]
_HANDLERS: dict[int, _Handler] = {
    Kind.COMPUTE: ProcessCollector._on_compute,
    Kind.COPY: ProcessCollector._on_copy,
    Kind.SET: ProcessCollector._on_copy,
    Kind.GET: ProcessCollector._on_copy,
    Kind.MEMSET: ProcessCollector._on_fill,
    Kind.CLEAR: ProcessCollector._on_fill,
    Kind.EVENT_RECORD: ProcessCollector._on_event,
    Kind.EVENT_WAIT: ProcessCollector._on_event,
    Kind.EVENT_SYNC: ProcessCollector._on_event,
    Kind.SYNC: ProcessCollector._on_sync,
    Kind.BUFFER_ALLOC: ProcessCollector._on_life,
    Kind.BUFFER_FREE: ProcessCollector._on_life,
    Kind.EVENT_FREE: ProcessCollector._on_event_free,
    Kind.QUEUE_FREE: ProcessCollector._on_queue_free,
    Kind.SPLIT_COPY_WAIT: ProcessCollector._on_split_copy_wait,
    Kind.SCHED_COMPUTE: ProcessCollector._on_scheduler,
    Kind.SCHED_ALLOC: ProcessCollector._on_scheduler,
    Kind.SCHED_RESET: ProcessCollector._on_scheduler,
}
"""What a record becomes; kinds that are not here have no row of their own."""
_TAKEN = (*_HANDLERS, Kind.QUEUE_INIT, Kind.GAP)
