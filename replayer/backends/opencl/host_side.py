"""Host threads: issue rows, run their own units on host memory, wait for what queues do."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .device_side import DeviceSide
from .graph import ISSUE, JOIN, LEAVE, NOBODY, Graph, Item
from .meetings import Meetings
from .memory import FOLD, KIN, WRITE, XOR, Access
from .nodes import Nodes
from .session import Session
from .timing import Timing
from .values import MASK, Bytes, digest, fold, lost, mark_of, pattern, stamp_of

__all__ = ["HostSide", "Look"]

Lost = npt.NDArray[np.bool_]

SHORTEST_SLEEP_NS = 20_000
"""A sleep costs about that much more than was asked for; less is left out."""


@dataclass(slots=True)
class Look:
    """What an access of a host thread's op saw before and after, and what it wrote."""

    before: int = 0
    after: int = 0
    stamp: int = 0
    content: bytes = b""
    content_after: bytes = b""


class HostSide:
    """The host threads of one run.

    Attributes
    ----------
    issue_ns, start_ns, done_ns, end_ns : numpy.ndarray of int64
        Host clock; issue by row, the others by unit, for units of host threads.
    looks : dict
        By index of the access.
    """

    def __init__(
        self,
        session: Session,
        graph: Graph,
        nodes: Nodes,
        timing: Timing,
        device: DeviceSide,
        met: Meetings,
    ) -> None:
        self.session, self.graph, self.nodes = session, graph, nodes
        self.timing, self.device, self.met = timing, device, met
        rows = graph.contract.ops.rows
        never = np.full(rows, -1, np.int64)
        self.issue_ns, self.start_ns, self.done_ns, self.end_ns = (never.copy() for _ in range(4))
        self.looks: dict[int, Look] = {}
        self.progress = 0
        self._issued: dict[int, int] = dict.fromkeys(graph.wanted, 0)

    def program(self, thread: int, started_ns: int) -> None:
        """Run one thread's items to the end."""
        clock = started_ns
        for item in self.graph.programs[thread]:
            if item.what == LEAVE:
                self._end(item.row)
                clock = time.perf_counter_ns()
                continue
            due = (started_ns if thread == NOBODY else clock) + self.timing.gap(item.row)
            delay = self.timing.before_issue(item.row)
            if delay:
                due = max(due, time.perf_counter_ns()) + delay
            self._sleep(due - time.perf_counter_ns())
            # Gaps make up for what enqueueing takes here; a delay never shrinks.
            clock = due
            if self._step(thread, item):
                clock = time.perf_counter_ns()

    def _step(self, thread: int, item: Item) -> bool:
        """Do an item; return whether it took the thread."""
        row = item.row
        ops = self.graph.contract.ops
        unit = self.graph.contract.unit[row]
        if item.what == ISSUE or ops.issuer[row] < 0 or ops.issuer[row] == thread:
            self._issue(row, unit)
        if item.what == ISSUE:
            return False
        if item.what == JOIN:
            self.nodes.wait((~unit,))
            return True
        self._start(unit)
        if not self.graph.has_parts(unit):
            self._sleep(self.timing.duration(unit))
            self._end(unit)
        return True

    def _issue(self, row: int, unit: int) -> None:
        with self.nodes.lock:
            self.issue_ns[row] = time.perf_counter_ns()
            self._issued[unit] += 1
            if self._issued[unit] < self.graph.wanted[unit]:
                return
            if self.graph.is_host(unit):
                self.nodes.lock.notify_all()
            else:
                self.device.submit(unit)

    def _start(self, unit: int) -> None:
        graph, nodes = self.graph, self.nodes
        nodes.until(lambda: self._issued[unit] == graph.wanted[unit])
        before = (*graph.after.get(unit, ()), *self.timing.pinned_after(unit))
        nodes.wait(before, graph.any_of.get(unit, ()))
        self._sleep(self.timing.before_start(unit))
        self.start_ns[unit] = time.perf_counter_ns()
        accesses = self.session.memory.of_unit.get(unit, [])
        for a in accesses:
            if a.mode & FOLD:
                content = self._read(unit, a)
                seen = digest(content, a.at)
                self.looks[a.index] = Look(seen, seen, 0, content.tobytes())
        for a in accesses:
            if a.mode & WRITE and not a.mode & KIN:
                self._write(unit, a, pattern(mark_of(a.op), a.at, a.bytes))
        nodes.happened(unit)

    def _end(self, unit: int) -> None:
        graph, memory = self.graph, self.session.memory
        self.nodes.wait((*graph.after.get(~unit, ()), *self.timing.pinned_after(~unit)))
        accesses = memory.of_unit.get(unit, [])
        marked = [a for a in accesses if a.mode & WRITE and not a.mode & KIN]
        torn = {a.index: lost(self._read(unit, a), a.at, mark_of(a.op)) for a in marked}
        copied = {}
        for copy in memory.copies.get(unit, ()):
            self._write(unit, copy.target, self._read(unit, copy.source)[: copy.bytes])
            copied[copy.source.index] = self._read(unit, copy.target)[: copy.bytes]
        for a in accesses:
            if a.mode & FOLD:
                self._look_again(unit, a, copied.get(a.index), torn.get(a.index))
        for a in accesses:
            if a.mode & (WRITE | XOR):
                self._stamp(unit, a, accesses, torn.get(a.index))
        for piece in self.met.pieces.get(unit, ()):
            a, mark = piece.access, mark_of(piece.access.op)
            self._write(unit, a, pattern(mark, piece.at, piece.bytes), piece.at)
        self.done_ns[unit] = time.perf_counter_ns()
        self._sleep(self.timing.after_end(unit))
        self.end_ns[unit] = time.perf_counter_ns()
        self.nodes.happened(~unit)
        self.progress += 1

    def _look_again(self, unit: int, a: Access, copied: Bytes | None, torn: Lost | None) -> None:
        look, content = self.looks[a.index], self._read(unit, a)
        if torn is not None:
            look.after = ~look.before & MASK if torn.any() else look.before
        elif not a.mode & KIN:
            if copied is not None:
                content = np.concatenate((copied, content[len(copied) :]))
            look.after = digest(content, a.at)
        if a.index in self.met.torn and look.after == look.before:
            look.after = ~look.before & MASK
        if look.after != look.before:
            look.content_after = content.tobytes()

    def _stamp(self, unit: int, a: Access, accesses: list[Access], torn: Lost | None) -> None:
        reads = [(b, self.looks[b.index]) for b in accesses if b.op == a.op and b.mode & FOLD]
        seen = fold((b.seq, look.before, look.after) for b, look in reads)
        value = stamp_of(a.op, a.seq, seen)
        self.looks.setdefault(a.index, Look()).stamp = value
        if not a.mode & XOR:
            content = pattern(value, a.at, a.bytes)
            if torn is not None:
                content = np.where(torn, pattern(mark_of(a.op), a.at, a.bytes), content)
            self._write(unit, a, content)
            return
        with self.nodes.lock:
            kernel = self.session.flip
            for at, number in enumerate((np.uint64(a.at), np.uint64(a.bytes), np.uint64(value)), 1):
                kernel.set_arg(at, number)
            cl, queue = self.session.device.cl, self._queue(unit)
            event = cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))
        self._finish(queue, event)

    def _read(self, unit: int, a: Access) -> Bytes:
        if a.host:
            return self.session.host[a.at : a.at + a.bytes].copy()
        content = np.empty(a.bytes, np.uint8)
        self._copy(unit, lambda cl, queue: cl.enqueue_copy(
            queue, content, self.session.arena, src_offset=a.at, is_blocking=False
        ))  # fmt: skip
        return content

    def _write(self, unit: int, a: Access, content: Bytes, at: int = -1) -> None:
        at = at if at >= 0 else a.at
        if a.host:
            self.session.host[at : at + len(content)] = content
            return
        content = np.ascontiguousarray(content)
        self._copy(unit, lambda cl, queue: cl.enqueue_copy(
            queue, self.session.arena, content, dst_offset=at, is_blocking=False
        ))  # fmt: skip

    def _copy(self, unit: int, enqueue: Callable[[Any, Any], Any]) -> None:
        with self.nodes.lock:
            queue = self._queue(unit)
            event = enqueue(self.session.device.cl, queue)
            self.nodes.keep.append(event)
        self._finish(queue, event)

    def _finish(self, queue: Any, event: Any) -> None:
        """Wait as a blocking call does, in a way that can be given up."""
        queue.flush()
        self.nodes.settle(event)

    def _queue(self, unit: int) -> Any:
        return self.session.queues[self.graph.home[unit]]

    def _sleep(self, ns: int) -> None:
        if ns >= SHORTEST_SLEEP_NS and not self.timing.pinned:
            self.nodes.pause(ns / 1e9)
