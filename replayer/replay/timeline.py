"""Where the time of a run went: per queue, and along the path that its end depended on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..outcome import Outcome
from ..program import Program

__all__ = ["MAX_PATH", "Path", "QueueTime", "Timeline", "timeline"]

MAX_PATH = 100_000
"""Ops after which a path is cut."""

_Ints = npt.NDArray[np.int64]


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
        Rows, the earliest first.
    busy_ns : dict
        Per queue id, the time of its ops on the path.
    gap_ns : int
        Time between them: the host between two calls, and delays.
    cut : bool
        The path is longer than `MAX_PATH`.
    """

    rows: tuple[int, ...]
    busy_ns: dict[int, int]
    gap_ns: int
    cut: bool = False


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
                "ops": len(path.rows),
                "cut": path.cut,
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
    order = ran[np.lexsort((start[ran], queue[ran]))]
    cuts = np.flatnonzero(np.diff(queue[order])) + 1
    queues = []
    for rows in np.split(order, cuts):
        if not len(rows):
            continue
        q = int(queue[rows[0]])
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
    ran = np.flatnonzero((start >= 0) & (end >= 0))
    if not len(ran):
        return Path((), {}, 0)
    core = program.core
    unit = core.units()
    source, target, _ = core.edges()
    order = np.argsort(target, kind="stable")
    source, target = source[order], target[order]
    parent_rows = _parents(program)
    is_parent = np.zeros(len(start), np.bool_)
    is_parent[[p for p in parent_rows.values() if p >= 0]] = True
    leaves = ran[~is_parent[ran]]
    at = int(leaves[np.argmax(end[leaves])])
    rows = [at]
    gap = 0
    any_of = core.any_of()
    seen = {int(unit[at])}
    while len(rows) < MAX_PATH:
        here = at
        candidates: list[int] = []
        above = at
        while above >= 0:
            low, high = np.searchsorted(target, [unit[above], unit[above] + 1])
            candidates += source[low:high].tolist()
            records = [r for r in any_of.get(int(unit[above]), ()) if end[r] >= 0]
            if records:
                candidates.append(min(records, key=lambda r: int(end[r])))
            above = parent_rows.get(above, -1)
        best = max(
            (c for c in candidates if end[c] >= 0 and c not in seen), key=lambda c: int(end[c]), default=-1
        )
        if best < 0:
            gap += max(int(start[here]), 0)
            break
        gap += max(int(start[here] - end[best]), 0)
        at = best
        seen.add(best)
        rows.append(at)
    rows.reverse()
    busy: dict[int, int] = {}
    for row in rows:
        busy[int(queue[row])] = busy.get(int(queue[row]), 0) + int(end[row] - start[row])
    return Path(tuple(rows), busy, gap, cut=len(rows) >= MAX_PATH)


def _parents(program: Program) -> dict[int, int]:
    """Return the row of each row's parent, for those that have one."""
    column = program.tape.columns("ops", ("parent",)).column("parent")
    if column.null_count == len(column):
        return {}
    rows = np.flatnonzero(column.is_valid().to_numpy())
    ids = column.drop_null().to_numpy()
    at = np.searchsorted(np.asarray(program.op_ids, np.int64), ids)
    return dict(zip(rows.tolist(), at.tolist(), strict=True))
