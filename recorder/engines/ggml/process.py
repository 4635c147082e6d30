"""One process's records to rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from ....formats.builder import TapeBuilder
from ....formats.tape import Coverage, Process
from .called import Called
from .calls import call_log
from .definitions import Spool
from .delays import Applied, applied, wanted_slots
from .gaps import ops_of_gap
from .graphs import GraphTables
from .inputs import Filling, infer
from .joins import Ints, codes, is_kind, last_equal
from .layout import Flag, Kind
from .moments import moments
from .op_columns import NULL, OpColumns
from .places import Naming, Places
from .record import Record
from .rows import AFTER, BEFORE, SELF, AccessSets, Block, OpRows
from .said import process_notes
from .serial import Call, handovers
from .sets import TouchedBytes
from .steps import Steps
from .thread_rows import ThreadRows

__all__ = ["ProcessCollector"]

_TAKE_TIME = (
    Kind.COMPUTE, Kind.COPY, Kind.SET, Kind.GET, Kind.MEMSET, Kind.CLEAR, Kind.SYNC
)  # fmt: skip


class ProcessCollector:
    """Turns the records of one process into rows.

    Parameters
    ----------
    spool : Spool
        What the process wrote.
    process : int
        Its ordinal.
    positions : array of int
        The place of each record in the issue order of all processes.
    shift_ns : int
        Added to the process's times gives times since the tape's origin.
    threads : ThreadRows
        Rows of its host threads.
    rows, sets, builder, naming, graphs
        Where rows, tables and names go.
    """

    def __init__(
        self,
        spool: Spool,
        process: int,
        positions: Ints,
        shift_ns: int,
        *,
        threads: ThreadRows,
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
        self.threads = threads
        self.places = Places(spool, builder, naming, process, threads)
        self.steps = Steps(spool)
        self._first_graph = graphs.add(spool, self.places, process, self.steps, positions)
        self._touched = TouchedBytes(self.places, sets)
        self.failed_computes = 0
        self.device_computes = 0
        self.unresolved = 0
        self.handovers: Counter[str] = Counter()
        self._ops_on: list[int] = []
        self._timed_on: list[int] = []
        self._timeable_on: list[int] = []
        self._unknown_on: list[int] = []
        self._alloc: dict[int, int] = {}
        self._free: dict[int, int] = {}
        self._last_of: dict[int, int] = {}
        self._other_sync: dict[str, int] = {}
        # A record that is not there was dropped then, and came before everything that is.
        self._before_the_window = spool.dropped > 0 and spool.lost == 0
        self._held_up = dict.fromkeys(wanted_slots(spool), -1)
        # The switch was set when the devices were made, which are all of them synchronous then.
        synchronous = spool.switches.get("TAPEDELAY_SYNC") == "on"
        self._synchronous = [
            q
            for q, made in zip(self.places.queues, spool.queues, strict=True)
            if q is not None and synchronous and spool.devices[made.device].is_test
        ]

    def run(self) -> None:
        """Add the rows of all records, then what only the whole shows."""
        spool = self.spool
        calls = Called(spool, self.places, self.positions)
        columns = OpColumns(
            spool,
            self.places,
            calls,
            rows=self.rows,
            touched=self._touched,
            first_graph=self._first_graph,
        )
        block = columns.add(self.shift_ns)
        self._name_syncs(calls)
        self._add_gaps()
        self._add_begins()
        self._complete(calls, block)
        self._resolve_split_copies(calls, block)
        self._resolve_events(calls, block)
        self._remember(calls, block)
        self._close_metas(calls, block)
        self._count(calls, block)
        if len(self.steps.calls):
            self.rows.give_steps(self.positions, self.steps.step, self.steps.split)
        # Without a second thread there is nobody to hand over to.
        if sum(spool.host_threads()) > 1:
            self._add_handovers(call_log(spool, calls, self.positions))
        for thread, found in moments(calls, self._touched):
            for filling in infer(found):
                self._add_filling(thread, filling)

    # --- what calls say of each other -----------------------------------------------------------------------

    def _name_syncs(self, calls: Called) -> None:
        """Give syncs without a name of their own ids in the order of their first uses."""
        gaps = np.flatnonzero(self.spool.records["kind"] == Kind.GAP)
        waits = calls.at[calls.kind == Kind.SPLIT_COPY_WAIT]
        first = {"split copy": waits, "gap": [g for g in gaps.tolist() if self._waits_of_gap(g)]}
        for name in sorted((n for n in first if len(first[n])), key=lambda n: int(first[n][0])):
            self._sync(name)

    def _complete(self, calls: Called, block: Block) -> None:
        """On a synchronous test device a call returns when the work is done."""
        if not self._synchronous:
            return
        rows = np.flatnonzero(np.isin(calls.queue, self._synchronous))
        self.rows.add_block(
            calls.position[rows],
            AFTER,
            {
                **self._beside_calls(calls, block, rows, queue=calls.host[rows]),
                "kind": self._same("sync", rows),
                "target_kind": self._same("queue", rows),
                "target": calls.queue[rows],
                "origin": self._same("declared", rows),
            },
        )

    def _resolve_split_copies(self, calls: Called, block: Block) -> None:
        """A copy runs on one queue and the destination's queue waits for it: an event that has no name."""
        rows = np.flatnonzero(calls.kind == Kind.SPLIT_COPY_WAIT)
        if not len(rows):
            return
        sync = self._sync("split copy")
        block.columns["sync"][rows] = sync
        copies = np.flatnonzero(calls.kind == Kind.COPY)
        found = last_equal(calls.slot[copies], calls.some("a", rows))
        copy = copies[found] if len(copies) else np.zeros(len(rows), np.int64)
        seen = (found >= 0) & (copy < rows)
        self._set_state(block, rows[~seen], "none" if self._before_the_window else "unresolved")
        rows, copy = rows[seen], copy[seen]
        made = self.rows.add_block(
            calls.position[copy],
            AFTER,
            {
                **self._beside_calls(calls, block, copy, queue=calls.queue[copy]),
                "kind": self._same("record", copy),
                "sync": np.full(len(copy), sync, np.int32),
            },
        )
        block.columns["sync_of"][rows] = made.first + np.arange(len(rows))

    def _resolve_events(self, calls: Called, block: Block) -> None:
        """Name the record of each wait."""
        waits = np.flatnonzero(is_kind(calls.kind, Kind.EVENT_WAIT, Kind.EVENT_SYNC))
        if not len(waits):
            return
        foreign = calls.has(Flag.FOREIGN)[waits]
        event, generation = calls.some("d", waits), calls.some("a", waits)
        never = ~foreign & (generation == 0)
        late = never & np.isin(event, list(self.spool.late_events))
        self._set_state(block, waits[foreign], "foreign")
        self._set_state(block, waits[late], "unresolved")  # its record was perhaps before the recorder
        self._set_state(block, waits[never & ~late], "none")
        rest = ~foreign & ~never
        records = np.flatnonzero(calls.kind == Kind.EVENT_RECORD)
        code, _ = codes(
            np.concatenate([calls.some("d", records), event]),
            np.concatenate([calls.some("a", records), generation]),
        )
        found = last_equal(code[: len(records)], code[len(records) :])
        record = records[found] if len(records) else np.zeros(len(waits), np.int64)
        gone = rest & (found < 0) & self._before_the_window
        self._set_state(block, waits[gone], "none")
        # Two threads may have called in the same moment, and which came first is not known.
        seen = rest & (found >= 0) & (record < waits)
        # It was lost, or stands behind.
        self._set_state(block, waits[rest & ~seen & ~gone], "unresolved")
        block.columns["sync_of"][waits[seen]] = block.first + record[seen]

    def _set_state(self, block: Block, rows: Ints, state: str) -> None:
        block.columns["wait_state"][rows] = self.rows.text(state)
        self.unresolved += len(rows) * (state == "unresolved")

    def _remember(self, calls: Called, block: Block) -> None:
        """Note which ops begin and end buffers, and which were held up."""
        for kind, ops in ((Kind.BUFFER_ALLOC, self._alloc), (Kind.BUFFER_FREE, self._free)):
            rows = np.flatnonzero(calls.kind == kind)
            for buffer, row in zip(calls.some("e", rows).tolist(), rows.tolist(), strict=True):
                ops.setdefault(buffer, block.first + row)  # a second free is the fault that check names
        if self._held_up:
            rows = np.flatnonzero(np.isin(calls.slot, list(self._held_up)))
            ids = (block.first + rows).tolist()
            self._held_up.update(zip(calls.slot[rows].tolist(), ids, strict=True))
        failed = (calls.kind == Kind.COMPUTE) & calls.has(Flag.FAILED)
        self.failed_computes = int(np.count_nonzero(failed))
        on_device = (calls.kind == Kind.COMPUTE) & ~calls.has(Flag.META) & (calls.queue != calls.host)
        self.device_computes = int(np.count_nonzero(on_device))

    def _close_metas(self, calls: Called, block: Block) -> None:
        """A meta call touches what its children touch; a compute whose children were not seen is unknown."""
        metas = np.flatnonzero(calls.has(Flag.META))
        if not len(metas):
            return
        parts = np.flatnonzero(calls.parent >= 0)
        has_parts = np.zeros(len(calls), np.bool_)
        has_parts[calls.parent[parts]] = True
        positions = calls.position
        self._last_of = dict(
            zip(positions[calls.parent[parts]].tolist(), positions[parts].tolist(), strict=True)
        )
        access_set = block.columns["access_set"]
        access_set[metas[has_parts[metas]]] = 0
        alone = metas[~has_parts[metas]]
        computes = (calls.kind[alone] == Kind.COMPUTE) & (calls.some("e", alone) != 0)
        access_set[alone[computes]] = NULL

    def _count(self, calls: Called, block: Block) -> None:
        """Count for each queue of the tape what was seen of it."""
        takes_time = is_kind(calls.kind, *_TAKE_TIME)
        size = len(self.builder.rows("queues"))
        queue = calls.queue
        timed = takes_time & (calls.duration_ns >= 0)
        unknown = block.columns["access_set"] == NULL
        self._ops_on, self._timeable_on, self._timed_on, self._unknown_on = (
            np.bincount(queue[which], minlength=size).tolist()
            for which in (slice(None), takes_time, timed, unknown)
        )

    # --- what is put between calls --------------------------------------------------------------------------

    def _same(self, text: str, rows: Ints) -> Any:
        return np.full(len(rows), self.rows.text(text), np.int32)

    def _beside_calls(self, calls: Called, block: Block, rows: Ints, *, queue: Ints) -> dict[str, Any]:
        """Return what ops beside calls have in common with them; they touch nothing."""
        return {
            "queue": queue,
            "issuer": calls.host[rows],
            "issue_ns": calls.issue_ns[rows] + self.shift_ns,
            "parent": block.columns["parent"][rows],
            "access_set": np.zeros(len(rows), np.int32),
        }

    def _sync(self, name: str) -> int:
        found = self._other_sync.get(name)
        if found is None:
            fresh = self.naming.fresh("syncs", name)
            found = self.builder.sync(name=fresh, kind="other", process=self.process)
            self._other_sync[name] = found
        return found

    def _waits_of_gap(self, record: int) -> bool:
        return any(v["kind"] == "wait" for v in ops_of_gap(self._record(record), self.places))

    def _record(self, at: int) -> Record:
        columns = (self.spool.records[n][at].item() for n in Record._fields[2:])
        return Record(int(self.positions[at]), int(self.spool.slots[at]), *columns)

    def _add_gaps(self) -> None:
        for at in np.flatnonzero(self.spool.records["kind"] == Kind.GAP).tolist():
            gap = self._record(at)
            for values in ops_of_gap(gap, self.places):
                values["issue_ns"] = gap.issue_ns + self.shift_ns
                if values["kind"] == "wait":
                    values["sync"] = self._sync("gap")
                self.rows.add_values(gap.position, SELF, values)

    def _add_begins(self) -> None:
        """Say where a thread begins on a row of others: what stands before it is in no known order."""
        for record, thread in self.threads.begins:
            words = {"kind": "mark", "name": "another thread", "access_set": None, "origin": "inferred"}
            self._insert(int(self.positions[record]), BEFORE, thread, **words)

    def _add_handovers(self, log: list[Call]) -> None:
        for before, after, why in handovers(log, self._last_of):
            self.handovers[why] += 1
            position = self._last_of.get(before.position, before.position)
            words = {"sync": self._sync("api-serial"), "name": "api-serial"}
            record = self._insert(position, AFTER, before.thread, kind="record", **words)
            self._insert(after.position, BEFORE, after.thread, kind="wait", sync_of=record, **words)

    def _insert(self, position: int, place: int, thread: int, **values: Any) -> int:
        """Add an op of a host thread that nobody recorded."""
        host = self.places.thread(thread)
        common = {"queue": host, "issuer": host, "access_set": 0, "origin": "declared"}
        return self.rows.add_values(position, place, {**common, **values})

    def _add_filling(self, thread: int, filling: Filling) -> None:
        before = filling.before
        op = self._insert(
            filling.position if before else self._last_of.get(filling.position, filling.position),
            BEFORE if before else AFTER,
            thread,
            kind="host",
            name="inputs",
            access_set=self._touched.inferred(filling.writes),
            origin="inferred",
        )
        self.rows.set_step(op, int(self.steps.step[np.searchsorted(self.positions, filling.compute)]))

    def link_buffers(self) -> None:
        """Name the ops that begin and end each buffer, once ops have their numbers."""
        rows = self.builder.rows("buffers")
        for column, ops in (("alloc_op", self._alloc), ("free_op", self._free)):
            for buffer, op in ops.items():
                rows[self.places.buffers[buffer]][column] = int(self.rows.numbered[op])

    def delays(self) -> Applied:
        """Return the delays that were applied, and the op of each."""
        return applied(self.spool, self._held_up)

    # --- manifest -----------------------------------------------------------------------------------------

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
        unsure = {self.places.threads[t] for t in self.threads.shared}
        entries = [
            Coverage(
                q,
                accesses=self._level(self._ops_on[q] - self._unknown_on[q], self._ops_on[q] + (q in unsure)),
                host_accesses="partial",
                waits="partial",
                times=self._level(self._timed_on[q], self._timeable_on[q]),
            )
            for q in dict.fromkeys(self.places.threads)
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
        return process_notes(
            self.spool,
            failed_computes=self.failed_computes,
            unresolved=self.unresolved,
            unsplit=self.steps.unsplit,
            threads=self.threads,
        )
