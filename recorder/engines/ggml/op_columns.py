"""The columns of the ops that calls become, a kind at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .called import Called
from .definitions import Spool
from .joins import codes, counts_so_far, is_kind
from .layout import NONE, Flag, Kind
from .places import Places
from .rows import SELF, Block, OpRows
from .sets import TouchedBytes

__all__ = ["NULL", "OpColumns"]

NULL = -1
_KINDS: dict[int, str] = {
    Kind.COMPUTE: "compute",
    Kind.COPY: "copy",
    Kind.SET: "copy",
    Kind.GET: "copy",
    Kind.MEMSET: "memset",
    Kind.CLEAR: "memset",
    Kind.EVENT_RECORD: "record",
    Kind.EVENT_WAIT: "wait",
    Kind.EVENT_SYNC: "wait",
    Kind.SYNC: "sync",
    Kind.BUFFER_ALLOC: "alloc",
    Kind.BUFFER_FREE: "free",
    Kind.EVENT_FREE: "destroy",
    Kind.QUEUE_FREE: "mark",
    Kind.SPLIT_COPY_WAIT: "wait",
    Kind.SCHED_COMPUTE: "mark",
    Kind.SCHED_ALLOC: "mark",
    Kind.SCHED_RESET: "mark",
}
"""What a call becomes."""
_SCHEDULER_CALLS: dict[int, str] = {
    Kind.SCHED_COMPUTE: "compute",
    Kind.SCHED_ALLOC: "allocate",
    Kind.SCHED_RESET: "reset",
}
_MOVES = (Kind.COPY, Kind.SET, Kind.GET)
_FILLS = (Kind.MEMSET, Kind.CLEAR)
_EVENTS = (Kind.EVENT_RECORD, Kind.EVENT_WAIT, Kind.EVENT_SYNC, Kind.EVENT_FREE)
_LIVES = (Kind.BUFFER_ALLOC, Kind.BUFFER_FREE)
_COMPUTE, _MOVE, _FILL = 0, 1, 2


class OpColumns:
    """Turns the calls of one process into a block of ops.

    Parameters
    ----------
    spool, places, calls
        The calls, and what they name.
    rows : OpRows
        Where texts get their numbers.
    touched : TouchedBytes
        Where access sets come from.
    first_graph : int
        Tape id of the process's first graph.
    """

    def __init__(
        self,
        spool: Spool,
        places: Places,
        calls: Called,
        *,
        rows: OpRows,
        touched: TouchedBytes,
        first_graph: int,
    ) -> None:
        self._spool = spool
        self._places = places
        self._calls = calls
        self._rows = rows
        self._touched = touched
        self._first_graph = first_graph
        n = len(calls)
        self.sync = np.full(n, NULL, np.int32)
        self.target = np.full(n, NULL, np.int64)
        self.access_set = np.zeros(n, np.int32)
        self.bytes = np.full(n, NULL, np.int64)
        texts = np.array([*map(rows.text, spool.names), NULL], np.int32)
        names = calls.column("name")
        self.name = texts[np.where(names == NONE, len(texts) - 1, names)]
        self._touch()
        self._computes()
        self._events()
        self._lives()
        self._marks()

    def add(self, shift_ns: int) -> Block:
        """Add the ops and return them; `shift_ns` is added to the process's times."""
        c, n = self._calls, len(self._calls)
        words = np.full(256, NULL, np.int32)
        words[list(_KINDS)] = [self._rows.text(w) for w in _KINDS.values()]
        is_sync = c.kind == Kind.SYNC
        parent = c.parent.copy()
        columns: dict[str, npt.NDArray[Any]] = {
            "kind": words[c.kind],
            "name": self.name,
            "queue": c.queue,
            "issuer": c.host,
            "parent": parent,
            "sync": self.sync,
            "sync_of": np.full(n, NULL, np.int64),
            "wait_state": np.full(n, NULL, np.int32),
            "target_kind": np.where(is_sync, self._rows.text("queue"), NULL),
            "target": self.target,
            "access_set": self.access_set,
            "issue_ns": c.issue_ns + shift_ns,
            "start_after_issue_ns": c.start_after_ns,
            "duration_ns": c.duration_ns,
            "bytes": self.bytes,
        }
        self.target[is_sync] = c.target[is_sync]
        block = self._rows.add_block(c.position, SELF, columns)
        parent[parent >= 0] += block.first
        return block

    def _touch(self) -> None:
        """Give each call the access set of what it touches; sets are numbered as they are first used."""
        c = self._calls
        plain = (c.kind == Kind.COMPUTE) & ~c.has(Flag.META)
        moves, fills = is_kind(c.kind, *_MOVES), is_kind(c.kind, *_FILLS)
        form = np.where(moves, _MOVE, np.where(fills, _FILL, _COMPUTE))
        self.access_set[plain] = NULL
        rows = np.flatnonzero(moves | fills | (plain & (c.column("d") != NONE)))
        form = form[rows]
        d, a, e, b, size = (c.some(n, rows) for n in ("d", "a", "e", "b", "c"))
        cleared = c.kind[rows] == Kind.CLEAR
        b[cleared] = 0
        size[cleared] = np.array([x.bytes for x in self._spool.buffers] or [0], np.int64)[e[cleared]]
        self.bytes[rows] = np.where(form == _COMPUTE, NULL, size)
        failed, wide = c.has(Flag.FAILED)[rows], c.has(Flag.SPAN)[rows]
        # What says nothing in a form must not make two of one.
        d[form == _FILL] = NONE
        for column in (a, e, b, size):
            column[form == _COMPUTE] = 0
        a[form == _FILL] = 0
        flag = np.where(form == _COMPUTE, failed, (form == _MOVE) & wide).astype(np.int64)
        code, first = codes(form, d, a, e, b, size, flag)
        found, written = [], []
        for f, *words, flagged in zip(
            *(x[first].tolist() for x in (form, d, a, e, b, size, flag)), strict=True
        ):
            text = ""
            if f == _COMPUTE:
                number, text = self._touched.graph(words[0], bool(flagged))
            else:
                number = self._touched.pair(*words, source=f == _MOVE, wide=bool(flagged))
            found.append(number)
            written.append(text)
        self.access_set[rows] = np.array(found, np.int32)[code]
        self._written = {
            i: written[k] for i, k in zip(rows.tolist(), code.tolist(), strict=True) if written[k]
        }

    def _computes(self) -> None:
        """Name computes by their ordinal on the device and the first tensor they write."""
        rows = np.flatnonzero(self._calls.kind == Kind.COMPUTE)
        devices = np.array([self._places.devices[q.device] for q in self._spool.queues] or [0], np.int64)
        ordinals = counts_so_far(devices[self._calls.on[rows]]).tolist()
        names = zip(ordinals, map(self._written.get, rows.tolist()), strict=True)
        self.name[rows] = [self._rows.text(f"#{n}" if w is None else f"#{n} {w}".rstrip()) for n, w in names]

    def _events(self) -> None:
        rows = np.flatnonzero(is_kind(self._calls.kind, *_EVENTS))
        self.sync[rows] = np.array(self._places.syncs or [0], np.int32)[self._calls.some("d", rows)]

    def _lives(self) -> None:
        rows = np.flatnonzero(is_kind(self._calls.kind, *_LIVES))
        self.target[rows] = np.array(self._places.buffers or [0], np.int64)[self._calls.some("e", rows)]

    def _marks(self) -> None:
        """A call on the scheduler is no work of its own, nor is the end of a queue."""
        kind = self._calls.kind
        self.name[kind == Kind.QUEUE_FREE] = self._rows.text("queue freed")
        rows = np.flatnonzero(is_kind(kind, *_SCHEDULER_CALLS))
        graphs = self._calls.some("d", rows).tolist()
        for row, k, graph in zip(rows.tolist(), kind[rows].tolist(), graphs, strict=True):
            text = f"scheduler {_SCHEDULER_CALLS[k]}"
            if k != Kind.SCHED_RESET and graph != NONE:
                text += f" graph {self._first_graph + graph}"
            self.name[row] = self._rows.text(text)
