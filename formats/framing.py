"""Looks at the frames of an Arrow IPC file before anything is decoded.

An IPC file may be consistent with its checksum and still claim a terabyte: every compressed buffer begins
with its uncompressed length, and the decoder allocates what it says. So the few flatbuffer tables that hold
lengths are read here first, with bounds checked, and summed up.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from .errors import CorruptTape

__all__ = ["Frames", "scan_frames"]

_MAGIC = b"ARROW1"
_CONTINUATION = 0xFFFFFFFF
_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2
_BLOCK = struct.Struct("<qiiq")
_BLOCKS_MAX = 1 << 20


@dataclass(frozen=True)
class Frames:
    """Totals of a file.

    Attributes
    ----------
    rows : int
        Rows of all record batches.
    decoded_bytes : int
        Bytes of all buffers, decompressed, dictionaries included.
    batches : int
        Record batches.
    """

    rows: int
    decoded_bytes: int
    batches: int


class _Flat:
    """Just enough of flatbuffers: tables, scalars, vectors of structs. Out of bounds is a `ValueError`."""

    def __init__(self, data: memoryview) -> None:
        self.data = data

    def read(self, fmt: str, at: int) -> int:
        if at < 0:
            raise ValueError("negative offset")
        try:
            value: int = struct.unpack_from("<" + fmt, self.data, at)[0]
        except struct.error:
            raise ValueError("offset outside") from None
        return value

    def root(self) -> int:
        return self.read("I", 0)

    def slot(self, table: int, index: int) -> int:
        """Return where field `index` of a table lies, 0 when it is absent."""
        vtable = table - self.read("i", table)
        if 4 + 2 * index + 2 > self.read("H", vtable):
            return 0
        offset = self.read("H", vtable + 4 + 2 * index)
        return table + offset if offset else 0

    def scalar(self, table: int, index: int, fmt: str, default: int = 0) -> int:
        at = self.slot(table, index)
        return self.read(fmt, at) if at else default

    def indirect(self, table: int, index: int) -> int:
        at = self.slot(table, index)
        return at + self.read("I", at) if at else 0

    def vector(self, table: int, index: int, item_bytes: int) -> memoryview:
        """Return the bytes of a vector of structs."""
        at = self.indirect(table, index)
        if not at:
            return self.data[:0]
        n = self.read("I", at)
        end = at + 4 + n * item_bytes
        if end > len(self.data):
            raise ValueError("vector outside")
        return self.data[at + 4 : end]


def scan_frames(data: memoryview, where: str) -> Frames:
    """Return the totals of an Arrow IPC file without decoding it.

    Parameters
    ----------
    data : memoryview
        The whole file.
    where : str
        Name for messages.

    Raises
    ------
    CorruptTape
        A length or an offset does not fit the file.
    """
    try:
        return _scan(data)
    except ValueError as e:
        raise CorruptTape(
            f"broken framing ({e})", expected="an Arrow IPC file", where=where, next_step="record again"
        ) from None


def _scan(data: memoryview) -> Frames:
    size = len(data)
    if size < 24 or bytes(data[:6]) != _MAGIC or bytes(data[-6:]) != _MAGIC:
        raise ValueError("no Arrow magic at begin and end")
    footer_bytes = struct.unpack_from("<i", data, size - 10)[0]
    footer_at = size - 10 - footer_bytes
    if footer_bytes <= 0 or footer_at < 8:
        raise ValueError("footer outside the file")
    footer = _Flat(data[footer_at : size - 10])
    root = footer.root()
    blocks = []
    for index, kind in ((2, _DICTIONARY_BATCH), (3, _RECORD_BATCH)):
        raw = footer.vector(root, index, _BLOCK.size)
        if len(raw) > _BLOCKS_MAX * _BLOCK.size:
            raise ValueError("too many batches")
        blocks += [(o, m, b, kind) for o, m, _, b in _BLOCK.iter_unpack(raw)]
    rows = decoded = batches = 0
    end = 8
    for offset, meta_bytes, body_bytes, kind in sorted(blocks):
        # apart from each other: else a small file could be read a million times
        if offset < end or meta_bytes < 8 or body_bytes < 0 or offset + meta_bytes + body_bytes > footer_at:
            raise ValueError("a batch outside the file or over another one")
        end = offset + meta_bytes + body_bytes
        n, d = _batch(data[offset : offset + meta_bytes], data[offset + meta_bytes : end], kind)
        decoded += d
        if kind == _RECORD_BATCH:
            rows += n
            batches += 1
    return Frames(rows, decoded, batches)


def _batch(meta: memoryview, body: memoryview, kind: int) -> tuple[int, int]:
    """Return rows and decoded bytes of one record or dictionary batch."""
    head, meta_bytes = struct.unpack_from("<Ii", meta, 0)
    if head != _CONTINUATION or not 0 < meta_bytes <= len(meta) - 8:
        raise ValueError("no message at a batch's offset")
    flat = _Flat(meta[8 : 8 + meta_bytes])
    message = flat.root()
    if flat.scalar(message, 1, "B") != kind or flat.scalar(message, 3, "q") != len(body):
        raise ValueError("a batch's message does not fit the footer")
    batch = flat.indirect(message, 2)
    if kind == _DICTIONARY_BATCH and batch:
        batch = flat.indirect(batch, 1)
    if not batch:
        raise ValueError("a batch without header")
    rows = flat.scalar(batch, 0, "q")
    nodes = np.frombuffer(flat.vector(batch, 1, 16), "<i8").reshape(-1, 2)
    buffers = np.frombuffer(flat.vector(batch, 2, 16), "<i8").reshape(-1, 2)
    if rows < 0 or (nodes < 0).any() or (nodes[:, 1] > nodes[:, 0]).any():
        raise ValueError("negative lengths")
    at, length = buffers[:, 0], buffers[:, 1]
    # two comparisons, so that a huge offset cannot wrap around
    if (buffers < 0).any() or (at > len(body)).any() or (length > len(body) - at).any():
        raise ValueError("a buffer outside its batch")
    if not flat.indirect(batch, 3):  # not compressed
        return rows, int(length.sum(dtype=np.float64))
    at, length = at[length > 0], length[length > 0]
    if (length < 8).any():
        raise ValueError("a compressed buffer without length")
    raw = np.frombuffer(body, np.uint8)
    prefix = raw[at[:, None] + np.arange(8)].copy().view("<i8").reshape(-1) if len(at) else at
    if (prefix < -1).any():
        raise ValueError("a negative uncompressed length")
    plain = np.where(prefix == -1, length - 8, prefix)
    return rows, int(plain.sum(dtype=np.float64))
