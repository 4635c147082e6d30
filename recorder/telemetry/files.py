"""The samples in a spool: a small description, and rows of one size.

``telemetry.json`` names devices and metrics and says what there is to say; ``telemetry.samples`` holds rows
of ``int64`` time (CLOCK_MONOTONIC, ns), ``int64`` device and one ``float64`` per metric, not-a-number where
it is not known. Little endian. A last row that was cut short is normal: the writer died.
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["BYTES_MAX", "DESCRIPTION", "SAMPLES", "SampleFile", "write_description"]

DESCRIPTION = "telemetry.json"
SAMPLES = "telemetry.samples"
BYTES_MAX = 16 << 20
"""What the rows of one recording may take on disk, and in memory when they are read."""
_PIECE_ROWS = 4096


def write_description(directory: Path, description: dict[str, Any]) -> None:
    """Write the description, at once and as a whole."""
    part = directory / (DESCRIPTION + ".part")
    part.write_text(json.dumps(description), encoding="utf-8")
    part.replace(directory / DESCRIPTION)


class SampleFile:
    """Writes rows, and keeps the file bounded however long it goes on.

    Parameters
    ----------
    directory : Path
        The spool.
    metrics : int
        Values per row.
    newest : bool
        When the file is full: drop its older half; else every second row of each device, so that the rest
        still covers the whole run.
    limit_bytes : int
        When it is full.

    Attributes
    ----------
    halvings : int
        How often every second row was dropped.
    """

    def __init__(
        self, directory: Path, metrics: int, *, newest: bool = False, limit_bytes: int = BYTES_MAX
    ) -> None:
        self._path = directory / SAMPLES
        self._row = struct.Struct(f"<qq{metrics}d")
        self._newest = newest
        self._rows_max = max(2, limit_bytes // self._row.size)
        self._rows = 0
        self._fd = _open(self._path)
        self.halvings = 0

    def add(self, at_ns: int, device: int, values: Sequence[float]) -> None:
        """Append a row; when this returns it is in the file, whatever becomes of this process.

        Raises
        ------
        OSError
            It cannot be written. Nothing may be added after that.
        """
        if self._rows >= self._rows_max:
            self._shrink()
        if os.write(self._fd, self._row.pack(at_ns, device, *values)) < self._row.size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._rows += 1

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _shrink(self) -> None:
        part = self._path.with_name(SAMPLES + ".part")
        fd = _open(part)
        kept = 0
        turn: dict[int, bool] = {}
        for number, row in enumerate(self._read()):
            device = self._row.unpack(row)[1]
            turn[device] = not turn.get(device, False)
            if number >= self._rows // 2 if self._newest else turn[device]:
                os.write(fd, row)
                kept += 1
        os.close(self._fd)
        part.replace(self._path)
        self._fd, self._rows = fd, kept
        self.halvings += not self._newest

    def _read(self) -> Iterator[bytes]:
        size = self._row.size
        with self._path.open("rb") as file:
            while piece := file.read(size * _PIECE_ROWS):
                for at in range(0, len(piece) - size + 1, size):
                    yield piece[at : at + size]


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
