"""Random tiny tapes over every feature of the edge contract, from bytes, for hypothesis to shrink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

from tapedelay.formats.builder import TapeBuilder
from tapedelay.formats.profiles import BUILTIN
from tapedelay.formats.tape import Coverage, Manifest, Process, Tape

__all__ = ["BYTES", "random_tape", "tapes"]

BYTES = 320
T = TypeVar("T")

_KINDS = (
    (
        *["kernel"] * 10, *["host"] * 8, *["copy"] * 4, *["record"] * 4, *["wait"] * 6, *["sync"] * 2,
        *["semsig"] * 3, *["semwait"] * 2, *["coll"] * 2, *["wait_any"] * 2, *["alloc", "free"], "destroy",
    ),
    (*["kernel"] * 4, *["record"] * 4, *["wait"] * 2, *["wait_any"] * 3),
    (*["kernel"] * 4, *["semsig"] * 4, *["semwait"] * 2, *["coll"] * 2, "sync"),
    (*["kernel", "host", "copy"] * 2, *["alloc", "free", "sync"] * 2, "destroy", "record", "wait"),
)  # fmt: skip
"""Kinds to draw from: everything, or one theme, where what belongs together meets more often."""
_EVENTS_FIRST = ("kernel", "record", "record", "wait_any")
_MODES = ("read", "read", "write", "write", "update", "may_write", "reduce")


class Choices:
    """Takes decisions from bytes; zero once they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, limit: int) -> int:
        """Return a number below `limit`."""
        self._at += 1
        return self._data[self._at - 1] % limit if self._at <= len(self._data) else 0

    def one(self, items: Sequence[T]) -> T:
        """Return one of the items."""
        return items[self.number(len(items))]

    def chance(self, one_in: int) -> bool:
        """Return True once in so many times; False for a byte of zero."""
        return self.number(one_in) == one_in - 1


def random_tape(data: bytes) -> Tape:
    """Return the tape that these bytes say."""
    c = Choices(data)
    b = TapeBuilder()
    processes = 2 if c.chance(4) else 1
    hosts = [b.device(name=f"host{p}", kind="host", process=p) for p in range(processes)]
    profiles = ("strict", "strict", "strict", *sorted(BUILTIN))
    gpus = [b.device(name=f"g{i}", kind="gpu", profile=c.one(profiles)) for i in range(1 + c.number(2))]
    threads = [
        b.queue(device=hosts[i % processes], name=f"H{i}", kind="host_thread", process=i % processes)
        for i in range(processes + c.number(3))
    ]
    queues = [
        b.queue(
            device=c.one(gpus),
            name=f"q{i}",
            kind="default" if c.chance(4) else "queue",
            in_order=not c.chance(5),
        )
        for i in range(1 + c.number(4))
    ]
    events = [b.sync(name=f"e{i}", kind="event") for i in range(2)]
    semaphores = [b.sync(name=f"s{i}", kind="semaphore") for i in range(2)]
    colls = [b.sync(name=f"c{i}", kind="collective") for i in range(2)]
    theme = c.number(len(_KINDS))
    buffers = _buffers(b, c, hosts[0], gpus, simple=theme in (1, 2))
    _ops(b, c, _KINDS[theme], threads, queues, gpus, hosts, events, semaphores, colls, buffers)
    coverage = [Coverage(q, waits="partial") for q in threads if c.chance(3)]
    coverage += [Coverage(q, waits=c.one(("partial", "none"))) for q in queues if c.chance(6)]
    named = tuple(Process(p) for p in range(processes))
    return b.build(Manifest(coverage=tuple(coverage), processes=named))


