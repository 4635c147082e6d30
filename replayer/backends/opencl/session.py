"""What a loaded program holds on a device: queues, buffers, kernels, host memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ....formats.errors import ReplayFailed, Unsupported
from .calibrate import Spin, calibrate_spin
from .graph import NOBODY, Graph
from .memory import COLUMNS, SLOTS, TORN, Memory
from .platform import Device
from .values import Bytes

__all__ = ["MAX_QUEUES", "Session", "open_session"]

MAX_QUEUES = 256
"""Command queues and host threads of one program."""

_PROGRAMS: dict[Device, Any] = {}
_SPINS: dict[Device, Spin] = {}


@dataclass
class Session:
    """A program's share of a device.

    Attributes
    ----------
    queues : dict
        Command queue of each queue of the tape; host threads have one for their own blocking copies.
    arena, table, slots, snap, sink : pyopencl.Buffer
        Device memory; what kernels read about accesses; what they say about them; what was read; nothing.
    host : numpy.ndarray of uint8
        Host memory, pinned.
    begin, look, end, spin, flip, tear : pyopencl.Kernel
        With their buffers set.
    broken : bool
        Commands of a run that was given up still run.
    """

    device: Device
    memory: Memory
    queues: dict[int, Any] = field(default_factory=dict)
    arena: Any = None
    table: Any = None
    slots: Any = None
    snap: Any = None
    sink: Any = None
    pinned: Any = None
    host: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))
    begin: Any = None
    look: Any = None
    end: Any = None
    spin: Any = None
    flip: Any = None
    tear: Any = None
    clock: Any = None
    broken: bool = False
    spinning: Spin = field(default_factory=lambda: Spin(1.0))

    def reset(self, torn: Iterable[int] = ()) -> None:
        """Put all memory into its first state; `torn`: indices of accesses that will read what is written."""
        cl, memory = self.device.cl, self.memory
        self.stop_spinning(False)
        self.host[:] = memory.host_first
        cl.enqueue_copy(self.clock, self.arena, memory.arena_first, is_blocking=True)
        blank = np.zeros((max(len(memory.all), 1), SLOTS), np.uint64)
        blank[list(torn), TORN] = 1
        cl.enqueue_copy(self.clock, self.slots, blank, is_blocking=True)

    def stop_spinning(self, stop: bool) -> None:
        """Let spin kernels, running or to come, end at once; or take their time again."""
        word = np.array([0, int(stop)], np.uint64)
        self.device.cl.enqueue_copy(self.clock, self.sink, word, is_blocking=True)

    def learn(self, spins: Iterable[tuple[Any, int]]) -> None:
        """Correct what a spin takes by spins that have ended: pairs of event and rounds."""
        took = ((rounds, int(e.profile.end) - int(e.profile.start)) for e, rounds in spins)
        _SPINS[self.device] = self.spinning = _SPINS[self.device].learned(took)

    def fetch(self, buffer: Any, like: Any) -> Any:
        """Return a buffer's content; only for after a run."""
        self.device.cl.enqueue_copy(self.clock, like, buffer, is_blocking=True)
        return like

    def close(self) -> None:
        """Give everything back; calling it twice does nothing."""
        if self.pinned is not None:
            self.host = np.empty(0, np.uint8)
        self.queues.clear()
        self.begin = self.look = self.end = self.spin = self.flip = self.tear = self.clock = None
        self.arena = self.table = self.slots = self.snap = self.sink = self.pinned = None


def _build(device: Device) -> Any:
    source = Path(__file__).with_name("kernels.cl").read_text(encoding="utf-8")
    cl = device.cl
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a compiler that only has something to say
            return cl.Program(device.context, source).build(cache_dir=False)
    except cl.Error as error:
        raise ReplayFailed(
            f"{device.name} does not compile the kernels: {error}",
            where="opencl",
            next_step="choose another device (TAPEDELAY_OPENCL)",
        ) from error


def open_session(device: Device, graph: Graph, memory: Memory, where: str) -> Session:
    """Make queues, buffers and kernels.

    Raises
    ------
    Unsupported
        Too many queues, or queues out of order on a device without such.
    ReplayFailed
        The runtime refuses.
    """
    cl, contract = device.cl, graph.contract
    used = sorted({*graph.home.values(), *(t for t in graph.programs if t != NOBODY)})
    if len(used) > MAX_QUEUES:
        raise Unsupported(
            f"{len(used)} queues and host threads",
            expected=f"at most {MAX_QUEUES} on opencl",
            where=where,
            next_step="replay on the virtual backend",
        )
    profiling = cl.command_queue_properties.PROFILING_ENABLE
    loose = profiling | cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    session = Session(device, memory)
    flags = cl.mem_flags
    try:
        for queue in used:
            ordered = contract.queues.in_order[queue]
            if not ordered and not device.out_of_order:
                raise Unsupported(
                    f"queue {queue} is not in order, and {device.name} has no such queues",
                    where=where,
                    next_step="replay on the virtual backend",
                )
            properties = profiling if ordered else loose
            session.queues[queue] = cl.CommandQueue(device.context, device.device, properties)
        session.clock = cl.CommandQueue(device.context, device.device, profiling)
        session.arena = cl.Buffer(device.context, flags.READ_WRITE, memory.arena_bytes)
        session.table = cl.Buffer(device.context, flags.READ_ONLY, max(memory.table.nbytes, COLUMNS * 8))
        session.slots = cl.Buffer(device.context, flags.READ_WRITE, max(len(memory.all), 1) * SLOTS * 8)
        session.snap = cl.Buffer(device.context, flags.READ_WRITE, memory.snap_bytes)
        session.sink = cl.Buffer(device.context, flags.READ_WRITE, 64)
        cl.enqueue_copy(session.clock, session.table, memory.table, is_blocking=True)
        session.pinned = cl.Buffer(device.context, flags.READ_WRITE | flags.ALLOC_HOST_PTR, memory.host_bytes)
        access = cl.map_flags.READ | cl.map_flags.WRITE
        session.host, _ = cl.enqueue_map_buffer(
            session.clock, session.pinned, access, 0, (memory.host_bytes,), np.uint8, is_blocking=True
        )
        _kernels(session)
    except cl.Error as error:
        session.close()
        raise ReplayFailed(
            f"{device.name}: {error}", where=where, next_step="replay fewer ops, or on the virtual backend"
        ) from error
    return session


def _kernels(session: Session) -> None:
    cl = session.device.cl
    device = session.device
    if device not in _PROGRAMS:
        _PROGRAMS[device] = _build(device)
    session.begin, session.look, session.end, session.spin, session.flip, session.tear = (
        cl.Kernel(_PROGRAMS[device], name) for name in ("begin", "look", "end", "spin", "xor_range", "tear")
    )
    for kernel in (session.begin, session.look, session.end):
        for at, buffer in enumerate((session.arena, session.table, session.slots, session.snap)):
            kernel.set_arg(at, buffer)
    session.flip.set_arg(0, session.arena)
    session.tear.set_arg(0, session.arena)
    session.spin.set_arg(0, session.sink)
    session.stop_spinning(False)
    if device not in _SPINS:
        _SPINS[device] = calibrate_spin(cl, session.clock, session.spin)
    session.spinning = _SPINS[device]
