"""Read the raw recordings of request schedulers.

A process may have been killed at any moment: half a frame at the end is normal and counted. Anything else
that its writer cannot produce is damage, and refused with `SpoolError`.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from ...formats.errors import SpoolError
from ..files import cannot_read, open_regular
from .layout import FRAME, FRAME_BYTES_MAX, HEADER, INT_MAX, MAGIC, PATTERN, RUNNING, STOPPED, VERSION
from .weight import weight_of

__all__ = ["Frames", "damaged", "frames_of", "read_all"]

_LIGHT_BYTES = 1 << 16
"""A frame up to this length takes little, whatever it holds."""
_WEIGHT_MAX = 1 << 27
"""What a frame may take when it is unpacked: more than one of `FRAME_BYTES_MAX` that a recorder writes."""


@dataclass
class Frames:
    """What one process left behind.

    Attributes
    ----------
    where : str
        File name, for messages.
    pid : int
        The process's own number; it stays out of tapes.
    mono_ns, wall_ns : int
        CLOCK_MONOTONIC and CLOCK_REALTIME of one moment.
    status, error : int
        How the recording ended, and the system's error number.
    cut : int
        Frames at the end that are not whole; known when all were read.
    """

    where: str
    path: Path
    pid: int
    mono_ns: int
    wall_ns: int
    status: int
    error: int
    cut: int = 0

    @property
    def complete(self) -> bool:
        """Whether everything that happened is here; known when all were read."""
        return self.status not in (RUNNING, STOPPED) and not self.cut

    def __iter__(self) -> Iterator[list[Any]]:
        """Yield what each frame holds: a list whose first item is the frame's kind.

        Raises
        ------
        SpoolError
            A frame is damaged.
        """
        try:
            with BufferedReader(open_regular(self.path), 1 << 20) as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(HEADER.size)
                yield from self._frames(file, size)
        except OSError as e:
            raise cannot_read(self.path, e) from e

    def _frames(self, file: BinaryIO, size: int) -> Iterator[list[Any]]:
        at = HEADER.size
        while at < size:
            head = file.read(FRAME.size)
            if len(head) < FRAME.size:
                break
            length, crc = FRAME.unpack(head)
            if not length and not crc:  # blocks that the system had given, and no bytes yet
                if any(head) or any(any(chunk) for chunk in iter(lambda: file.read(1 << 20), b"")):
                    raise damaged("a frame of no bytes", self.where)
                break
            if at + FRAME.size + length > size:
                break
            if length > FRAME_BYTES_MAX:
                raise damaged(f"a frame of {length} bytes", self.where)
            payload = file.read(length)
            at += FRAME.size + length
            if zlib.crc32(payload) != crc:
                if at >= size:
                    at = size - 1
                    break
                raise damaged(f"the frame that ends at byte {at} changed after it was written", self.where)
            yield _unpacked(payload, self.where)
        self.cut = int(at < size)


def frames_of(path: Path) -> Frames | None:
    """Return one process's frames, its header read; None: it was killed before it wrote any.

    Raises
    ------
    SpoolError
        It is foreign or of another version.
    """
    try:
        with open_regular(path) as file:
            head = file.read(HEADER.size)
    except OSError as e:
        raise cannot_read(path, e) from e
    if len(head) < HEADER.size or not any(head):
        return None
    magic, version, status, error, pid, mono_ns, wall_ns = HEADER.unpack(head)
    if magic != MAGIC:
        raise damaged("foreign file", path.name)
    if version != VERSION:
        raise SpoolError(
            f"version {version} of a raw recording of request schedulers",
            expected=f"version {VERSION}",
            where=path.name,
            next_step="collect it with the version of tapedelay that recorded it",
        )
    if not (0 <= mono_ns <= INT_MAX and 0 <= wall_ns <= INT_MAX) or status > STOPPED:
        raise damaged("a header with impossible times or status", path.name)
    return Frames(path.name, path, pid, mono_ns, wall_ns, status, error)


def read_all(directory: Path) -> list[Frames]:
    """Return the frames of every process that recorded a request scheduler, oldest process first.

    Raises
    ------
    SpoolError
        One is damaged, foreign or of another version.
    """
    found = [frames_of(p) for p in sorted(directory.glob(PATTERN))]
    return sorted((f for f in found if f is not None), key=lambda f: (f.wall_ns, f.mono_ns, f.where))


def damaged(found: str, where: str) -> SpoolError:
    """Return the error for what no writer can produce."""
    return SpoolError(
        found,
        expected="what the recorder of request schedulers writes",
        where=where,
        next_step="record again; this raw recording is damaged",
    )


def _unpacked(payload: bytes, where: str) -> list[Any]:
    import msgpack

    if len(payload) > _LIGHT_BYTES and weight_of(payload, _WEIGHT_MAX) > _WEIGHT_MAX:
        raise damaged(f"a frame of {len(payload)} bytes that takes more than {_WEIGHT_MAX >> 20} MiB", where)
    try:
        found = msgpack.unpackb(payload, strict_map_key=False, use_list=True)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as e:
        raise damaged(f"a frame that is no msgpack ({type(e).__name__})", where) from None
    if not isinstance(found, list) or not found:
        raise damaged("a frame that is no list", where)
    return found