def _buffers(b: TapeBuilder, c: Choices, host: int, gpus: list[int], *, simple: bool) -> list[int]:
    roots = [
        b.buffer(
            device=c.one([host, *gpus]),
            name=f"M{i}",
            bytes=12,
            kind=c.one(("device", "host", "pinned")),
            shared_key=7 if c.chance(4) else None,
        )
        for i in range(1 if simple else 1 + c.number(2))
    ]
    buffers = list(roots)
    for i in range(0 if simple else c.number(4)):
        parent = c.one(buffers)
        size = b.rows("buffers")[parent]["bytes"]
        whole = c.chance(2)
        offset = 0 if whole else c.number(size // 2 + 1)
        buffers.append(
            b.buffer(
                device=b.rows("buffers")[parent]["device"],
                name=f"sub{i}",
                bytes=size if whole else max(size - offset - c.number(3), 1),
                parent=parent,
                parent_offset=offset,
                generation=i,
            )
        )
    return buffers


def _set(b: TapeBuilder, c: Choices, buffers: list[int], kind: str) -> int:
    accesses = []
    for i in range(c.one((1, 1, 2, 2, 3, 0))):
        buffer = None if c.chance(12) else c.one(buffers)
        size = 12 if buffer is None else b.rows("buffers")[buffer]["bytes"]
        offset = c.number(size) if c.chance(2) else 0
        mode = ("read", "write")[i % 2] if kind == "copy" else c.one(_MODES)
        growing, pooled = c.chance(8), c.chance(8)
        accesses.append(
            {
                "buffer": buffer,
                "offset": offset,
                "bytes": 1 + c.number(size - offset),
                "offset_per_arg": c.number(3) if growing else 0,
                "bytes_per_arg": c.number(3) if growing else 0,
                "unit_bytes": 1 + c.number(3) if pooled else None,
                "mode": mode,
                "origin": c.one(("observed",) * 6 + ("inferred", "declared")),
            }
        )
    return b.access_set(accesses)


def _ops(
    b: TapeBuilder,
    c: Choices,
    kinds: Sequence[str],
    threads: list[int],
    queues: list[int],
    gpus: list[int],
    hosts: list[int],
    events: list[int],
    semaphores: list[int],
    colls: list[int],
    buffers: list[int],
) -> None:
    ids: list[int] = []
    possible_parents: list[int] = []
    signals: list[int] = []
    for i in range(3 + c.number(10)):
        kind = c.one(kinds)
        if kinds is _KINDS[1] and i < len(_EVENTS_FIRST):
            kind = _EVENTS_FIRST[i]
        row: dict[str, object] = {"op": i * 2 + c.number(2), "kind": kind, "access_set": 0}
        on_host = kind in ("host", "sync", "alloc", "free", "destroy") or c.chance(4)
        row["queue"] = c.one(threads) if on_host and not c.chance(12) else c.one(queues)
        if kind == "record" and b.rows("ops") and c.chance(2):
            row["queue"] = b.rows("ops")[-1]["queue"]  # an event after something that somebody may wait for
        row["issuer"] = row["queue"] if row["queue"] in threads and not c.chance(8) else c.one(threads)
        if c.chance(20):
            row["issuer"] = None
        if kind in ("host", "kernel", "copy", "coll"):
            row["access_set"] = _set(b, c, buffers, kind)
            row["arg"] = c.number(3)
            row["list"] = b.unit_list([c.number(4) for _ in range(c.number(3) + 1)])
        if kind in ("record", "wait"):
            row["sync"] = events[i % 2] if kinds is _KINDS[1] and i < 3 else c.one(events)
        if kind in ("wait", "wait_any"):
            row["wait_state"] = c.one(("contract",) * 4 + ("unresolved", "unresolved", "none", "foreign"))
            records = [r["op"] for r in b.rows("ops") if r["kind"] == "record"]
            if records and c.chance(5):
                row["sync_of"], row["wait_state"] = c.one(records), None
        if kind == "wait_any":
            row["list"] = b.unit_list(c.one((events, events, events, events[:1], events[1:])))
        if kind in ("semsig", "semwait"):
            row["sync"] = c.one(semaphores[:1] + semaphores)
            row["value"] = None if c.chance(2) else 1 + c.number(3)
            if kind == "semwait" and c.chance(8):
                row["wait_state"] = "unresolved"
        if kind == "coll" and not c.chance(8):
            row["sync"] = c.one(colls)
        if kind == "sync":
            row["target_kind"] = c.one(("queue", "queue", "device", "all"))
            if row["target_kind"] != "all":
                row["target"] = (
                    c.one(queues + threads) if row["target_kind"] == "queue" else c.one(gpus + hosts)
                )
        if kind in ("alloc", "free") and not c.chance(6):
            row["target"] = c.one(buffers)
        if kind == "destroy":
            row["sync"] = c.one(events + semaphores)
        if possible_parents and kind in ("kernel", "copy", "coll", "host") and c.chance(3):
            row["parent"] = c.one(possible_parents)
        if c.chance(10):
            row["origin"] = "inferred"
        op = b.op(**row)
        if kind in ("kernel", "coll"):
            possible_parents.append(op)
        if kind == "semsig":
            signals.append(op)
        ids.append(op)
    # Most waits for a signal shall have one: append it, often in the wrong place.
    for _ in range(c.number(3)):
        if len(ids) > 1 and c.chance(3):
            at = c.number(len(ids) - 1)
            src, dst = ids[at], ids[at + 1 + c.number(len(ids) - 1 - at)]
            if c.chance(12):
                src, dst = dst, src
            b.edge(src, dst)


def tapes() -> st.SearchStrategy[Tape]:
    """Return a strategy of random tapes."""
    return st.binary(min_size=BYTES, max_size=BYTES).map(random_tape)
