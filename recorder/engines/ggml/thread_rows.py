"""Which host threads share a row where a recording has more of them than a tape has queues.

A server that makes a thread for each request makes more threads than a checker can tell apart. Program order
orders all ops of a row, so two threads may share one only if that says nothing new: where the API hands a
backend object over from the last call of the one to the first call of the other (`serial`). If that is not
enough, the busiest threads keep rows of their own and the others share some: a mark that touches nobody knows
what stands where another one begins, so that nothing in the tape is called clean.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ....formats.errors import SpoolError
from ....formats.limits import MAX_QUEUES
from .definitions import Spool
from .joins import by_value, is_kind
from .layout import NO_QUEUE, Flag, Kind

__all__ = ["SHARED_MAX", "ThreadRows", "thread_rows"]

SHARED_MAX = 64
"""Rows of one process that threads share though nothing orders them."""
_WORKERS = (Kind.EXEC, Kind.DELAY)


@dataclass
class ThreadRows:
    """Rows of one process's host threads.

    Attributes
    ----------
    leaders : list of int or None
        By thread: the thread whose row it is on, often itself; None for the plugin's own workers.
    begins : list of tuple of int
        (record, thread): the first record of a thread on a row that it shares with threads which nothing
        orders before it.
    shared : set of int
        Leaders of such rows.
    """

    leaders: list[int | None]
    begins: list[tuple[int, int]] = field(default_factory=list)
    shared: set[int] = field(default_factory=set)


@dataclass
class _Row:
    """Threads one after the other: the first of them, its first record, when the last ends, all records."""

    leader: int
    first: int
    start_ns: int
    end_ns: int
    records: int


def thread_rows(spools: Sequence[Spool], most: int = MAX_QUEUES) -> list[ThreadRows]:
    """Return the rows of the host threads of each process.

    Parameters
    ----------
    spools : sequence of Spool
        What the processes wrote.
    most : int
        Queues that the tape may have.

    Raises
    ------
    SpoolError
        There is no room for a host thread of each process.
    """
    plain = [ThreadRows([t if calls else None for t, calls in enumerate(s.host_threads())]) for s in spools]
    wanted = [len(p.leaders) - p.leaders.count(None) for p in plain]
    queues = sum(q.is_async for s in spools for q in s.queues)
    if sum(wanted) + queues <= most:
        return plain
    room = most - queues
    if room < len(spools):
        raise SpoolError(
            f"{queues:,} backend objects with queues of their own",
            expected=f"at most {most:,} queues in a tape, host threads included",
            next_step="record a shorter part of the run (record --last 100000)",
        )
    rows = [_in_turn(s, p.leaders) for s, p in zip(spools, plain, strict=True)]
    total = sum(map(len, rows))
    if total > room:
        for s, p, mine in zip(spools, plain, rows, strict=True):
            _share(p, mine, 1 + (room - len(spools)) * len(mine) // total, s)
    return plain


def _in_turn(s: Spool, leaders: list[int | None]) -> list[_Row]:
    """Fold threads between whose last and first call a backend object is handed over; return all rows."""
    r = s.records
    mine = np.flatnonzero(~is_kind(r["kind"], *_WORKERS))
    end = np.maximum(r["issue_ns"], r["end_ns"])
    rows: dict[int, _Row] = {}
    first, last = {}, {}
    for thread, at in by_value(r["thread"][mine]):
        if leaders[thread] is not None:
            first[thread], last[thread] = int(mine[at[0]]), int(mine[at[-1]])
            start, over = int(r["issue_ns"][first[thread]]), int(end[mine[at]].max())
            rows[thread] = _Row(thread, first[thread], start, over, len(at))
    waits_for_nothing = np.array([not q.is_async for q in s.queues] + [True])
    on = np.minimum(r["queue"], len(s.queues))
    plain = (r["flags"] & int(Flag.META | Flag.CHILD | Flag.FAILED)) == 0
    plain &= ~is_kind(r["kind"], *_WORKERS, Kind.GAP) & (r["queue"] != NO_QUEUE)
    logged = plain & ~((r["kind"] == Kind.SYNC) & waits_for_nothing[on])
    used = np.flatnonzero((r["queue"] != NO_QUEUE) & ~is_kind(r["kind"], *_WORKERS, Kind.GAP))
    used = used[np.argsort(r["queue"][used], kind="stable")]
    changes = np.flatnonzero(
        (r["queue"][used][1:] == r["queue"][used][:-1]) & (r["thread"][used][1:] != r["thread"][used][:-1])
    )
    pairs = sorted((int(used[i + 1]), int(used[i])) for i in changes.tolist())
    followed: set[int] = set()
    for after, before in pairs:
        giver, taker = int(r["thread"][before]), int(r["thread"][after])
        ends = last.get(giver) == before and first.get(taker) == after
        if not ends or not (logged[before] and logged[after]) or giver in followed or taker not in rows:
            continue
        leader = leaders[giver]
        if leader is None or int(end[before]) > int(r["issue_ns"][after]):
            continue
        followed.add(giver)
        leaders[taker] = leader
        row, more = rows[leader], rows.pop(taker)
        row.end_ns, row.records = max(row.end_ns, more.end_ns), row.records + more.records
    return list(rows.values())


def _share(p: ThreadRows, rows: list[_Row], room: int, s: Spool) -> None:
    """Let the least busy rows share some, each with others that ended before it began if that is possible."""
    if len(rows) <= room:
        return
    shared = min(SHARED_MAX, max(1, room // 2))
    rows = sorted(rows, key=lambda row: (-row.records, row.first))
    moved: dict[int, int] = {}
    free: list[tuple[int, int]] = []
    for row in sorted(rows[room - shared :], key=lambda row: row.first):
        if len(free) < shared:
            heapq.heappush(free, (row.end_ns, row.leader))
            p.shared.add(row.leader)
            continue
        until, leader = heapq.heappop(free)
        heapq.heappush(free, (max(until, row.end_ns), leader))
        moved[row.leader] = leader
        p.begins.append((row.first, row.leader))
    p.leaders[:] = [None if leader is None else moved.get(leader, leader) for leader in p.leaders]
