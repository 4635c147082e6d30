"""From bytes back to the ops that wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import groupby
from operator import xor

import numpy as np
import numpy.typing as npt

from ...layout import Layout
from ...outcome import Seen
from .meetings import Piece
from .memory import WRITE, XOR, Access, Memory
from .values import Bytes, first_of, mark_of, pattern

__all__ = ["Decoder"]

Writer = tuple[int, str]
"""Row of the op (-1: before the first), and the state of `Seen`."""

UNKNOWN: Writer = (-1, "unknown")
MAX_PARTS = 16
MAX_ADDED = 10
"""Ops that reduce into one buffer: with more, all their combinations are too many to try."""


class Decoder:
    """Names the writers of what stood in memory in a run.

    Parameters
    ----------
    stamps : sequence of int
        By access, what it wrote in the run.
    reference : sequence of int
        The same in the reference order; a stamp that differs came out of something wrong.
    pieces : iterable of Piece
        Of a pinned run: what ops wrote at once.
    """

    def __init__(
        self, memory: Memory, stamps: Sequence[int], reference: Sequence[int], pieces: Iterable[Piece] = ()
    ) -> None:
        self.memory = memory
        self._writers: dict[int, Writer] = {}
        self._added: dict[int, list[tuple[int, Writer]]] = {}
        self._values: dict[int, list[int]] = {}
        self._torn: dict[int, list[Piece]] = {}
        for piece in pieces:
            self._torn.setdefault(piece.access.root, []).append(piece)
        roots = {a.root for a in memory.all}
        for root in roots:
            self._learn(root, first_of(root), (-1, "version"))
        for a in memory.all:
            if not a.mode & (WRITE | XOR):
                continue
            self._learn(a.root, mark_of(a.op), (a.row, "torn"))
            state = "version" if stamps[a.index] == reference[a.index] else "derived"
            if a.mode & XOR:
                self._added.setdefault(a.root, []).append((stamps[a.index], (a.row, state)))
            else:
                self._learn(a.root, stamps[a.index], (a.row, state))

    def _learn(self, root: int, value: int, writer: Writer) -> None:
        if value not in self._writers:
            self._writers[value] = writer
        self._values.setdefault(root, []).append(value)

    def parts(self, root: int, at: int, content: Bytes, other: Bytes) -> Iterator[Seen]:
        """Yield who wrote those bytes of `content`, at real address `at`, that differ from `other`."""
        layout = self._layout(root)
        writers = self._bytes(root, at, content)
        differs = (content != other).tolist()
        # A value may have single bytes in common with the other: what was written in one piece counts as a
        # whole, word by word.
        low, high = np.searchsorted(layout.border_key, [layout.place(root), layout.place(root) + 1])
        borders = np.searchsorted(layout.border_real[low:high], np.arange(at, at + len(content)), "right")
        pieces = [((at + i) // 8, border) for i, border in enumerate(borders.tolist())]
        odd = {piece for piece, d in zip(pieces, differs, strict=True) if d}
        marked = [w if piece in odd else None for w, piece in zip(writers, pieces, strict=True)]
        begin = 0
        for writer, run in groupby(marked):
            end = begin + len(list(run))
            if writer is not None:
                low, high = layout.recorded(root, at + begin, at + end)
                yield Seen(low, high, *writer)
            begin = end

    def torn(self, root: int, at: int, rows: npt.NDArray[np.int64]) -> Iterator[Seen]:
        """Yield the bytes, at real address `at`, that ops were writing to: by byte, the row or -1."""
        begin = 0
        for row, run in groupby(rows.tolist()):
            end = begin + len(list(run))
            if row >= 0:
                yield Seen(*self._layout(root).recorded(root, at + begin, at + end), row, "torn")
            begin = end

    def _layout(self, root: int) -> Layout:
        return self.memory.host if self.memory.host.place(root) >= 0 else self.memory.device

    def _bytes(self, root: int, at: int, content: Bytes) -> list[Writer]:
        """Return the writer of each byte."""
        found: list[Writer] = []
        i, count = 0, len(content)
        while i < count:
            length = min(8 - (at + i) % 8, count - i)
            piece = content[i : i + length]
            whole = self._word(root, int.from_bytes(piece.tobytes(), "little")) if length == 8 else None
            found += [whole] * length if whole else self._pieces(root, at + i, piece)
            i += length
        # A byte or two of a mark are too few to know it by.
        if root in self._torn:
            values = content.tolist()
            found = [
                w if w != UNKNOWN else self._at_once(root, at + i, values[i]) for i, w in enumerate(found)
            ]
        return found

    def _at_once(self, root: int, at: int, byte: int) -> Writer:
        for piece in self._torn[root]:
            mark = mark_of(piece.access.op) >> 8 * (at % 8) & 0xFF
            if piece.at <= at < piece.at + piece.bytes and byte == mark:
                return piece.access.row, "torn"
        return UNKNOWN

    def _word(self, root: int, value: int) -> Writer | None:
        """Return who wrote a word; of several that added to it, the last in row order."""
        known = self._writers.get(value)
        added = self._added.get(root, ())
        if known is not None or not added or len(added) > MAX_ADDED:
            return known
        for chosen in range(1, 1 << len(added)):
            some = [s for i, s in enumerate(added) if chosen >> i & 1]
            base = self._writers.get(reduce(xor, (stamp for stamp, _ in some), value))
            if base is not None:
                states = {base[1], *(writer[1] for _, writer in some)}
                state = next(s for s in ("torn", "derived", "version") if s in states)
                return max(writer[0] for _, writer in some), state
        return None

    def _pieces(self, root: int, at: int, piece: Bytes) -> list[Writer]:
        """Name the writers of a part of a word: each time the value that agrees with most of what is left."""
        found: list[Writer] = []
        rest = piece
        while len(rest):
            best, length = UNKNOWN, 0
            for value in self._values.get(root, ()):
                agree = _common(rest, pattern(value, at, len(rest)))
                if agree > length:
                    best, length = self._writers[value], agree
            # One byte in the middle of nothing is as likely chance.
            if length < min(2, len(piece)):
                best, length = UNKNOWN, max(length, 1)
            found += [best] * length
            at += length
            rest = rest[length:]
        return found


def _common(a: Bytes, b: Bytes) -> int:
    differ = np.flatnonzero(a != b)
    return int(differ[0]) if len(differ) else len(a)


def joined(parts: Iterable[Seen]) -> tuple[Seen, ...]:
    """Join neighbours of one writer; keep the first `MAX_PARTS`."""
    found: list[Seen] = []
    for p in parts:
        if found and (found[-1].end, found[-1].writer, found[-1].state) == (p.begin, p.writer, p.state):
            found[-1] = Seen(found[-1].begin, p.end, p.writer, p.state)
        elif len(found) == MAX_PARTS:
            break
        else:
            found.append(p)
    return tuple(found)


def content_of(a: Access, kept: dict[int, bytes]) -> Bytes | None:
    """Return the bytes that an access read, if they were kept."""
    got = kept.get(a.index)
    return None if got is None or len(got) != a.bytes else np.frombuffer(got, np.uint8)
