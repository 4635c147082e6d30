"""Which slots of a flight recorder's spool still count (``STEM.ring``; layout: ``native/spool.h``).

The writer says in one store what it dropped, and frees the bytes afterwards. So the bytes of a slot that
counts are there, also while it goes on writing: a reader looks again when it has read, and drops what was
dropped meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...files import open_regular
from .definitions import damaged, int64
from .layout import RECORD, RING_HEADER, RING_MAGIC, RING_WINDOW, RING_WINDOW_BYTES, SEGMENT_BYTES_MAX

__all__ = ["Dropped", "read_ring"]

_PAGE = 4096
_CHUNK_SLOTS = _PAGE // RECORD.itemsize
_TRIES = 1000


@dataclass(frozen=True)
class Dropped:
    """What a flight recorder has dropped.

    Attributes
    ----------
    segment_bytes : int
        Size of the segments, each of which but the first is a file.
    records, ns : int
        What was asked for: so many newest records, or those of the last ns; the other one is 0.
    first_slot : int
        Older slots are dropped, but for those of `chunks`.
    dropped : int
        Records dropped.
    lost : int
        Records that found no room, as far as dropped marks of gaps say so.
    chunks : numpy.ndarray
        Older chunks that count.
    """

    segment_bytes: int
    records: int
    ns: int
    first_slot: int
    dropped: int
    lost: int
    chunks: npt.NDArray[np.uint64]

    def counts(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which slots still count."""
        kept: npt.NDArray[np.bool_] = slots >= self.first_slot
        if len(self.chunks):
            kept |= np.isin((slots + 1) // _CHUNK_SLOTS, self.chunks.astype(np.int64))
        return kept

    @property
    def first_segment(self) -> int:
        """The first segment that must be there."""
        return (self.first_slot + 1) * RECORD.itemsize // self.segment_bytes


def read_ring(path: Path) -> Dropped | None:
    """Read ``STEM.ring``; None where all records were kept.

    Raises
    ------
    SpoolError
        It is damaged.
    """
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return None
    with file:
        for _ in range(_TRIES):
            file.seek(0)
            head = _frame(file.read(RING_HEADER.itemsize), RING_HEADER)
            if head is None or not int(head["magic"]):  # killed while it was made: nothing is dropped yet
                return None
            if int(head["magic"]) != RING_MAGIC:
                raise damaged("foreign file", "a flight recorder's list", path.name)
            segment = int(head["segment_bytes"])
            if segment % _PAGE or not _PAGE <= segment <= SEGMENT_BYTES_MAX:
                raise damaged(f"segments of {segment} bytes", "whole pages", path.name)
            number = int(head["current"])
            file.seek(_PAGE + (number & 1) * RING_WINDOW_BYTES)
            data = file.read(RING_WINDOW_BYTES)
            file.seek(0)
            again = _frame(file.read(RING_HEADER.itemsize), RING_HEADER)
            if again is not None and int(again["current"]) == number:
                return _dropped(head, data, path.name)
    raise damaged("a list that changes all the time", "one that can be read", path.name)


def _frame(data: bytes, kind: np.dtype[Any]) -> Any:
    return np.frombuffer(data, kind)[0] if len(data) == kind.itemsize else None


def _dropped(head: Any, data: bytes, where: str) -> Dropped:
    window = _frame(data[: RING_WINDOW.itemsize], RING_WINDOW)
    if window is None:
        raise damaged("a window that is cut short", "a whole one", where)
    chunks = np.frombuffer(data, "<u8", offset=RING_WINDOW.itemsize)
    kept, first = int(window["kept"]), int64(int(window["first_slot"]), "first_slot", where)
    if kept > len(chunks):
        raise damaged(f"{kept} chunks", f"at most {len(chunks)}", where)
    chunks = chunks[:kept]
    if kept and int(chunks.max()) > first // _CHUNK_SLOTS:
        raise damaged(f"chunk {int(chunks.max())} is kept", "chunks before the first slot", where)
    if (first + 1) * RECORD.itemsize % int(head["segment_bytes"]) and first:
        raise damaged(f"slot {first} is the first", "one at the beginning of a segment", where)
    return Dropped(
        segment_bytes=int(head["segment_bytes"]),
        records=int(head["records"]),
        ns=int(head["ns"]),
        first_slot=first,
        dropped=int64(int(window["dropped"]), "dropped", where),
        lost=int64(int(window["lost"]), "lost", where),
        chunks=chunks,
    )
