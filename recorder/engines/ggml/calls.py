"""Which backend objects and weights each call of a host thread uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .called import Called
from .definitions import Spool
from .joins import Ints, Mask, by_value, codes, is_kind
from .layout import NO_QUEUE, NONE, BufferFlag, Flag, Kind
from .record import Record
from .serial import Call

__all__ = ["call_log"]

_MOVES = (Kind.COPY, Kind.SET, Kind.GET, Kind.MEMSET, Kind.CLEAR)
_HOST = int(Flag.HOST)

Records = npt.NDArray[Any]


def call_log(spool: Spool, calls: Called, positions: Ints) -> list[Call]:
    """Return what `serial.handovers` needs of the calls of all host threads, in issue order.

    Calls that cannot be an end of a hand-over are left out: most backend objects are used by one thread.
    """
    r = spool.records
    at = np.concatenate([calls.at, np.flatnonzero(r["kind"] == Kind.QUEUE_INIT)])
    index = np.concatenate([np.arange(len(calls)), np.full(len(at) - len(calls), -1)])
    order = np.argsort(at, kind="stable")
    at, index = at[order], index[order]
    log = _CallLog(spool)
    chosen = np.flatnonzero(_matter(r, at, log.is_weights))
    columns = (r[n][at[chosen]].tolist() for n in Record._fields[2:])
    rows = zip(positions[at[chosen]].tolist(), spool.slots[at[chosen]].tolist(), *columns, strict=True)
    for call, row in zip(index[chosen].tolist(), rows, strict=True):
        outer = int(calls.parent[call]) if call >= 0 else -1
        log.add(
            Record(*row), (int(calls.position[outer]), int(calls.issue_ns[outer])) if outer >= 0 else None
        )
    return log.calls


def _matter(r: Records, at: Ints, is_weights: list[bool]) -> Mask:
    """Return which records change what `serial.handovers` finds."""
    thread, queue, kind = r["thread"][at], r["queue"][at], r["kind"][at]
    d, e = r["d"][at].astype(np.int64), r["e"][at].astype(np.int64)
    weights = np.array([*is_weights, False])
    none = len(is_weights)
    moves = is_kind(kind, *_MOVES)
    computes = kind == Kind.COMPUTE
    writes = moves & weights[np.where(moves & (e != NONE), e, none)]
    reads = moves & weights[np.where(moves & (d != NONE), d, none)]
    matter: Mask = writes.copy()
    for takes in (reads, computes & (d != NONE)):  # only the first use of a thread
        rows = np.flatnonzero(takes)
        matter[rows[codes(thread[rows], d[rows])[1]]] = True
    pending = writes & ((r["flags"][at] & _HOST) == 0) & (queue != NO_QUEUE)
    waits = is_kind(kind, Kind.SYNC, Kind.EVENT_SYNC)
    for _, rows in by_value(thread) if pending.any() else ():
        numbers = np.arange(1, len(rows) + 1)
        loaded = np.maximum.accumulate(np.where(pending[rows], numbers, 0))
        settled = np.maximum.accumulate(np.where(computes[rows], numbers, 0))
        waiting = np.concatenate([[False], loaded[:-1] > settled[:-1]])
        matter[rows[waiting & (computes | waits)[rows]]] = True
    # The two calls where another thread goes on with a backend object.
    rows = np.flatnonzero(queue != NO_QUEUE)
    rows = rows[np.argsort(queue[rows], kind="stable")]
    handed = np.flatnonzero((queue[rows][1:] == queue[rows][:-1]) & (thread[rows][1:] != thread[rows][:-1]))
    matter[rows[handed]] = matter[rows[handed + 1]] = True
    return matter


class _CallLog:
    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self.is_weights = [bool(b.flags & BufferFlag.WEIGHTS) for b in spool.buffers]
        self.calls: list[Call] = []
        self._weights: dict[int, tuple[int, ...]] = {}
        self._loading: dict[int, set[int]] = {}

    def add(self, r: Record, outer: tuple[int, int] | None) -> None:
        """Note what a call used, as far as the API orders it.

        `outer` is the position and start of the meta call that it is part of: that one used it as well.
        """
        queue = None if r.queue == NO_QUEUE else r.queue
        weights = self._weights_of(r)
        if queue is None and not any(weights):
            return
        position, start = outer or (r.position, r.issue_ns)
        end = max(r.issue_ns, r.end_ns)
        self.calls.append(Call(position, r.thread, start, end, queue, *weights))

    def _weights_of(self, r: Record) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return the weights buffers that a call writes, whose writes it waits for, and that it uses."""
        pending = self._loading.setdefault(r.thread, set())
        if r.kind == Kind.COMPUTE:
            pending.clear()
            return (), (), () if r.d == NONE else self._weights_in(r.d)
        if r.kind in (Kind.SYNC, Kind.EVENT_SYNC):
            return (), tuple(sorted(pending)) if pending else (), ()
        if r.kind not in _MOVES:
            return (), (), ()
        writes = (r.e,) if r.e != NONE and self.is_weights[r.e] else ()
        if not r.flags & _HOST and r.queue != NO_QUEUE:
            pending.update(writes)
        return writes, (), (r.d,) if r.d != NONE and self.is_weights[r.d] else ()

    def _weights_in(self, graph: int) -> tuple[int, ...]:
        found = self._weights.get(graph)
        if found is None:
            buffers = np.unique(self._spool.sets[graph]["buffer"]).tolist()
            found = self._weights[graph] = tuple(b for b in buffers if b != NONE and self.is_weights[b])
        return found
