"""Units on command queues: from rows that host threads hand over to commands with wait lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .graph import Graph
from .meetings import Meetings, Piece
from .memory import FOLD, KIN, WRITE, XOR, Access, Memory
from .nodes import Nodes
from .session import Session
from .timing import Timing
from .values import mark_of

__all__ = ["DeviceSide", "Stamps"]


PIECE_NS = 50_000_000


@dataclass(slots=True)
class Stamps:
    """Events whose profile says when a unit started, was done, and let others go on."""

    start: Any = None
    done: Any = None
    end: Any = None


class _Commands:
    """Enqueues the commands of one node one after another, whatever the queue promises."""

    def __init__(self, side: DeviceSide, unit: int, wait: list[Any]) -> None:
        home = side.graph.home[unit]
        self.side = side
        self.cl = side.session.device.cl
        self.session = side.session
        self.nodes = side.nodes
        self.queue = side.session.queues[home]
        self.ordered = side.graph.contract.queues.in_order[home]
        self.wait = wait
        self.first: Any = None
        self.last: Any = None

    def _add(self, event: Any) -> None:
        self.nodes.keep.append(event)
        self.first = self.first or event
        self.last = event
        self.wait = [] if self.ordered else [event]

    def marker(self, *, barrier: bool = False) -> None:
        """Enqueue what only waits; a barrier holds up what follows on a queue that is in order."""
        if self.ordered:
            enqueue = self.cl.enqueue_barrier if barrier else self.cl.enqueue_marker
            self._add(enqueue(self.queue, wait_for=self.wait or None))
        else:
            # Out of order a barrier holds up all that follows, and so does a marker in PoCL 3.
            self.session.spin.set_arg(1, np.uint64(0))
            self._run(self.session.spin)

    def spin(self, ns: int) -> None:
        """Take time; in pieces, so that a long delay on a busy machine is not taken for a standstill."""
        kernel = self.session.spin
        while ns > 0:
            rounds = self.session.spinning.rounds(min(ns, PIECE_NS))
            kernel.set_arg(1, np.uint64(rounds))
            self._run(kernel)
            self.side.ticks.append(self.last)
            self.side.spins.append((self.last, rounds))
            ns -= PIECE_NS

    def accesses(self, kernel: Any, accesses: list[Access]) -> None:
        kernel.set_arg(4, np.int64(accesses[0].index))
        kernel.set_arg(5, np.int64(accesses[-1].index + 1))
        self._run(kernel)

    def tear(self, piece: Piece) -> None:
        """Leave nobody's version where two ops wrote at once."""
        kernel, a = self.session.tear, piece.access
        numbers = (a.data + piece.at - a.at, piece.bytes, piece.at, mark_of(a.op))
        for at, number in enumerate(numbers, 1):
            kernel.set_arg(at, np.uint64(number))
        self._run(kernel)

    def upload(self, at: int, host_at: int, count: int) -> None:
        """Copy host memory to the arena."""
        host = self.session.host[host_at : host_at + count]
        self._copy(self.session.arena, host, dst_offset=at)

    def download(self, host_at: int, at: int, count: int) -> None:
        """Copy the arena to host memory."""
        host = self.session.host[host_at : host_at + count]
        self._copy(host, self.session.arena, src_offset=at)

    def move(self, to: int, at: int, count: int) -> None:
        """Copy inside of the arena."""
        arena = self.session.arena
        event = self.cl.enqueue_copy(
            self.queue,
            arena,
            arena,
            byte_count=count,
            src_offset=at,
            dst_offset=to,
            wait_for=self.wait or None,
        )
        self._add(event)

    def _copy(self, to: Any, source: Any, **where: int) -> None:
        event = self.cl.enqueue_copy(
            self.queue, to, source, is_blocking=False, wait_for=self.wait or None, **where
        )
        self._add(event)

    def _run(self, kernel: Any) -> None:
        self._add(self.cl.enqueue_nd_range_kernel(self.queue, kernel, (1,), (1,), wait_for=self.wait or None))


