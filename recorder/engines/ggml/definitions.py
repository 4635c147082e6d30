"""What one process wrote, and its definitions: devices, queues, buffers, events, names, access sets."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...files import DEFINITIONS_BYTES_MAX, read_regular
from .layout import ACCESS, MODES, Def, EventFlag, Kind
from .payload import INT64_MAX, Payload, all_known, damaged, int64, known
from .scheduler import GraphDef, SchedDef, read_graph, read_sched

__all__ = [
    "INT64_MAX",
    "BufferDef",
    "Cap",
    "DeviceDef",
    "DeviceType",
    "QueueDef",
    "Spool",
    "damaged",
    "int64",
    "read_definitions",
]


class DeviceType(IntEnum):
    """``ggml_backend_dev_type``."""

    CPU = 0
    GPU = 1
    IGPU = 2
    ACCEL = 3
    META = 4


class Cap(IntFlag):
    """What a device can do, as ``D_DEVICE`` says it (``native/objects.cpp``)."""

    ASYNC = 1
    EVENTS = 2
    HOST_BUFFER = 4


_KINDS: dict[int, str] = {
    DeviceType.CPU: "host",
    DeviceType.GPU: "gpu",
    DeviceType.IGPU: "igpu",
    DeviceType.ACCEL: "accel",
    DeviceType.META: "meta",
}


@dataclass(frozen=True)
class DeviceDef:
    """A device as the engine registered it; `type` may be one that `DeviceType` does not know."""

    type: int
    is_test: bool
    caps: int
    name: str
    description: str
    reg: str
    profile: str
    bus: str = ""

    @property
    def kind(self) -> str:
        """The kind, in the words of the tape."""
        return "test" if self.is_test else _KINDS.get(self.type, "other")


@dataclass(frozen=True)
class QueueDef:
    """A backend object."""

    device: int
    is_async: bool
    name: str


@dataclass(frozen=True)
class BufferDef:
    """One allocation."""

    device: int
    flags: int
    bytes: int
    base: int
    type_name: str


@dataclass
class Spool:
    """What one process wrote.

    Attributes
    ----------
    records : numpy.ndarray
        Committed records in issue order (issue time, then slot).
    slots : numpy.ndarray
        Slot number of each record.
    lost : int
        Records that the writer dropped or that are unreadable.
    ended, failed : bool
        Ended cleanly; stopped early.
    why, error : int
        What stopped it (`layout.Stop`), and the system's error number; 0 = not known.
    dropped : int
        Older records that a flight recorder dropped on purpose.
    last_records, last_ns : int
        What a flight recorder was asked to keep: so many records, or those of the last ns; 0 = not by this.
    boot : int
        Processes with the same number (not 0) share one monotonic clock.
    pid : int
        The process's own number; it stays out of tapes.
    common_ns : int or None
        `shift_ns` where it is not the process's own clock that says it.
    torn : bool
        The last definition was cut short.
    tap : bool
        The tap was in the process and told the plugin of its scheduler.
    scheds, graphs : list
        Schedulers, and the graphs that they received.
    events : list of int
        Device of each event.
    late_events : set of int
        Those that existed before the recorder came.
    """

    records: npt.NDArray[Any]
    slots: npt.NDArray[np.int64]
    mono_ns: int
    wall_ns: int
    lost: int
    ended: bool
    failed: bool
    torn: bool = False
    why: int = 0
    error: int = 0
    dropped: int = 0
    last_records: int = 0
    last_ns: int = 0
    boot: int = 0
    pid: int = 0
    common_ns: int | None = None
    api_version: int = 0
    engine: str = ""
    build: str = ""
    plugin_version: int = 0
    threads: int = 0
    devices: list[DeviceDef] = field(default_factory=list)
    queues: list[QueueDef] = field(default_factory=list)
    buffers: list[BufferDef] = field(default_factory=list)
    events: list[int] = field(default_factory=list)
    late_events: set[int] = field(default_factory=set)
    names: list[str] = field(default_factory=list)
    sets: list[npt.NDArray[Any]] = field(default_factory=list)
    switches: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    tap: bool = False
    scheds: list[SchedDef] = field(default_factory=list)
    graphs: list[GraphDef] = field(default_factory=list)

    @property
    def shift_ns(self) -> int:
        """What turns the process's monotonic clock into the time that all processes share."""
        return (self.wall_ns - self.mono_ns) if self.common_ns is None else self.common_ns

    @property
    def recorded(self) -> int:
        """Records that are there; marks of gaps are none."""
        return len(self.records) - int(np.count_nonzero(self.records["kind"] == Kind.GAP))

    @property
    def complete(self) -> bool:
        """Whether everything that happened is here."""
        return self.ended and not self.failed and not self.torn and self.lost == 0

    def host_threads(self) -> list[bool]:
        """Return which threads called the engine; the others are workers of the plugin."""
        works = np.isin(self.records["kind"], (Kind.EXEC, Kind.DELAY, Kind.GAP))
        calls = self.records["thread"][~works]
        used = np.zeros(self.threads, bool)
        used[calls] = True
        return [bool(u) for u in used]

    def is_worker(self, thread: int) -> bool:
        """Return whether a thread wrote times of commands: the plugin's own worker."""
        mine = self.records["thread"] == thread
        return bool(np.isin(self.records["kind"][mine], (Kind.EXEC, Kind.DELAY)).any())


def _length(ns: int) -> str:
    return f"{ns / 1e6:.3g} ms" if ns >= 999_500 else f"{ns / 1e3:.3g} us"


