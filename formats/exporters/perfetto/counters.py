"""Counters over time: ops in flight, bytes moved, memory, and what the recorder sampled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...columns import Columns, Ints
from ...sampled import sampled
from ...shown import printable
from ...tape import Tape
from ..timeline import WORK, Timeline

__all__ = ["Counter", "counters"]

_MOVES = ("copy", "memset", "rdma")


@dataclass(frozen=True)
class Counter:
    """One counter of one device.

    Attributes
    ----------
    device : int
        Device id, -1 for none.
    name, unit, about : str
        What it is; `unit` as `Packets.track` takes it.
    at_ns : numpy.ndarray of int64
        When it changes, ascending.
    value : numpy.ndarray of int64 or float64
        What it is from then on.
    """

    device: int
    name: str
    unit: str
    about: str
    at_ns: Ints
    value: np.ndarray


def counters(tape: Tape, times: Timeline) -> Iterator[Counter]:
    """Yield the counters of a tape that are known."""
    ops = Columns(tape.table("ops"))
    device = Columns(tape.table("queues")).ints("device")[ops.ints("queue")] if ops.rows else np.zeros(0, int)
    work = ops.words("kind").isin(WORK) & times.lasting
    moved = ops.words("kind").isin(_MOVES) & ops.valid("bytes")
    for d in range(tape.table("devices").num_rows):
        mine = work & (device == d)
        if mine.any():
            ones = np.ones(int(mine.sum()), np.int64)
            begins = np.minimum(times.issue_ns[mine], times.start_ns[mine])
            yield Counter(
                d, "ops in flight", "count", "issued and not ended",
                *_steps(np.concatenate((begins, times.end_ns[mine])), np.concatenate((ones, -ones))),
            )  # fmt: skip
        mine = moved & (device == d)
        if mine.any():
            yield Counter(
                d, "bytes moved", "bytes", "by the copies and fills of its queues that have ended",
                *_steps(times.end_ns[mine], ops.ints("bytes")[mine]),
            )  # fmt: skip
    yield from _memory(tape, ops, times)
    yield from _telemetry(tape, times.origin_ns)


def _steps(at: Ints, change: Ints) -> tuple[Ints, Ints]:
    """Return when a sum of changes changes, and to what; once per instant."""
    by = np.argsort(at, kind="stable")
    at, total = at[by], np.cumsum(change[by])
    last = np.append(at[1:] != at[:-1], True)
    return at[last], total[last]


def _memory(tape: Tape, ops: Columns, times: Timeline) -> Iterator[Counter]:
    buffers = Columns(tape.table("buffers"))
    if not buffers.rows or not ops.rows:
        return
    parent, size, device = buffers.ints("parent"), buffers.ints("bytes"), buffers.ints("device")
    alloc, free = buffers.valid("alloc_op"), buffers.valid("free_op")
    root = parent < 0
    below = ~root & root[np.maximum(parent, 0)]
    begins = times.start_ns[_rows(ops, buffers.ints("alloc_op"))]
    ends = times.end_ns[_rows(ops, buffers.ints("free_op"))]
    for chosen, name, about in (
        (
            root,
            "memory allocated",
            "buffers between their allocation and their free; 0 at first: older ones too",
        ),
        (below, "memory handed out", "parts of buffers that an allocator handed out and did not take back"),
    ):
        seen = chosen & buffers.valid("bytes") & (alloc | free)
        for d in np.unique(device[seen]).tolist():
            mine = seen & (device == d)
            at = np.concatenate((np.where(alloc, begins, 0)[mine], ends[mine & free]))
            change = np.concatenate((size[mine], -size[mine & free]))
            yield Counter(d, name, "bytes", about, *_steps(at, change))


def _rows(ops: Columns, ids: Ints) -> Ints:
    at: Ints = np.minimum(np.searchsorted(ops.ints("op"), ids), ops.rows - 1)
    return at


def _telemetry(tape: Tape, origin_ns: int) -> Iterator[Counter]:
    for s in sampled(tape):
        at_ns = np.clip(s.at_ns, origin_ns, origin_ns + (1 << 62)) - origin_ns
        yield Counter(
            s.device, printable(s.metric), printable(s.unit), "sampled by the recorder", at_ns, s.value
        )