class DeviceSide:
    """Hands units over to command queues as soon as they are issued; in the queue's order where it has one.

    `ticks` are events by whose ends a run can be seen to go on; `spins` are those of spin kernels, and how
    many rounds they have.

    Several host threads may issue to one queue; what stands behind a row that another thread has not issued
    yet waits here, and its issuer goes on.
    """

    def __init__(self, session: Session, graph: Graph, nodes: Nodes, timing: Timing, met: Meetings) -> None:
        self.session = session
        self.graph = graph
        self.memory: Memory = session.memory
        self.nodes = nodes
        self.timing = timing
        self.met = met
        self.ready: set[int] = set()
        self.stamps: dict[int, Stamps] = {}
        self.ticks: list[Any] = []
        self.spins: list[tuple[Any, int]] = []
        self._at = dict.fromkeys(graph.sequence, 0)

    def submit(self, unit: int) -> None:
        """Take a unit all of whose rows are issued; the caller holds the lock."""
        home = self.graph.home[unit]
        sequence = self.graph.sequence.get(home)
        if sequence is None:
            self._enqueue(unit)
            if self.graph.has_parts(unit):
                self._enqueue(~unit)
        else:
            self.ready.add(unit)
            at = self._at[home]
            while at < len(sequence) and (sequence[at] < 0 or sequence[at] in self.ready):
                self._enqueue(sequence[at])
                at += 1
            self._at[home] = at
        self.session.queues[home].flush()

    def _enqueue(self, node: int) -> None:
        unit = node if node >= 0 else ~node
        if node >= 0:
            self._start(unit)
            if self.graph.has_parts(unit):
                return
        self._end(unit)

    def _commands(self, node: int, unit: int) -> _Commands:
        graph = self.graph
        before = (*graph.after.get(node, ()), *self.timing.pinned_after(node))
        wait = self.nodes.wait_list(before, graph.any_of.get(node, ()))
        mine = self.nodes.events.get(unit) if node < 0 else None
        if mine is not None and not graph.contract.queues.in_order[graph.home[unit]]:
            wait.append(mine)
        return _Commands(self, unit, wait)

    def _start(self, unit: int) -> None:
        commands = self._commands(unit, unit)
        delay = self.timing.before_start(unit)
        if delay:
            commands.spin(delay)
        commands.first = None
        accesses = self.memory.of_unit.get(unit, [])
        for a in accesses:
            if a.stage >= 0 and a.mode & FOLD:
                commands.upload(a.stage, a.at, a.bytes)
        if any(a.mode & (FOLD | WRITE) for a in accesses):
            commands.accesses(self.session.begin, accesses)
        else:
            commands.marker(barrier=self.graph.contract.ops.kind[unit] in ("wait", "wait_any", "semwait"))
        for a in accesses:
            if a.stage >= 0 and a.mode & WRITE and not a.mode & KIN:
                commands.download(a.at, a.stage, a.bytes)
        self.stamps[unit] = Stamps(start=commands.first)
        self.nodes.enqueued(unit, commands.last)

    def _end(self, unit: int) -> None:
        commands = self._commands(~unit, unit)
        accesses = self.memory.of_unit.get(unit, [])
        duration = 0 if self.graph.has_parts(unit) else self.timing.duration(unit)
        if duration:
            commands.spin(duration)
        for a in accesses:
            if a.stage >= 0 and a.mode & (FOLD | WRITE) and not a.mode & KIN:
                commands.upload(a.stage, a.at, a.bytes)
        if unit in self.memory.copies:
            commands.accesses(self.session.look, accesses)
            self._copies(commands, unit)
        if accesses:
            commands.accesses(self.session.end, accesses)
        for piece in self.met.pieces.get(unit, ()):
            commands.tear(piece)
        for a in accesses:
            if a.stage >= 0 and a.mode & (WRITE | XOR):
                commands.download(a.at, a.stage, a.bytes)
        if commands.last is None and (commands.wait or self.graph.has_parts(unit)):
            commands.marker()
        stamps = self.stamps[unit]
        stamps.done = commands.last or self.nodes.events[unit]
        delay = self.timing.after_end(unit)
        if delay:
            commands.spin(delay)
        stamps.end = commands.last or self.nodes.events[unit]
        self.nodes.enqueued(~unit, stamps.end)
        self.ticks.append(stamps.end)

    def _copies(self, commands: _Commands, unit: int) -> None:
        for copy in self.memory.copies[unit]:
            source, target = copy.source, copy.target
            if not target.host:
                if source.host:
                    commands.upload(target.at, source.at, copy.bytes)
                else:
                    commands.move(target.at, source.at, copy.bytes)
                continue
            if source.host:
                commands.upload(target.stage, source.at, copy.bytes)
                commands.download(target.at, target.stage, copy.bytes)
            else:
                commands.download(target.at, source.at, copy.bytes)
            # Where it went is looked at, and written, through the stage.
            commands.upload(target.stage, target.at, target.bytes)
