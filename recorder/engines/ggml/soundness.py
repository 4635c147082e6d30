"""Which records of a spool say what cannot have happened.

A tape made of them would break its specification: bytes outside of a buffer, two beginnings of one buffer,
times that no clock shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .definitions import Spool, damaged
from .delays import sound_delays
from .layout import NONE, Flag, Kind

__all__ = ["check_header", "check_sets", "impossible"]

_NS_MAX = 1 << 60
"""36 years: times of all processes can then be subtracted from each other."""
_WALL_NS_MAX = 1 << 62
_LOST_MAX = 1 << 48

Mask = npt.NDArray[np.bool_]


def check_header(spool: Spool, where: str) -> None:
    """Refuse clocks and counts that cannot be.

    Raises
    ------
    SpoolError
        One is out of range.
    """
    r = spool.records
    times = [int(r[c].max()) for c in ("issue_ns", "end_ns")] if len(r) else []
    for value, limit, what in (
        *((t, _NS_MAX, "a time") for t in times),
        (spool.mono_ns, _NS_MAX, "mono_ns"),
        (spool.wall_ns, _WALL_NS_MAX, "wall_ns"),
        (spool.lost, _LOST_MAX, "lost"),
    ):
        if value > limit:
            raise damaged(f"{what} is {value}", f"at most {limit}", where)


def check_sets(spool: Spool, where: str) -> None:
    """Refuse an access that reaches beyond its buffer.

    Raises
    ------
    SpoolError
        One does.
    """
    size = _sizes(spool)
    for i, rows in enumerate(spool.sets):
        named = rows[rows["buffer"] != NONE]
        if len(named) and _beyond(size, named["buffer"], named["offset"], named["bytes"]).any():
            raise damaged(f"an access of set {i} reaches beyond its buffer", "accesses inside", where)


def impossible(spool: Spool, known: Mask) -> Mask:
    """Return the records that say what cannot be, of those that name only what is defined (`known`)."""
    r = spool.records
    size = _sizes(spool)
    kind = r["kind"]
    done = known & ((r["flags"] & Flag.FAILED) == 0)
    wrong = np.zeros(len(r), np.bool_)
    moves = done & np.isin(kind, (Kind.COPY, Kind.SET, Kind.GET))
    for mine, buffer, start in (
        (moves & (r["d"] != NONE), "d", "a"),
        (moves & (r["e"] != NONE), "e", "b"),
        (done & (kind == Kind.MEMSET), "e", "b"),
    ):
        at = np.flatnonzero(mine)
        wrong[at] |= _beyond(size, r[buffer][at], r[start][at], r["c"][at])
    begins = np.flatnonzero(done & (kind == Kind.BUFFER_ALLOC))
    ends = np.flatnonzero(done & (kind == Kind.BUFFER_FREE))
    # records are in issue order
    _, first = np.unique(r["e"][begins], return_index=True)
    wrong[np.setdiff1d(begins, begins[first])] = True
    begin = np.full(len(size), -1)
    begin[r["e"][begins[first]]] = begins[first]
    wrong[ends[begin[r["e"][ends]] > ends]] = True
    wrong |= (kind == Kind.DELAY) & ~sound_delays(r)
    return wrong


def _sizes(spool: Spool) -> npt.NDArray[np.uint64]:
    return np.array([b.bytes for b in spool.buffers], np.uint64)


def _beyond(size: Any, buffer: Any, offset: Any, length: Any) -> Mask:
    # Both summands are below 2^62.
    wrong: Mask = offset.astype(np.uint64) + length.astype(np.uint64) > size[buffer]
    return wrong
