"""Which backend objects and weights each call of a host thread uses."""

from __future__ import annotations

import numpy as np

from .definitions import Spool
from .layout import NO_QUEUE, NONE, BufferFlag, Flag, Kind
from .record import Record
from .serial import Call

__all__ = ["CallLog"]

_MOVES = (Kind.COPY, Kind.SET, Kind.GET, Kind.MEMSET, Kind.CLEAR)
_HOST = int(Flag.HOST)


class CallLog:
    """The calls of all host threads, in issue order, for `serial.handovers`."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._is_weights = [bool(b.flags & BufferFlag.WEIGHTS) for b in spool.buffers]
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
        writes = (r.e,) if r.e != NONE and self._is_weights[r.e] else ()
        if not r.flags & _HOST and r.queue != NO_QUEUE:
            pending.update(writes)
        return writes, (), (r.d,) if r.d != NONE and self._is_weights[r.d] else ()

    def _weights_in(self, graph: int) -> tuple[int, ...]:
        found = self._weights.get(graph)
        if found is None:
            buffers = np.unique(self._spool.sets[graph]["buffer"]).tolist()
            found = self._weights[graph] = tuple(b for b in buffers if b != NONE and self._is_weights[b])
        return found
