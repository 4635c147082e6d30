"""Where the time of a run went: per queue, and along the path that its end depended on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..outcome import Outcome
from ..program import Program

__all__ = ["MAX_PATH", "Path", "QueueTime", "Timeline", "parent_rows", "timeline"]

MAX_PATH = 100_000
"""Rows of a path that are kept."""

_Ints = npt.NDArray[np.int64]
_Rows = npt.NDArray[np.int32]


@dataclass(frozen=True)
class QueueTime:
    """One queue in one run.

    Attributes
    ----------
    queue : int
        Queue id.
    name, device : str
        Names.
    ops : int
        Ops that started.
    busy_ns : int
        Time during which at least one of its ops was executing.
    idle_ns : int
        The rest of the run.
    first_ns, last_ns : int
        Start of its first op, end of its last one.
    """

    queue: int
    name: str
    device: str
    ops: int
    busy_ns: int
    idle_ns: int
    first_ns: int
    last_ns: int

    def as_dict(self) -> dict[str, Any]:
        """Return it for ``--json``."""
        return {
            "queue": self.queue,
            "name": self.name,
            "device": self.device,
            "ops": self.ops,
            "busy_ns": self.busy_ns,
            "idle_ns": self.idle_ns,
            "first_ns": self.first_ns,
            "last_ns": self.last_ns,
        }


@dataclass(frozen=True)
class Path:
    """The critical path: from the last end backwards, at each op to the source that ended last.

    Attributes
    ----------
    rows : tuple of int
        Rows, the earliest first; of a longer path the last `MAX_PATH`.
    ops : int
        How many it has.
    busy_ns : dict
        Per queue id, the time of its ops on the path.
    gap_ns : int
        Time between them: the host between two calls, and delays.
    """

    rows: tuple[int, ...]
    ops: int
    busy_ns: dict[int, int]
    gap_ns: int


@dataclass(frozen=True)
class Timeline:
    """Times of a run.

    Attributes
    ----------
    total_ns : int
        When the last op ended.
    queues : tuple of QueueTime
        Those with ops, by id.
    path : Path
        The critical path.
    """

    total_ns: int
    queues: tuple[QueueTime, ...]
    path: Path

    def as_dict(self, op_ids: npt.NDArray[np.int64]) -> dict[str, Any]:
        """Return it for ``--json``; at most 1,000 ops of the path."""
        path = self.path
        return {
            "total_ns": self.total_ns,
            "queues": [q.as_dict() for q in self.queues],
            "critical_path": {
                "ops": path.ops,
                "gap_ns": path.gap_ns,
                "busy_ns": {str(q): ns for q, ns in sorted(path.busy_ns.items())},
                "last_ops": op_ids[list(path.rows[-1_000:])].tolist(),
            },
        }


def timeline(program: Program, outcome: Outcome) -> Timeline:
    """Return where the time of a run went.

    Parameters
    ----------
    program : Program
        What ran.
    outcome : Outcome
        Its times.
    """
    total = outcome.total_ns
    start = np.asarray(outcome.start_ns, np.int64)
    end = np.asarray(outcome.end_ns, np.int64)
    queue = np.asarray(program.queue, np.int64)
    names: list[dict[str, Any]] = program.tape.table("queues").select(["name", "device"]).to_pylist()
    devices: list[str] = program.tape.table("devices").column("name").to_pylist()
    ran = np.flatnonzero((start >= 0) & (end >= 0))
    order = ran[np.argsort(queue[ran].astype(np.int16), kind="stable")]  # at most MAX_QUEUES
    cuts = np.flatnonzero(np.diff(queue[order])) + 1
    queues = []
    for rows in np.split(order, cuts):
        if not len(rows):
            continue
        q = int(queue[rows[0]])
        if (np.diff(start[rows]) < 0).any():
            rows = rows[np.argsort(start[rows], kind="stable")]
        busy = _covered(start[rows], end[rows])
        queues.append(
            QueueTime(
                queue=q,
                name=names[q]["name"] or f"queue {q}",
                device=devices[names[q]["device"]],
                ops=len(rows),
                busy_ns=busy,
                idle_ns=total - busy,
                first_ns=int(start[rows].min()),
                last_ns=int(end[rows].max()),
            )
        )
    return Timeline(total, tuple(queues), _path(program, start, end, queue))


def _covered(start: _Ints, end: _Ints) -> int:
    """Return how long at least one of the intervals lasts; they are sorted by their start."""
    if not len(start):
        return 0
    reached = np.maximum.accumulate(end)
    before = np.concatenate(([start[0]], reached[:-1]))
    return int(np.maximum(reached - np.maximum(before, start), 0).sum())


def _path(program: Program, start: _Ints, end: _Ints, queue: _Ints) -> Path:
    ran = (start >= 0) & (end >= 0)
    if not ran.any():
        return Path((), 0, {}, 0)
    unit = np.asarray(program.core.units(), np.int64)
    parents = parent_rows(program)
    leaf = ran.copy()
    leaf[parents[parents >= 0]] = False
    last = int(np.argmax(np.where(leaf, end, -1)))
    rows = np.array(_back(last, _latest(program, end, ran), unit, parents, end), np.int64)
    spent = end[rows] - start[rows]
    gap = int(np.maximum(start[rows[1:]] - end[rows[:-1]], 0).sum() + start[rows[0]])
    time = {q: int(spent[queue[rows] == q].sum()) for q in np.unique(queue[rows]).tolist()}
    return Path(tuple(rows[-MAX_PATH:].tolist()), len(rows), time, gap)


def _latest(program: Program, end: _Ints, ran: npt.NDArray[np.bool_]) -> _Rows:
    """Return per unit the source that ended last; -1 where it has none."""
    best = np.full(len(end), -1, np.int32)
    source, target, _ = program.core.edges()  # by target
    kept = ran[source]
    source, target = source[kept], target[kept]
    if len(source):
        first = np.flatnonzero(np.diff(target, prepend=-1))
        until = end[source]
        top = np.maximum.reduceat(until, first)
        at_top = until == np.repeat(top, np.diff(first, append=len(source)))
        best[target[at_top]] = source[at_top]
    for unit, records in program.core.any_of().items():
        ended = [r for r in records if ran[r]]
        if ended:
            soonest = min(ended, key=lambda r: int(end[r]))
            if best[unit] < 0 or end[soonest] > end[best[unit]]:
                best[unit] = soonest
    return best


def _back(last: int, best: _Rows, unit: _Ints, parent: _Rows, end: _Ints) -> list[int]:
    """Return the rows that the last one depended on, the first one first, each by the source that ended last.

    What comes before a whole comes before its parts, so this never goes round.
    """
    sources, above = best.data, parent.data  # plain integers
    rows = [last]
    found = sources[unit[last]]
    while True:
        whole = above[rows[-1]]
        while whole >= 0:
            other = sources[unit[whole]]
            if other >= 0 and (found < 0 or end[other] > end[found]):
                found = other
            whole = above[whole]
        if found < 0:
            break
        rows.append(found)
        found = sources[found]
    rows.reverse()
    return rows


def parent_rows(program: Program) -> _Rows:
    """Return the row of each row's parent; -1 where it has none."""
    rows = np.full(program.rows, -1, np.int32)
    column = program.tape.columns("ops", ("parent",)).column("parent")
    if column.null_count < len(column):
        ids = column.drop_null().to_numpy()
        rows[column.is_valid().to_numpy()] = np.searchsorted(program.op_ids, ids)
    return rows