def read_definitions(path: Path, spool: Spool) -> None:
    """Read ``STEM.def`` into `spool`.

    Raises
    ------
    SpoolError
        A frame is damaged, or says what cannot be.
    """
    where = path.name
    try:
        data = memoryview(read_regular(path, DEFINITIONS_BYTES_MAX))
    except FileNotFoundError:
        data = memoryview(b"")
        spool.torn = True
    at = 0
    while at < len(data):
        if len(data) - at < 12:
            spool.torn = True
            break
        n, crc, kind = struct.unpack_from("<III", data, at)
        if n > len(data) - at - 12:
            spool.torn = True
            break
        frame = data[at + 8 : at + 12 + n]
        if zlib.crc32(frame) != crc:
            raise damaged(f"checksum of the frame at byte {at} does not match", f"{crc:#010x}", where)
        reader = _READERS.get(kind)
        if reader is None:
            raise damaged(f"frame type {kind}", "a known one", f"{where}: byte {at}")
        payload = Payload(frame[4:], f"{where}: byte {at}")
        reader(payload, spool)
        payload.end()
        at += 12 + n
    if spool.torn and spool.ended and not spool.failed:  # what was written in part could not be taken back
        raise damaged("definitions are cut short, yet the recording ended cleanly", "whole frames", where)


def _process(p: Payload, s: Spool) -> None:
    s.api_version, s.engine, s.build, s.plugin_version = p.u32(), p.text(), p.text(), p.u32()


def _thread(p: Payload, s: Spool) -> None:
    p.next_id(s.threads, "thread")
    s.threads += 1


def _device(p: Payload, s: Spool) -> None:
    p.next_id(len(s.devices), "device")
    kind, is_test, caps = p.u32(), p.u32(), p.u32()
    name, description, reg, profile = (p.text() for _ in range(4))
    bus = p.text() if p.at < len(p.data) else ""  # older recordings end before it
    s.devices.append(DeviceDef(kind, bool(is_test), caps, name, description, reg, profile, bus))


def _queue(p: Payload, s: Spool) -> None:
    p.next_id(len(s.queues), "queue")
    s.queues.append(QueueDef(p.u32(), bool(p.u32()), p.text()))
    known(s.queues[-1].device, len(s.devices), "device", p.where)


def _buffer(p: Payload, s: Spool) -> None:
    index = p.u32()
    known(index, len(s.buffers) + 1, "buffer", p.where)
    device, flags, size, base = p.u32(), p.u32(), p.u64(), p.u64()
    known(device, len(s.devices), "device", p.where, optional=True)
    # An id that comes again replaces what was said before: usage is known after the allocation only.
    s.buffers[index : index + 1] = [
        BufferDef(device, flags, int64(size, "size of a buffer", p.where), base, p.text())
    ]


def _event(p: Payload, s: Spool) -> None:
    p.next_id(len(s.events), "event")
    s.events.append(p.u32())
    known(s.events[-1], len(s.devices), "device", p.where, optional=True)
    if p.u32() & EventFlag.LATE:
        s.late_events.add(len(s.events) - 1)


def _name(p: Payload, s: Spool) -> None:
    p.next_id(len(s.names), "name")
    s.names.append(p.text())


def _set(p: Payload, s: Spool) -> None:
    p.next_id(len(s.sets), "set")
    n = p.u32()
    rows = np.frombuffer(p.take(n * ACCESS.itemsize), ACCESS)
    if n:
        all_known(rows["buffer"], len(s.buffers), "buffer", p.where, optional=True)
        all_known(rows["name"], len(s.names), "name", p.where, optional=True)
        if int(rows["mode"].max()) >= len(MODES):
            raise damaged(f"access mode {int(rows['mode'].max())}", f"below {len(MODES)}", p.where)
        if int(rows["offset"].max()) > INT64_MAX // 2 or int(rows["bytes"].max()) > INT64_MAX // 2:
            raise damaged("an access beyond 2^62 bytes", "offsets inside a buffer", p.where)
    s.sets.append(rows)


def _switch(p: Payload, s: Spool) -> None:
    name = p.text()
    s.switches[name] = p.text()


def _note(p: Payload, s: Spool) -> None:
    s.notes.append(p.text())


def _filler(p: Payload, s: Spool) -> None:
    device, sleeps, shortest_ns, longest_ns = p.u32(), p.u32(), p.u64(), p.u64()
    asked_ns, took_ns = p.u64(), p.u64()
    known(device, len(s.devices), "device", p.where)
    pieces = f"matrix products of {_length(shortest_ns)} to {_length(longest_ns)}"
    s.notes.append(
        f"delays on the device's side on {s.devices[device].name} are "
        f"{'an op that sleeps' if sleeps else pieces}; "
        f"one of {_length(asked_ns)} took {_length(took_ns)}"
    )


def _tap(p: Payload, s: Spool) -> None:
    s.tap = bool(p.u32())


_READERS: dict[int, Callable[[Payload, Spool], None]] = {
    Def.PROCESS: _process,
    Def.THREAD: _thread,
    Def.DEVICE: _device,
    Def.QUEUE: _queue,
    Def.BUFFER: _buffer,
    Def.EVENT: _event,
    Def.NAME: _name,
    Def.SET: _set,
    Def.SWITCH: _switch,
    Def.NOTE: _note,
    Def.GRAPH: read_graph,
    Def.SCHED: read_sched,
    Def.TAP: _tap,
    Def.FILLER: _filler,
}
