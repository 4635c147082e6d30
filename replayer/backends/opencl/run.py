"""One run on a device: threads, the watch over them, and what it left behind."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ....formats.errors import ReplayFailed
from ...program import Program
from .calibrate import ClockMap, sample_clock
from .device_side import DeviceSide
from .graph import NOBODY, Graph
from .host_side import HostSide
from .meetings import Meetings
from .memory import AFTER, BEFORE, SLOTS, STAMP
from .nodes import Aborted, Nodes, command_failed
from .session import Session
from .timing import Timing
from .values import Bytes

__all__ = ["Trace", "run_once"]

Times = npt.NDArray[np.int64]

WATCH_S = 0.01


@dataclass
class Trace:
    """What a run left behind.

    Attributes
    ----------
    issue_ns : numpy.ndarray of int64, shape (rows,)
        Since the start of the run; -1: never.
    start_ns, done_ns, end_ns : numpy.ndarray of int64, shape (rows,)
        By unit: first access, last access, and when others may go on.
    place : dict
        Of a pinned run: place of each node in the order that was enforced; else empty.
    clock_error_ns : int
        Of times of queues against those of host threads.
    before, after, stamp : list of int
        By access: digest of what it read as the op began, the same as it ended, and the value written.
    content, content_after : dict
        By access: the bytes that it read as the op began, where they were kept, and as it ended, where the
        digests differ.
    arena, host : numpy.ndarray of uint8
        Memory at the end.
    met : Meetings
        Of a pinned run: who was in flight together.
    """

    issue_ns: Times
    start_ns: Times
    done_ns: Times
    end_ns: Times
    place: dict[int, int]
    clock_error_ns: int
    before: list[int]
    after: list[int]
    stamp: list[int]
    content: dict[int, bytes]
    content_after: dict[int, bytes]
    arena: Bytes
    host: Bytes
    met: Meetings


class _Watch:
    """Waits for the threads and queues of a run; gives it up when nothing ends any more."""

    def __init__(
        self, session: Session, nodes: Nodes, device: DeviceSide, host: HostSide, timeout_s: float
    ) -> None:
        self.session, self.nodes, self.device, self.host = session, nodes, device, host
        self.timeout_s = timeout_s
        self.failed: list[BaseException] = []
        self.running: list[Any] = []
        self._seen = 0

    def _progress(self) -> int:
        complete = self.session.device.cl.command_execution_status.COMPLETE
        with self.nodes.lock:
            ticks = self.device.ticks[self._seen :]
        waiting, self.running = self.running + ticks, []
        self._seen += len(ticks)
        for event in waiting:
            status = event.command_execution_status
            if status < 0:
                raise command_failed(status)
            if status > complete:
                self.running.append(event)
        return self._seen - len(self.running) + self.host.progress

    def until_done(self, threads: list[threading.Thread]) -> None:
        """Return when all threads and commands have ended."""
        last, at = -1, time.monotonic()
        pause = 0.0005
        while True:
            alive = any(t.is_alive() for t in threads)
            progress = self._progress()
            if self.failed:
                raise self.failed[0]
            if not alive and not self.running:
                return
            if progress != last:
                last, at = progress, time.monotonic()
            elif time.monotonic() - at > self.timeout_s:
                raise ReplayFailed(
                    f"no op ended for {self.timeout_s:g} s",
                    expected="progress, since nothing in the program waits in a circle",
                    where=self.session.device.name,
                    next_step="raise Options.timeout_s if the machine is busy; else the runtime is at fault",
                )
            time.sleep(pause)
            pause = min(WATCH_S, pause * 1.5)

    def drain(self, threads: list[threading.Thread], seconds: float = 5.0) -> bool:
        """After giving up: wait a little for what still runs; return whether all has ended."""
        until = time.monotonic() + seconds
        complete = self.session.device.cl.command_execution_status.COMPLETE
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        while time.monotonic() < until:
            if all(e.command_execution_status <= complete for e in self.device.ticks):
                break
            time.sleep(WATCH_S)
        else:
            return False
        return not any(t.is_alive() for t in threads)


def run_once(
    session: Session, program: Program, graph: Graph, timing: Timing, met: Meetings, timeout_s: float
) -> Trace:
    """Run a program; `met`: who will be in flight together, where that is known.

    Raises
    ------
    ReplayFailed
        The runtime failed, or nothing went on for `timeout_s`.
    """
    cl = session.device.cl
    nodes = Nodes(cl, session.device.context)
    device = DeviceSide(session, graph, nodes, timing, met)
    host = HostSide(session, graph, nodes, timing, device, met)
    watch = _Watch(session, nodes, device, host, timeout_s + timing.longest_ns / 1e9)
    session.reset(met.torn)
    clock = sample_clock(cl, session.clock)
    begin = threading.Barrier(len(graph.programs) + 1)
    started = [0]

    def body(thread: int) -> None:
        try:
            begin.wait()
            host.program(thread, started[0])
        except (Aborted, threading.BrokenBarrierError):
            return
        except BaseException as error:
            watch.failed.append(error)
            nodes.abort()

    threads = [
        threading.Thread(target=body, args=(t,), name=f"opencl-{'?' if t == NOBODY else t}", daemon=True)
        for t in graph.programs
    ]
    try:
        for thread in threads:
            thread.start()
        started[0] = time.perf_counter_ns()
        begin.wait()
        watch.until_done(threads)
    except BaseException as error:
        begin.abort()
        nodes.abort()
        session.stop_spinning(True)
        if not watch.drain(threads):
            session.broken = True
        if isinstance(error, cl.Error):
            raise ReplayFailed(
                f"{session.device.name}: {error}", where=program.tape.where, next_step="replay fewer ops"
            ) from error
        raise
    session.learn(device.spins)
    clocks = ClockMap.through(clock, sample_clock(cl, session.clock))
    return _collect(session, host, device, clocks, started[0], timing.place)


def _collect(
    session: Session, host: HostSide, device: DeviceSide, clocks: ClockMap, zero: int, place: dict[int, int]
) -> Trace:
    start, done, end = host.start_ns, host.done_ns, host.end_ns
    for unit, stamps in device.stamps.items():
        start[unit] = clocks.host(stamps.start.profile.start)
        if stamps.end is not None:
            done[unit] = clocks.host(stamps.done.profile.end)
            end[unit] = clocks.host(stamps.end.profile.end)
    for times in (host.issue_ns, start, done, end):
        times[times >= 0] -= zero
    memory = session.memory
    slots = session.fetch(session.slots, np.empty((max(len(memory.all), 1), SLOTS), np.uint64)).tolist()
    snap: Bytes = session.fetch(session.snap, np.empty(memory.snap_bytes, np.uint8))
    before, after, stamp = ([s[column] for s in slots] for column in (BEFORE, AFTER, STAMP))
    content, content_after = {}, {}
    for a in memory.all:
        kept = int(memory.table[a.index, 6])
        if kept >= 0:
            content[a.index] = snap[kept : kept + a.bytes].tobytes()
            content_after[a.index] = snap[kept + a.bytes : kept + 2 * a.bytes].tobytes()
    for index, look in host.looks.items():
        before[index], after[index], stamp[index] = look.before, look.after, look.stamp
        content[index], content_after[index] = look.content, look.content_after
    arena: Bytes = session.fetch(session.arena, np.empty(memory.arena_bytes, np.uint8))
    return Trace(
        host.issue_ns,
        start,
        done,
        end,
        place,
        clocks.error_ns,
        before,
        after,
        stamp,
        content,
        content_after,
        arena,
        session.host.copy(),
        host.met,
    )
