"""Spools to a tape."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ....formats.builder import TapeBuilder
from ....formats.errors import SpoolError
from ....formats.profiles import BUILTIN
from ....formats.tape import Coverage, Manifest, Process, Tape
from .accesses import Touch, thin, touches
from .inputs import Filling, Moment, infer
from .places import Naming, Places
from .rows import AFTER, BEFORE, SELF, OpRows
from .serial import Call, handovers
from .spool import NO_QUEUE, NONE, Flag, Kind, Spool, read_spools

__all__ = ["collect", "collect_directory", "hook_reports"]

_NOTE_SPLITS = "split and step: not seen (function tables do not show them)"
_PATH = re.compile(r"(?:[A-Za-z]:)?[\\/][^\s:;,'\")]+")
_WORD = re.compile(r"[A-Za-z0-9_.+-]{1,24}")
_COPIES = (Kind.COPY, Kind.SET, Kind.GET)
_REPORT = ("package", "version", "fault")
_TAKE_TIME = ("compute", "copy", "memset", "sync")


def collect_directory(directory: Path) -> Tape:
    """Read all spools of a directory and return them as one tape.

    Raises
    ------
    SpoolError
        There is nothing to collect, or a spool is damaged.
    """
    spools = read_spools(directory)
    if not spools:
        raise SpoolError(
            "no process wrote a spool",
            expected="at least one process that loaded the plugin",
            where=directory.name,
            next_step="see that the program loads ggml and that ggml can load plugins",
        )
    tape = collect(spools)
    packages = hook_reports(directory)
    if packages and tape.manifest.engine:
        engine = {
            **tape.manifest.engine,
            "package": packages[0]["package"],
            "package_version": packages[0]["version"],
        }
        tape.manifest = replace(tape.manifest, engine=engine)
    return tape


def hook_reports(directory: Path) -> list[dict[str, str]]:
    """Return what the import hook left behind: each engine's package, its version, and what went wrong."""
    reports = []
    for path in sorted(directory.glob("hook-*.json")):
        with suppress(OSError, ValueError):
            report = json.loads(path.read_text())
            if isinstance(report, dict) and all(isinstance(report.get(k), str) for k in _REPORT):
                reports.append({k: _mask(report[k]) for k in _REPORT})
    return reports


def collect(spools: Sequence[Spool]) -> Tape:
    """Return the tape of some processes' spools.

    Times count from the first record of any process; processes are lined up by their wall clocks. Addresses,
    process ids and device descriptions stay behind.
    """
    return _Collector(spools).tape()


class _Collector:
    def __init__(self, spools: Sequence[Spool]) -> None:
        self.spools = list(spools)
        self.builder = TapeBuilder()
        self.naming = Naming()
        self.rows = OpRows()
        self.origin_ns = min(
            (int(s.records["issue_ns"][0]) + _shift(s) for s in spools if len(s.records)), default=0
        )
        self.first_position: list[int] = []

    def tape(self) -> Tape:
        positions = self._positions()
        done = [
            _ProcessCollector(self, s, p, at)
            for p, (s, at) in enumerate(zip(self.spools, positions, strict=True))
        ]
        for d in done:
            d.run()
        ops = self.rows.finish()
        for d in done:
            d.link_buffers()
        built = self.builder.build()
        tables = {n: built.table(n) for n in built.present}
        tables["ops"] = ops
        return Tape(self._manifest(done), tables)

    def _positions(self) -> list[list[int]]:
        """Give every record of every process its place in one issue order."""
        times = [s.records["issue_ns"].astype(np.int64) + _shift(s) for s in self.spools]
        owner = (
            np.concatenate([np.full(len(t), i) for i, t in enumerate(times)])
            if times
            else np.empty(0, np.int64)
        )
        at = np.concatenate([np.arange(len(t)) for t in times]) if times else np.empty(0, np.int64)
        flat = np.concatenate(times) if times else np.empty(0, np.int64)
        order = np.lexsort((at, owner, flat))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return [rank[owner == i].tolist() for i in range(len(times))]

    def _manifest(self, done: list[_ProcessCollector]) -> Manifest:
        first = next((s for s in self.spools if s.engine), None)
        engine: dict[str, Any] = {}
        if first is not None:
            engine = {"name": first.engine, "build": first.build, "api_version": first.api_version}
        notes = [_NOTE_SPLITS]
        for d in done:
            notes += [n for n in d.notes() if n not in notes]
        builds = {(s.engine, s.build) for s in self.spools if s.engine}
        if len(builds) > 1:
            notes.append(f"{len(builds)} engine builds in one recording: the manifest names the first")
        switches: dict[str, str] = {}
        for s in self.spools:
            for name, word in s.switches.items():
                switches.setdefault(_mask(name), word if _WORD.fullmatch(word) else "on")
        return Manifest(
            engine=engine,
            profiles=_profiles(self.builder),
            processes=tuple(d.process_entry() for d in done),
            coverage=tuple(c for d in done for c in d.coverage()),
            switches=switches,
            notes=tuple(notes),
            complete=all(s.complete for s in self.spools),
            lost=sum(s.lost for s in self.spools),
        )


