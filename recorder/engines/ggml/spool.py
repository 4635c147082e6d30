"""Read the spool that the plugin writes (layout: ``native/spool.h``).

A spool is what a process left behind, perhaps while it was being killed: a torn last definition, slots that
were never filled and a missing end mark are normal and make the recording incomplete. Anything that a dying
writer cannot produce is damage, and refused with `SpoolError`.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ....formats.errors import InfrastructureError, MissingInput, SpoolError

__all__ = [
    "ACCESS",
    "COMMIT",
    "HEADER",
    "MAGIC",
    "MODES",
    "NONE",
    "NO_QUEUE",
    "RECORD",
    "SPOOL_VERSION",
    "AccessFlag",
    "BufferDef",
    "BufferFlag",
    "Def",
    "DeviceDef",
    "EventFlag",
    "Flag",
    "HeaderFlag",
    "Kind",
    "QueueDef",
    "Spool",
    "read_spool",
    "read_spools",
]

MAGIC = 0x304C4F4F50534454
SPOOL_VERSION = 0
COMMIT = 0x7AD0C0DE
NONE = 0xFFFFFFFF
NO_QUEUE = 0xFFFF

HEADER = np.dtype(
    [
        ("magic", "<u8"),
        ("version", "<u4"),
        ("record_bytes", "<u4"),
        ("mono_ns", "<u8"),
        ("wall_ns", "<u8"),
        ("pid", "<u4"),
        ("flags", "<u4"),
        ("lost", "<u8"),
        ("reserved", "<u8", (2,)),
    ]
)
RECORD = np.dtype(
    [
        ("issue_ns", "<u8"),
        ("end_ns", "<u8"),
        ("a", "<u8"),
        ("b", "<u8"),
        ("c", "<u8"),
        ("d", "<u4"),
        ("e", "<u4"),
        ("name", "<u4"),
        ("thread", "<u2"),
        ("queue", "<u2"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("reserved", "<u2"),
        ("commit", "<u4"),
    ]
)
ACCESS = np.dtype(
    [
        ("buffer", "<u4"),
        ("name", "<u4"),
        ("offset", "<u8"),
        ("bytes", "<u8"),
        ("mode", "u1"),
        ("flags", "u1"),
        ("reserved", "<u2"),
        ("node", "<u4"),
    ]
)
MODES = ("read", "write", "update", "may_write", "reduce")
_INT64_MAX = (1 << 63) - 1
_CHUNK_SLOTS = 1 << 16


class Kind(IntEnum):
    """Kinds of records, ``kind_t``."""

    NONE = 0
    COMPUTE = 1
    COPY = 2
    SET = 3
    GET = 4
    MEMSET = 5
    CLEAR = 6
    EVENT_RECORD = 7
    EVENT_WAIT = 8
    EVENT_SYNC = 9
    SYNC = 10
    BUFFER_ALLOC = 11
    BUFFER_FREE = 12
    EVENT_FREE = 13
    QUEUE_INIT = 14
    QUEUE_FREE = 15
    EXEC = 16
    SPLIT_COPY_WAIT = 17


class Flag(IntFlag):
    """Flags of a record, ``F_*``."""

    HOST = 1
    FOREIGN = 2
    FAILED = 4
    META = 8
    CHILD = 16
    SPAN = 32


class HeaderFlag(IntFlag):
    """Flags of the header, ``HDR_*``."""

    ENDED = 1
    FAILED = 2


class Def(IntEnum):
    """Types of definition frames, ``def_t``."""

    PROCESS = 1
    THREAD = 2
    DEVICE = 3
    QUEUE = 4
    BUFFER = 5
    EVENT = 6
    NAME = 7
    SET = 8
    SWITCH = 9
    NOTE = 10


class AccessFlag(IntFlag):
    """Flags of an access: a leaf flagged as input, any leaf, a span that is wider than the view."""

    INPUT = 1
    LEAF = 2
    WIDE = 4


class BufferFlag(IntFlag):
    """Flags of a buffer."""

    HOST = 1
    WEIGHTS = 2
    LATE = 4


class EventFlag(IntFlag):
    """Flags of an event: seen late, so that it was perhaps recorded before the recorder came."""

    LATE = 1


@dataclass(frozen=True)
class DeviceDef:
    """A device as the engine registered it."""

    type: int
    is_test: bool
    caps: int
    name: str
    description: str
    reg: str
    profile: str


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
        Ended cleanly; stopped early (disk, limits).
    torn : bool
        The last definition was cut short.
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

    @property
    def complete(self) -> bool:
        """Whether everything that happened is here."""
        return self.ended and not self.failed and not self.torn and self.lost == 0

    def host_threads(self) -> list[bool]:
        """Return which threads called the engine; the others are workers of the plugin."""
        calls = self.records["thread"][self.records["kind"] != Kind.EXEC]
        used = np.zeros(self.threads, bool)
        used[calls] = True
        return [bool(u) for u in used]


def read_spools(directory: Path) -> list[Spool]:
    """Read every process's spool in a directory, oldest process first.

    Raises
    ------
    MissingInput
        The directory is not there.
    SpoolError
        A spool is damaged, foreign or of another version.
    """
    if not directory.is_dir():
        raise MissingInput(
            "no such spool directory",
            where=directory.name,
            next_step="give the directory kept by --keep-spool",
        )
    found = [read_spool(p) for p in sorted(directory.glob("*.rec")) if p.is_file() and not p.is_symlink()]
    return sorted((s for s in found if s is not None), key=lambda s: (s.wall_ns, s.mono_ns))


def read_spool(path: Path) -> Spool | None:
    """Read one process's spool (``STEM.rec`` and ``STEM.def``).

    Returns
    -------
    Spool or None
        None when the process died before it had written its header.

    Raises
    ------
    SpoolError
        The spool is damaged, foreign or of another version.
    """
    where = path.name
    try:
        with path.open("rb", buffering=0) as file:
            head = file.read(HEADER.itemsize)
            if len(head) < HEADER.itemsize or not any(head):
                return None
            header = _header(head, where)
            records, slots, damaged = _committed(file)
    except OSError as e:
        raise InfrastructureError(
            e.strerror or "cannot be read", expected="a spool file that can be read", where=where
        ) from e
    order = np.lexsort((slots, records["issue_ns"]))
    flags = int(header["flags"])
    spool = Spool(
        records=records[order],
        slots=slots[order],
        mono_ns=_int64(int(header["mono_ns"]), "mono_ns", where),
        wall_ns=_int64(int(header["wall_ns"]), "wall_ns", where),
        lost=_int64(int(header["lost"]), "lost", where) + damaged,
        ended=bool(flags & HeaderFlag.ENDED),
        failed=bool(flags & HeaderFlag.FAILED),
    )
    _read_definitions(path.with_suffix(".def"), spool)
    _check(spool, where)
    return spool


def _header(head: bytes, where: str) -> Any:
    header = np.frombuffer(head, HEADER)[0]
    if int(header["magic"]) != MAGIC:
        raise _bad("foreign file", "a spool", where)
    if int(header["version"]) != SPOOL_VERSION:
        raise SpoolError(
            f"spool version {int(header['version'])}",
            expected=f"version {SPOOL_VERSION}",
            where=where,
            next_step="collect it with the version of tapedelay that recorded it",
        )
    if int(header["record_bytes"]) != RECORD.itemsize:
        raise _bad(f"records of {int(header['record_bytes'])} bytes", f"{RECORD.itemsize}", where)
    return header


def _committed(file: FileIO) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], int]:
    """Return the committed records, their slots, and how many records are unreadable."""
    records, slots, damaged = [np.empty(0, RECORD)], [np.empty(0, np.int64)], 0
    for first, chunk in _chunks(file):
        numbers = np.arange(first, first + len(chunk), dtype=np.int64)
        good = chunk["commit"] == (np.uint32(COMMIT) ^ (numbers & 0xFFFFFFFF).astype(np.uint32))
        # The commit word is stored last into zeroed memory: anything else in its place is damage.
        damaged += int(np.count_nonzero((chunk["commit"] != 0) & ~good))
        records.append(chunk[good])
        slots.append(numbers[good])
    return np.concatenate(records), np.concatenate(slots), damaged


def _chunks(file: FileIO) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield (first slot, slots) of the parts of the file that hold data; a sparse file costs nothing."""
    size = os.fstat(file.fileno()).st_size
    last = (size - HEADER.itemsize) // RECORD.itemsize
    slot = 0
    while slot < last:
        try:
            data = os.lseek(file.fileno(), HEADER.itemsize + slot * RECORD.itemsize, os.SEEK_DATA)
        except OSError as e:
            if e.errno == errno.ENXIO:  # nothing but a hole up to the end
                return
            raise
        slot = max(slot, (data - HEADER.itemsize) // RECORD.itemsize)
        file.seek(HEADER.itemsize + slot * RECORD.itemsize)
        read = file.read(min(_CHUNK_SLOTS, last - slot) * RECORD.itemsize)
        count = len(read) // RECORD.itemsize
        if not count:
            return
        yield slot, np.frombuffer(read, RECORD, count)
        slot += count


def _bad(found: str, expected: str, where: str) -> SpoolError:
    return SpoolError(found, expected=expected, where=where, next_step="record again; this spool is damaged")


def _int64(value: int, what: str, where: str) -> int:
    if value > _INT64_MAX:
        raise _bad(f"{what} is {value}", "a number below 2^63", where)
    return value


class _Payload:
    """A cursor over one frame that never reads past its end."""

    def __init__(self, data: memoryview, where: str) -> None:
        self.data = data
        self.at = 0
        self.where = where

    def take(self, n: int) -> memoryview:
        if n > len(self.data) - self.at:
            raise _bad(
                f"a field of {n} bytes in a frame with {len(self.data) - self.at} left", "no more", self.where
            )
        got = self.data[self.at : self.at + n]
        self.at += n
        return got

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def text(self) -> str:
        return bytes(self.take(self.u32())).decode("utf-8", "replace")

    def next_id(self, have: int, what: str) -> None:
        got = self.u32()
        if got != have:
            raise _bad(f"{what} id {got}", f"{have}: ids count up from 0", self.where)

    def end(self) -> None:
        if self.at != len(self.data):
            raise _bad(f"{len(self.data) - self.at} bytes too many in a frame", "none", self.where)


def _read_definitions(path: Path, spool: Spool) -> None:
    where = path.name
    try:
        data = memoryview(path.read_bytes())
    except FileNotFoundError:
        data = memoryview(b"")
        spool.torn = True
    except OSError as e:
        raise InfrastructureError(
            e.strerror or "cannot be read", expected="a spool file that can be read", where=where
        ) from e
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
            raise _bad(f"checksum of the frame at byte {at} does not match", f"{crc:#010x}", where)
        reader = _READERS.get(kind)
        if reader is None:
            raise _bad(f"frame type {kind}", "a known one", f"{where}: byte {at}")
        payload = _Payload(frame[4:], f"{where}: byte {at}")
        reader(payload, spool)
        payload.end()
        at += 12 + n
    if spool.torn and spool.ended:
        raise _bad("definitions are cut short, yet the recording ended cleanly", "whole frames", where)


def _process(p: _Payload, s: Spool) -> None:
    s.api_version, s.engine, s.build, s.plugin_version = p.u32(), p.text(), p.text(), p.u32()


def _thread(p: _Payload, s: Spool) -> None:
    p.next_id(s.threads, "thread")
    s.threads += 1


def _device(p: _Payload, s: Spool) -> None:
    p.next_id(len(s.devices), "device")
    kind, is_test, caps = p.u32(), p.u32(), p.u32()
    s.devices.append(DeviceDef(kind, bool(is_test), caps, p.text(), p.text(), p.text(), p.text()))


def _queue(p: _Payload, s: Spool) -> None:
    p.next_id(len(s.queues), "queue")
    s.queues.append(QueueDef(p.u32(), bool(p.u32()), p.text()))
    _known(s.queues[-1].device, len(s.devices), "device", p.where)


def _buffer(p: _Payload, s: Spool) -> None:
    index = p.u32()
    _known(index, len(s.buffers) + 1, "buffer", p.where)
    device, flags, size, base = p.u32(), p.u32(), p.u64(), p.u64()
    _known(device, len(s.devices), "device", p.where, optional=True)
    # An id that comes again replaces what was said before: usage is known after the allocation only.
    s.buffers[index : index + 1] = [
        BufferDef(device, flags, _int64(size, "size of a buffer", p.where), base, p.text())
    ]


def _event(p: _Payload, s: Spool) -> None:
    p.next_id(len(s.events), "event")
    s.events.append(p.u32())
    _known(s.events[-1], len(s.devices), "device", p.where, optional=True)
    if p.u32() & EventFlag.LATE:
        s.late_events.add(len(s.events) - 1)


def _name(p: _Payload, s: Spool) -> None:
    p.next_id(len(s.names), "name")
    s.names.append(p.text())


def _set(p: _Payload, s: Spool) -> None:
    p.next_id(len(s.sets), "set")
    n = p.u32()
    rows = np.frombuffer(p.take(n * ACCESS.itemsize), ACCESS)
    if n:
        _all_known(rows["buffer"], len(s.buffers), "buffer", p.where, optional=True)
        _all_known(rows["name"], len(s.names), "name", p.where, optional=True)
        if int(rows["mode"].max()) >= len(MODES):
            raise _bad(f"access mode {int(rows['mode'].max())}", f"below {len(MODES)}", p.where)
        if int(rows["offset"].max()) > _INT64_MAX // 2 or int(rows["bytes"].max()) > _INT64_MAX // 2:
            raise _bad("an access beyond 2^62 bytes", "offsets inside a buffer", p.where)
    s.sets.append(rows)


def _switch(p: _Payload, s: Spool) -> None:
    name = p.text()
    s.switches[name] = p.text()


def _note(p: _Payload, s: Spool) -> None:
    s.notes.append(p.text())


_READERS: dict[int, Callable[[_Payload, Spool], None]] = {
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
}


def _known(value: int, have: int, what: str, where: str, *, optional: bool = False) -> None:
    if value >= have and not (optional and value == NONE):
        raise _bad(f"{what} {value}", f"one of the {have} defined", where)


def _all_known(values: npt.NDArray[Any], have: int, what: str, where: str, *, optional: bool = False) -> None:
    wrong = values >= have
    if optional:
        wrong &= values != NONE
    if wrong.any():
        raise _bad(f"{what} {int(values[wrong][0])}", f"one of the {have} defined", where)


_BUFFER_BOTH = (Kind.COPY, Kind.SET, Kind.GET)
_BUFFER_E = (Kind.MEMSET, Kind.CLEAR, Kind.BUFFER_ALLOC, Kind.BUFFER_FREE)
_EVENTS = (Kind.EVENT_RECORD, Kind.EVENT_WAIT, Kind.EVENT_SYNC, Kind.EVENT_FREE)


def _check(s: Spool, where: str) -> None:
    """Refuse records that name what is not defined; where definitions were cut, count them as lost."""
    r = s.records
    if not len(r):
        return
    if int(r["kind"].max()) > max(Kind) or int(r["kind"].min()) == Kind.NONE:
        raise _bad("a record of an unknown kind", f"1 to {int(max(Kind))}", where)
    for column in ("issue_ns", "end_ns"):
        _int64(int(r[column].max()), column, where)
    for column in ("a", "b", "c"):
        if int(r[column].max()) > _INT64_MAX // 2:
            raise _bad(f"column {column} holds {int(r[column].max())}", "a number below 2^62", where)
    kind = r["kind"]
    wrong = r["thread"] >= s.threads
    wrong |= (r["queue"] >= len(s.queues)) & (r["queue"] != NO_QUEUE)
    wrong |= (r["name"] >= len(s.names)) & (r["name"] != NONE)
    wrong |= np.isin(kind, _BUFFER_BOTH) & (r["d"] >= len(s.buffers)) & (r["d"] != NONE)
    wrong |= np.isin(kind, _BUFFER_BOTH) & (r["e"] >= len(s.buffers)) & (r["e"] != NONE)
    wrong |= np.isin(kind, _BUFFER_E) & (r["e"] >= len(s.buffers))
    wrong |= np.isin(kind, _EVENTS) & (r["d"] >= len(s.events))
    wrong |= (kind == Kind.COMPUTE) & (r["d"] >= len(s.sets)) & (r["d"] != NONE)
    needs_queue = (Kind.COMPUTE, Kind.EVENT_RECORD, Kind.EVENT_WAIT, Kind.SYNC, Kind.SPLIT_COPY_WAIT)
    wrong |= np.isin(kind, needs_queue) & (r["queue"] == NO_QUEUE)
    if not wrong.any():
        return
    if not (s.torn or s.failed):
        first = int(s.slots[np.flatnonzero(wrong)[0]])
        raise _bad(
            f"the record in slot {first} names what is not defined", "definitions before records", where
        )
    s.lost += int(wrong.sum())
    s.records, s.slots = r[~wrong], s.slots[~wrong]
