"""Host memory that the engine knows as several buffers.

A buffer made from a pointer, two views of one mapped file, a buffer that the recorder found late: ggml has a
buffer object for each, the bytes are the same. Two host buffers whose addresses overlap while both are alive
are ranges of one memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .definitions import Spool
from .layout import Kind

__all__ = ["Root", "common_roots"]

_ALWAYS = (0, 1 << 63)


class Root(NamedTuple):
    """Memory behind several buffers: the hull of their addresses. `number` tells roots at one place apart."""

    number: int
    base: int
    bytes: int


def common_roots(spool: Spool, has_address: Sequence[bool]) -> dict[int, Root]:
    """Return the root of each buffer that shares bytes with another one.

    Parameters
    ----------
    spool : Spool
        The buffers and when they lived. One whose allocation (or end) was not seen lived from the start (to
        the end).
    has_address : sequence of bool
        Which buffers are real host memory.

    Returns
    -------
    dict
        By buffer; buffers that share nothing are not in it.
    """
    lives = _lives(spool)
    ranges = [(b.base, b.base + b.bytes) for b in spool.buffers]
    group = list(range(len(ranges)))

    def find(i: int) -> int:
        while group[i] != i:
            group[i] = group[group[i]]
            i = group[i]
        return i

    alive: list[int] = []
    for i in sorted((i for i, known in enumerate(has_address) if known), key=lambda i: lives[i]):
        (start, end), (born, died) = ranges[i], lives[i]
        alive = [j for j in alive if lives[j][1] > born]
        for j in alive:
            if ranges[j][0] < end and start < ranges[j][1] and born < died:
                first, second = sorted((find(i), find(j)))
                group[second] = first
        alive.append(i)
    members: dict[int, list[int]] = {}
    for i, known in enumerate(has_address):
        if known:
            members.setdefault(find(i), []).append(i)
    found: dict[int, Root] = {}
    for number, same in members.items():
        if len(same) > 1:
            base = min(ranges[i][0] for i in same)
            root = Root(number, base, max(ranges[i][1] for i in same) - base)
            found.update(dict.fromkeys(same, root))
    return found


def _lives(spool: Spool) -> list[tuple[int, int]]:
    """Return when each buffer was certainly there: from the end of its allocation to its free."""
    lives = [_ALWAYS] * len(spool.buffers)
    r = spool.records
    r = r[(r["kind"] == Kind.BUFFER_ALLOC) | (r["kind"] == Kind.BUFFER_FREE)]
    columns = ("kind", "e", "issue_ns", "end_ns")
    for kind, buffer, issue, end in zip(*(r[c].tolist() for c in columns), strict=True):
        born, died = lives[buffer]
        if kind == Kind.BUFFER_ALLOC:
            born = max(issue, end)
        else:
            died = min(died, issue)
        lives[buffer] = born, died
    return lives
