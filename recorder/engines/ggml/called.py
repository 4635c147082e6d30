"""The calls of one process that become ops, as columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .definitions import Spool
from .delays import before_start_ns
from .joins import Ints, Mask, is_kind, last_equal
from .layout import NO_QUEUE, Flag, Kind
from .places import Places

__all__ = ["Called"]

_DONE_IN_PART = (Kind.COMPUTE, Kind.SCHED_COMPUTE)
_NO_OP = (Kind.NONE, Kind.QUEUE_INIT, Kind.EXEC, Kind.DELAY, Kind.GAP)
_OF_THE_HOST = (
    Kind.EVENT_SYNC, Kind.SYNC, Kind.BUFFER_ALLOC, Kind.BUFFER_FREE, Kind.EVENT_FREE, Kind.QUEUE_FREE,
    Kind.SCHED_COMPUTE, Kind.SCHED_ALLOC, Kind.SCHED_RESET,
)  # fmt: skip
_WAITS = (Kind.SYNC, Kind.EVENT_SYNC)


class Called:
    """Columns of the calls that become ops, in issue order.

    A call that was declined did nothing, a wait for a backend that works on the calling thread waits for
    nothing: they are not here.

    Parameters
    ----------
    spool : Spool
        What the process wrote.
    places : Places
        Its queues.
    positions : array of int
        The place of each record in the issue order of all processes.

    Attributes
    ----------
    at : array of int
        Record of each call.
    position, slot, issue_ns, end_ns, thread, kind, flags : arrays
        As recorded; `issue_ns` is the process's own clock.
    host, queue : array of int
        Tape queue of the thread, and the one on which it runs.
    on : array of int
        Backend object, or NO_QUEUE.
    parent : array of int
        The meta call that it is part of, as an index into these columns; -1 = none.
    start_after_ns, duration_ns : array of int
        -1 = not known.
    """

    def __init__(self, spool: Spool, places: Places, positions: Ints) -> None:
        self._r = r = spool.records
        at = np.flatnonzero(~is_kind(r["kind"], *_NO_OP))
        kind, flags, on = r["kind"][at], r["flags"][at], r["queue"][at]
        own = np.full(NO_QUEUE + 1, -1, np.int64)
        own[: len(places.queues)] = [-1 if q is None else q for q in places.queues]
        declined = ((flags & int(Flag.FAILED)) != 0) & ~is_kind(kind, *_DONE_IN_PART)
        made = ~declined & ~((kind == Kind.SYNC) & (own[on] < 0))
        parent = _parents(r["thread"][at], flags, made)
        number = np.cumsum(made) - 1
        self.at: Ints = at[made]
        self.kind, self.flags, self.on = kind[made], flags[made], on[made]
        parent = parent[made]
        self.parent: Ints = np.where(parent < 0, -1, number[parent])
        del kind, flags, on, declined, number
        self.position: Ints = positions[self.at]
        self.slot: Ints = spool.slots[self.at]
        self.thread = self.column("thread")
        self.issue_ns: Ints = self.column("issue_ns").astype(np.int64)
        self.end_ns: Ints = self.column("end_ns").astype(np.int64)
        hosts = np.array([-1 if q is None else q for q in places.threads] or [-1], np.int64)
        self.host: Ints = hosts[self.thread]
        self.queue: Ints = np.where(self.has(Flag.HOST), -1, own[self.on])
        by_host = (self.queue < 0) | is_kind(self.kind, *_OF_THE_HOST)
        self.queue = np.where(by_host, self.host, self.queue)
        self.target: Ints = own[self.on]
        self.start_after_ns, self.duration_ns = self._times(spool)

    def __len__(self) -> int:
        return len(self.at)

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a column of the records."""
        values: npt.NDArray[Any] = self._r[name][self.at]
        return values

    def some(self, name: str, which: npt.NDArray[Any]) -> Ints:
        """Return some values of a column of the records."""
        values: Ints = self._r[name][self.at[which]].astype(np.int64)
        return values

    def has(self, flag: Flag) -> Mask:
        """Return which calls have a flag."""
        found: Mask = (self.flags & int(flag)) != 0
        return found

    def outer(self) -> Ints:
        """Return the call whose position counts for each: that of its meta call, or itself."""
        return np.where(self.parent < 0, np.arange(len(self)), self.parent)

    def _times(self, spool: Spool) -> tuple[Ints, Ints]:
        """Return what a worker's own record says, or else how long the call took; -1 = not known."""
        runs = self._r[self._r["kind"] == Kind.EXEC]
        run = last_equal(runs["a"].astype(np.int64), self.slot)
        late = np.zeros(len(self), np.int64)
        held_up = before_start_ns(spool)
        if held_up:
            which = np.flatnonzero(~is_kind(self.kind, *_WAITS) & np.isin(self.slot, list(held_up)))
            late[which] = [held_up[s] for s in self.slot[which].tolist()]
        returned = self.end_ns != 0
        start = np.where(returned, late, -1)
        length = np.where(returned, np.maximum(0, self.end_ns - self.issue_ns - late), -1)
        seen = np.flatnonzero(run >= 0)
        begin = runs["issue_ns"].astype(np.int64)[run[seen]]
        end = runs["end_ns"].astype(np.int64)[run[seen]]
        start[seen] = np.maximum(0, begin - self.issue_ns[seen])
        length[seen] = np.maximum(0, end - begin)
        no_work = is_kind(self.kind, Kind.SCHED_COMPUTE, Kind.SCHED_ALLOC, Kind.SCHED_RESET)
        start[no_work] = length[no_work] = -1
        return start, length


def _parents(threads: npt.NDArray[Any], flags: npt.NDArray[np.uint8], made: Mask) -> Ints:
    """Return the meta call that each call is part of, -1 = none.

    A thread's calls are part of its newest meta call until it makes one that is not.
    """
    n = len(threads)
    parent = np.full(n, -1, np.int64)
    meta = made & ((flags & int(Flag.META)) != 0)
    if not meta.any():
        return parent
    order = np.argsort(threads, kind="stable")
    child = (flags & int(Flag.CHILD)) != 0
    changes = (~child | meta)[order]
    opened = np.where(meta, np.arange(n), -1)[order]
    newest = np.maximum.accumulate(np.where(changes, np.arange(n), -1))
    before = np.concatenate([[-1], newest[:-1]])
    held = threads[order]
    first = np.maximum.accumulate(np.where(np.concatenate([[True], held[1:] != held[:-1]]), np.arange(n), 0))
    part = np.flatnonzero(child[order] & (before >= first))
    parent[order[part]] = opened[before[part]]
    return parent