class _ProcessCollector:
    """Turns the records of one process into rows."""

    def __init__(self, whole: _Collector, spool: Spool, process: int, positions: list[int]) -> None:
        self.whole = whole
        self.rows = whole.rows
        self.builder = whole.builder
        self.spool = spool
        self.process = process
        self.positions = positions
        self.places = Places(spool, whole.builder, whole.naming, process)
        self.shift_ns = _shift(spool) - whole.origin_ns
        self.failed = Counter[str]()
        self.unresolved = 0
        self.ops_on: Counter[int] = Counter()
        self.timed_on: Counter[int] = Counter()
        self.timeable_on: Counter[int] = Counter()
        self.unknown_on: Counter[int] = Counter()
        self._thinned: dict[int, tuple[int, str]] = {}
        self._pair_sets: dict[tuple[Any, ...], int] = {}
        self._inputs: dict[int, tuple[Touch, ...]] = {}
        self._computes: Counter[int] = Counter()
        self._alloc: dict[int, int] = {}
        self._free: dict[int, int] = {}
        self._op_of_slot: dict[int, tuple[int, int]] = {}
        self._recorded: dict[tuple[int, int], int] = {}
        self._meta: dict[int, int] = {}
        self._other_sync: dict[str, int] = {}
        # The switch was set when the devices were made, which are all of them synchronous then.
        synchronous = spool.switches.get("TAPEDELAY_SYNC") == "on"
        self._synchronous = {
            q
            for q, made in zip(self.places.queues, spool.queues, strict=True)
            if q is not None and synchronous and spool.devices[made.device].is_test
        }

    # --- the walk -------------------------------------------------------------------------------------------

    def run(self) -> None:
        spool, r = self.spool, self.spool.records
        is_exec = r["kind"] == Kind.EXEC
        runs = {
            slot: (start, end)
            for slot, start, end in zip(
                r["a"][is_exec].tolist(),
                r["issue_ns"][is_exec].tolist(),
                r["end_ns"][is_exec].tolist(),
                strict=True,
            )
        }
        calls: list[Call] = []
        moments: dict[int, list[Moment]] = {}
        waits: list[tuple[int, int, int]] = []
        for position, slot, row in zip(self.positions, spool.slots.tolist(), r.tolist(), strict=True):
            issue, end, a, b, c, d, e, name, thread, queue, kind, flags, _, _ = row
            if kind in (Kind.EXEC, Kind.QUEUE_INIT):
                continue
            if flags & Flag.FAILED:
                self.failed[Kind(kind).name] += 1
                continue
            host = self.places.thread(thread)
            on_host = bool(flags & Flag.HOST) or queue == NO_QUEUE
            where = host if on_host else self.places.queue_of(queue, thread)
            values: dict[str, Any] = {
                "queue": where,
                "issuer": host,
                "name": None if name == NONE else spool.names[name],
                "issue_ns": issue + self.shift_ns,
                "parent": self._meta.get(thread) if flags & Flag.CHILD else None,
            }
            if slot in runs:
                start, stop = runs[slot]
                values |= {"start_after_issue_ns": max(0, start - issue), "duration_ns": max(0, stop - start)}
            elif end:
                values |= {"start_after_issue_ns": 0, "duration_ns": max(0, end - issue)}
            moment: Moment | None = None
            objects: tuple[object, ...] = () if queue == NO_QUEUE else (("queue", queue),)

            if kind == Kind.COMPUTE:
                values |= self._compute(d, where, queue)
                if d != NONE:
                    moment = Moment(position, graph=d, inputs=self._inputs_of(d))
            elif kind in _COPIES:
                values |= {
                    "kind": "copy",
                    "bytes": c,
                    "access_set": self._pair(d, a, e, b, c, wide=bool(flags & Flag.SPAN)),
                }
                objects += tuple(("buffer", x) for x in (d, e) if x != NONE)
                if kind == Kind.SET and d == NONE and e != NONE and where == host:
                    moment = Moment(position, write=(e, b, b + c))
            elif kind in (Kind.MEMSET, Kind.CLEAR):
                if kind == Kind.CLEAR:
                    b, c = 0, spool.buffers[e].bytes
                values |= {
                    "kind": "memset",
                    "bytes": c,
                    "access_set": self._pair(NONE, 0, e, b, c, source=False),
                }
                objects += (("buffer", e),)
            elif kind == Kind.EVENT_RECORD:
                values |= {"kind": "record", "sync": self.places.syncs[d], "access_set": 0}
            elif kind in (Kind.EVENT_WAIT, Kind.EVENT_SYNC):
                values |= {"kind": "wait", "sync": self.places.syncs[d], "access_set": 0}
                if kind == Kind.EVENT_SYNC:
                    values["queue"] = where = host
                    moment = Moment(position, waits=True)
            elif kind == Kind.SYNC:
                target = self.places.queues[queue]
                if target is None:  # a backend that works on the calling thread has nothing to wait for
                    continue
                values |= {
                    "kind": "sync",
                    "queue": host,
                    "target_kind": "queue",
                    "target": target,
                    "access_set": 0,
                }
                where = host
                moment = Moment(position, waits=True)
            elif kind in (Kind.BUFFER_ALLOC, Kind.BUFFER_FREE):
                word = "alloc" if kind == Kind.BUFFER_ALLOC else "free"
                values |= {"kind": word, "queue": host, "target": self.places.buffers[e], "access_set": 0}
                where = host
                objects = (("buffer", e),)
            elif kind == Kind.EVENT_FREE:
                values |= {"kind": "destroy", "queue": host, "sync": self.places.syncs[d], "access_set": 0}
                where = host
            elif kind == Kind.QUEUE_FREE:
                values |= {"kind": "mark", "queue": host, "name": "queue freed", "access_set": 0}
                where = host
            elif kind == Kind.SPLIT_COPY_WAIT:
                values["kind"] = "wait"
                if not self._split_copy_wait(position, a, values):
                    continue
                self._count(where, values)
                self._complete(position, where, values)
                calls.append(Call(position, thread, objects, issue, end))
                continue
            self._count(where, values)
            op = self.rows.add(position, SELF, **values)
            self._op_of_slot[slot] = (op, position)
            self._complete(position, where, values)
            calls.append(Call(position, thread, objects, issue, end))
            if moment is not None:
                moments.setdefault(thread, []).append(moment)
            if flags & Flag.META:
                self._meta[thread] = op
            if kind == Kind.EVENT_RECORD:
                self._recorded[d, a] = op
            elif kind in (Kind.EVENT_WAIT, Kind.EVENT_SYNC):
                if flags & Flag.FOREIGN:
                    self.rows.set(op, wait_state="foreign")
                elif a == 0:
                    self.rows.set(op, wait_state="none")
                else:
                    waits.append((op, d, a))
            elif kind == Kind.BUFFER_ALLOC:
                self._alloc[e] = op
            elif kind == Kind.BUFFER_FREE:
                self._free[e] = op
        self._resolve(waits)
        self._add_handovers(calls)
        for thread, of_thread in moments.items():
            for filling in infer(of_thread):
                self._add_filling(thread, filling)

    def _count(self, queue: int, values: dict[str, Any]) -> None:
        self.ops_on[queue] += 1
        if values["kind"] in _TAKE_TIME:
            self.timeable_on[queue] += 1
            if values.get("duration_ns") is not None:
                self.timed_on[queue] += 1
        if values.get("access_set") is None:
            self.unknown_on[queue] += 1

    # --- one kind each --------------------------------------------------------------------------------------

    def _compute(self, graph: int, where: int, queue: int) -> dict[str, Any]:
        device = self.places.devices[self.spool.queues[queue].device]
        self._computes[device] += 1
        name = f"#{self._computes[device]}"
        if graph == NONE:
            return {"kind": "compute", "name": name}
        found = self._thinned.get(graph)
        if found is None:
            every = touches(self.spool, graph)
            written = next((t.name for t in every if t.mode != "read" and t.name), "")
            found = self.builder.access_set(self._access_rows(thin(every))), written
            self._thinned[graph] = found
        return {"kind": "compute", "name": f"{name} {found[1]}".rstrip(), "access_set": found[0]}

    def _access_rows(self, rows: Sequence[Touch], origin: str | None = None) -> list[dict[str, Any]]:
        return [
            {
                "buffer": None if t.buffer is None else self.places.buffers[t.buffer],
                "offset": t.offset,
                "bytes": t.bytes,
                "mode": t.mode,
                "origin": origin or ("inferred" if t.wide else "observed"),
                "name": t.name,
            }
            for t in rows
        ]

    def _pair(
        self,
        src: int,
        src_at: int,
        dst: int,
        dst_at: int,
        size: int,
        *,
        source: bool = True,
        wide: bool = False,
    ) -> int:
        key = (src, src_at, dst, dst_at, size, source, wide)
        found = self._pair_sets.get(key)
        if found is None:
            rows = [
                Touch(None, 0, size, mode, wide=wide)
                if buffer == NONE
                else Touch(buffer, at, size, mode, wide=wide)
                for buffer, at, mode in ((src, src_at, "read"), (dst, dst_at, "write"))
                if size and (source or mode == "write")
            ]
            found = self.builder.access_set(self._access_rows(rows))
            self._pair_sets[key] = found
        return found

    def _inputs_of(self, graph: int) -> tuple[Touch, ...]:
        found = self._inputs.get(graph)
        if found is None:
            found = tuple(
                t
                for t in touches(self.spool, graph)
                if t.is_input and t.mode == "read" and t.buffer is not None and self.places.on_host(t.buffer)
            )
            self._inputs[graph] = found
        return found

    def _complete(self, position: int, queue: int, values: dict[str, Any]) -> None:
        """On a synchronous test device a call returns when the work is done."""
        if queue not in self._synchronous:
            return
        host = values["issuer"]
        self.rows.add(
            position,
            AFTER,
            kind="sync",
            queue=host,
            issuer=host,
            target_kind="queue",
            target=queue,
            access_set=0,
            issue_ns=values["issue_ns"],
            origin="declared",
        )

    def _split_copy_wait(self, position: int, slot: int, values: dict[str, Any]) -> bool:
        """The copy runs on one queue and the destination's queue waits for it: an event that has no name."""
        copy = self._op_of_slot.get(slot)
        if copy is None:
            self.failed["SPLIT_COPY_WAIT"] += 1
            return False
        op, at = copy
        sync = self._sync("split copy")
        of_copy = {n: self.rows.get(op, n) for n in ("queue", "issuer", "issue_ns", "parent")}
        record = self.rows.add(at, AFTER, kind="record", sync=sync, access_set=0, **of_copy)
        self.rows.add(position, SELF, **{**values, "sync": sync, "sync_of": record, "access_set": 0})
        return True

    def _sync(self, name: str) -> int:
        found = self._other_sync.get(name)
        if found is None:
            fresh = self.whole.naming.fresh("syncs", name)
            found = self.builder.sync(name=fresh, kind="other", process=self.process)
            self._other_sync[name] = found
        return found

    # --- what needs the whole walk --------------------------------------------------------------------------

    def _resolve(self, waits: list[tuple[int, int, int]]) -> None:
        for op, event, generation in waits:
            record = self._recorded.get((event, generation))
            if record is None or not self.rows.precedes(record, op):
                # It was lost, or two threads called in the same moment and which came first is not known.
                self.rows.set(op, wait_state="unresolved")
                self.unresolved += 1
            else:
                self.rows.set(op, sync_of=record)

    def _add_handovers(self, calls: list[Call]) -> None:
        for before, after in handovers(calls):
            sync = self._sync("api-serial")
            giver, taker = self.places.thread(before.thread), self.places.thread(after.thread)
            common: dict[str, Any] = {
                "sync": sync,
                "access_set": 0,
                "origin": "declared",
                "name": "api-serial",
            }
            record = self.rows.add(
                before.position,
                AFTER,
                kind="record",
                queue=giver,
                issuer=giver,
                issue_ns=before.start_ns + self.shift_ns,
                **common,
            )
            self.rows.add(
                after.position,
                BEFORE,
                kind="wait",
                queue=taker,
                issuer=taker,
                sync_of=record,
                issue_ns=after.start_ns + self.shift_ns,
                **common,
            )

    def _add_filling(self, thread: int, filling: Filling) -> None:
        host = self.places.thread(thread)
        self.rows.add(
            filling.position,
            BEFORE if filling.before else AFTER,
            kind="host",
            name="inputs",
            queue=host,
            issuer=host,
            access_set=self.builder.access_set(self._access_rows(filling.writes, "inferred")),
            origin="inferred",
        )

    def link_buffers(self) -> None:
        """Name the ops that begin and end each buffer, once ops have their numbers."""
        rows = self.builder.rows("buffers")
        for column, ops in (("alloc_op", self._alloc), ("free_op", self._free)):
            for buffer, op in ops.items():
                rows[self.places.buffers[buffer]][column] = int(self.rows.numbered[op])

    # --- manifest -------------------------------------------------------------------------------------------

    def process_entry(self) -> Process:
        s = self.spool
        return Process(
            self.process,
            complete=s.complete,
            records=len(s.records),
            lost=s.lost,
            wall_offset_ns=self.whole.origin_ns if len(s.records) else None,
        )

    def coverage(self) -> list[Coverage]:
        entries = [
            Coverage(
                q,
                accesses=self._level(self.ops_on[q] - self.unknown_on[q], self.ops_on[q]),
                host_accesses="partial",
                waits="partial",
                times=self._level(self.timed_on[q], self.timeable_on[q]),
            )
            for q in self.places.threads
            if q is not None
        ]
        entries += [
            Coverage(
                q,
                accesses=self._level(self.ops_on[q] - self.unknown_on[q], self.ops_on[q]),
                times=self._level(self.timed_on[q], self.timeable_on[q]),
            )
            for q in self.places.queues
            if q is not None
        ]
        return entries

    @staticmethod
    def _level(seen: int, of: int) -> str:
        return "full" if seen >= of else "partial" if seen else "none"

    def notes(self) -> list[str]:
        found = [_mask(n) for n in self.spool.notes]
        if self.failed[Kind.COMPUTE.name]:
            found.append(f"{self.failed[Kind.COMPUTE.name]} computes failed and are left out")
        if self.unresolved:
            found.append(
                f"{self.unresolved} waits whose record was not seen: findings that depend on them are unknown"
            )
        if self.spool.torn:
            found.append("the last definition was cut short: the process died while it wrote it")
        if self.spool.failed:
            found.append("recording stopped early: the spool could not be written any more")
        return found


def _shift(spool: Spool) -> int:
    """What turns the process's monotonic clock into wall-clock time."""
    return spool.wall_ns - spool.mono_ns


def _mask(text: str) -> str:
    return _PATH.sub("<path>", text)


def _profiles(builder: TapeBuilder) -> dict[str, dict[str, Any]]:
    used = {d["profile"] for d in builder.rows("devices")}
    return {name: BUILTIN[name].as_dict() for name in sorted(used) if name in BUILTIN}
