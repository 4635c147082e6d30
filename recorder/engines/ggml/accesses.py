"""Thin a graph's accesses to what other ops can notice.

A split of a few hundred nodes reads most of its bytes from nodes before it. Such a read is not exposed: the
op satisfies it itself. What stays is what was there before (reads) and the first write to each byte.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .definitions import Spool
from .layout import MODES, NONE, AccessFlag

__all__ = ["Cover", "Touch", "thin", "touches"]

# Plain numbers: an operator of IntFlag costs more than all else that is done for an access.
_WIDE, _INPUT = int(AccessFlag.WIDE), int(AccessFlag.INPUT)


@dataclass(frozen=True)
class Touch:
    """One access of a graph, with the spool's buffer id (None = memory that nobody can name)."""

    buffer: int | None
    offset: int
    bytes: int
    mode: str
    name: str | None = None
    wide: bool = False
    is_input: bool = False


class Cover:
    """A set of bytes of one buffer, as disjoint sorted ranges."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Add ``[start, end)``."""
        if end <= start:
            return
        i = bisect_left(self._ends, start)
        j = bisect_right(self._starts, end)
        if i < j:
            start = min(start, self._starts[i])
            end = max(end, self._ends[j - 1])
        self._starts[i:j] = [start]
        self._ends[i:j] = [end]

    def missing(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of ``[start, end)`` that are not in the set."""
        i = bisect_right(self._ends, start)
        while start < end:
            if i == len(self._starts) or self._starts[i] >= end:
                yield start, end
                return
            if self._starts[i] > start:
                yield start, self._starts[i]
            start = max(start, self._ends[i])
            i += 1

    def meets(self, start: int, end: int) -> bool:
        """Return whether any byte of ``[start, end)`` is in the set."""
        i = bisect_right(self._ends, start)
        return i < len(self._starts) and self._starts[i] < end


def touches(spool: Spool, index: int) -> list[Touch]:
    """Return the accesses of set `index` as they were recorded."""
    rows = spool.sets[index]
    return [
        Touch(
            None if buffer == NONE else buffer,
            offset,
            size,
            MODES[mode],
            None if name == NONE else spool.names[name],
            bool(flags & _WIDE),
            bool(flags & _INPUT),
        )
        for buffer, name, offset, size, mode, flags, _, _ in rows.tolist()
        if size
    ]


def thin(accesses: Iterable[Touch]) -> list[Touch]:
    """Drop what the op satisfies itself and what it repeats; cut the rest to the exposed bytes.

    A span that is wider than the view behind it covers nothing: some of its bytes were perhaps not written.
    Updates and reductions stay whole unless all their bytes are the op's own.
    """
    written: dict[int, Cover] = {}
    read: dict[int, Cover] = {}
    kept: list[Touch] = []
    seen: set[tuple[int | None, int, int, str]] = set()
    for t in accesses:
        key = (t.buffer, t.offset, t.bytes, t.mode)
        if key in seen:
            continue
        seen.add(key)
        if t.buffer is None:
            kept.append(t)
            continue
        end = t.offset + t.bytes
        own = written.setdefault(t.buffer, Cover())
        if t.mode == "read":
            known = read.setdefault(t.buffer, Cover())
            for lo, hi in list(own.missing(t.offset, end)):
                for a, b in list(known.missing(lo, hi)):
                    kept.append(Touch(t.buffer, a, b - a, t.mode, t.name, t.wide, t.is_input))
            if not t.wide:  # an exact read later still deserves its own, certain row
                known.add(t.offset, end)
            continue
        parts = list(own.missing(t.offset, end))
        if t.mode == "write":
            kept.extend(Touch(t.buffer, a, b - a, t.mode, t.name, t.wide, t.is_input) for a, b in parts)
        elif parts:
            kept.append(t)
        if t.mode in ("write", "update") and not t.wide:
            own.add(t.offset, end)
    return kept
