"""Which ops a picture of a finding shows, what orders them, and where each one stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ...columns import Columns, Ints
from ...tape import Tape
from ..edges import Edges
from ..mark import Mark
from .graph import Graph

__all__ = ["Arrow", "Box", "Scene", "scene"]

MAX_SHOWN = 22
"""Ops of a picture."""
_NEAR = 2
"""Neighbours on its queue that are shown before and after each op of the finding."""
_LINKED = 3
"""Ops that it waits for, and that wait for it, that are shown."""
_ORDERING = ("record", "wait", "wait_any", "sync", "semsig", "semwait")


@dataclass(frozen=True)
class Box:
    """An op of the picture: its row, its queue, its column from 0, and whether the finding is about it."""

    row: int
    queue: int
    column: int
    found: bool


@dataclass(frozen=True)
class Arrow:
    """The op in row `source` has ended before the one in row `target` starts.

    Attributes
    ----------
    why : str
        A rule of the contract, ``through others``, or ``one collective``: the two are one operation.
    hidden : int
        Ops of the queue between the two that are not shown, where both are on one queue.
    """

    source: int
    target: int
    why: str
    hidden: int = 0


@dataclass(frozen=True)
class Scene:
    """The picture.

    Attributes
    ----------
    boxes : tuple of Box
        In the order of rows.
    arrows : tuple of Arrow
        What orders them, without those that follow from others.
    queues : tuple of int
        Queues from top to bottom.
    columns : int
        How many columns there are.
    more : dict of int to (int, int)
        Per queue, ops before the first and after the last that is shown.
    """

    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    queues: tuple[int, ...]
    columns: int
    more: dict[int, tuple[int, int]]


def scene(tape: Tape, mark: Mark, edges: Edges) -> Scene:
    """Choose and place the ops around a finding.

    Parameters
    ----------
    tape : Tape
        A valid tape.
    mark : Mark
        The finding.
    edges : tuple of arrays
        The edges of the tape's contract.
    """
    ops = Columns(tape.table("ops"))
    queue = ops.ints("queue")
    graph = Graph(ops, edges)
    rows = _chosen(ops, queue, mark, graph)
    queues = Columns(tape.table("queues"))
    host = queues.words("kind").isin(["host_thread"])
    in_order = queues.ints("in_order").astype(bool) | host
    lines = {q: [r for r in rows if queue[r] == q] for q in sorted({int(queue[r]) for r in rows})}
    on_queue = {q: np.flatnonzero(queue == q) for q in lines}
    members = {(graph.unit(r), int(queue[r])) for r in rows}
    arrows = [
        Arrow(s, r, why)
        for r in rows
        for s, why in graph.nearest_before(r, rows).items()
        if why != "program" or (graph.unit(r), int(queue[s])) not in members  # lines have these
    ]
    for q, line in lines.items():
        if in_order[q]:
            pairs = set(pairwise(line))
            arrows = [a for a in arrows if (a.source, a.target) not in pairs]
            at = np.searchsorted(on_queue[q], line).tolist()
            hidden = [b - a - 1 for a, b in pairwise(at)]
            arrows += [Arrow(a, b, "program", n) for (a, b), n in zip(pairwise(line), hidden, strict=True)]
    kept = _reduced(arrows) if mark.link else tuple(arrows)  # of a cycle every arrow counts
    columns = _columns(rows, queue, kept, mark)
    kept += tuple(Arrow(a, b, "one collective") for a, b in _joint(rows, graph))
    boxes = tuple(Box(r, int(queue[r]), columns[r], r in mark.rows) for r in rows)
    more = {
        q: (int((on_queue[q] < line[0]).sum()), int((on_queue[q] > line[-1]).sum()))
        for q, line in lines.items()
    }
    top_down = tuple(sorted(lines, key=lambda q: (not host[q], q)))
    return Scene(boxes, kept, top_down, max(columns.values(), default=0) + 1, more)


def _chosen(ops: Columns, queue: Ints, mark: Mark, graph: Graph) -> list[int]:
    """Return the rows to be shown; the least telling ones are left out first."""
    chosen: dict[int, None] = dict.fromkeys(mark.rows)
    for row in mark.rows[:MAX_SHOWN]:
        before = [s for s, why in graph.before(row) if why != "program" or queue[s] != queue[row]]
        after = [t for t, why in graph.after(row) if why not in ("program", "issue")]
        chosen.update(dict.fromkeys(_nearest(before, row) + _nearest(after, row)))
    for distance in range(1, _NEAR + 1):
        for row in mark.rows[:MAX_SHOWN]:
            mine = np.flatnonzero(queue == queue[row])
            at = int(np.searchsorted(mine, row))
            near = [i for i in (at - distance, at + distance) if 0 <= i < len(mine)]
            chosen.update(dict.fromkeys(mine[near].tolist()))
    low, high = min(mark.rows), max(mark.rows)
    between = np.flatnonzero(ops.words("kind").isin(_ORDERING)[low:high]) + low
    theirs = np.isin(queue[between], [int(queue[r]) for r in mark.rows])
    chosen.update(dict.fromkeys(between[theirs][::-1][:MAX_SHOWN].tolist()))
    for row in list(chosen)[:MAX_SHOWN]:  # what those wait for
        chosen.update(dict.fromkeys(s for s, why in graph.before(row) if why not in ("program", "issue")))
    return sorted(list(chosen)[:MAX_SHOWN])


def _nearest(rows: Iterable[int], to: int) -> list[int]:
    return sorted(rows, key=lambda r: abs(r - to))[:_LINKED]


def _reduced(arrows: list[Arrow]) -> tuple[Arrow, ...]:
    """Leave out what follows from other arrows."""
    after: dict[int, set[int]] = {}
    for a in arrows:
        after.setdefault(a.source, set()).add(a.target)

    def follows(arrow: Arrow) -> bool:
        seen: set[int] = set()
        todo = [b for b in after[arrow.source] if b != arrow.target]
        while todo:
            at = todo.pop()
            if at == arrow.target:
                return True
            if at not in seen:
                seen.add(at)
                todo += after.get(at, ())
        return False

    return tuple(a for a in arrows if not follows(a))


def _joint(rows: list[int], graph: Graph) -> Iterator[tuple[int, int]]:
    """Yield members of one collective that are shown, each with the next."""
    members: dict[int, list[int]] = {}
    for row in rows:
        members.setdefault(graph.unit(row), []).append(row)
    for joined in members.values():
        yield from pairwise(joined)


def _columns(rows: list[int], queue: Ints, arrows: tuple[Arrow, ...], mark: Mark) -> dict[int, int]:
    """Return the column of each row: to the right of all that comes before it or stands on its queue."""
    before: dict[int, set[int]] = {r: set() for r in rows}
    for a in arrows:
        before[a.target].add(a.source)
    if mark.link and mark.rows[1] in before and mark.rows[0] in before:
        before[mark.rows[1]].add(mark.rows[0])
    last: dict[int, int] = {}
    columns: dict[int, int] = {}
    todo = list(rows)
    while todo:
        row = next((r for r in todo if before[r] <= columns.keys()), todo[0])  # a cycle begins somewhere
        todo.remove(row)
        column = max((columns[b] + 1 for b in before[row] if b in columns), default=0)
        columns[row] = column = max(column, last.get(int(queue[row]), -1) + 1)
        last[int(queue[row])] = column
    return columns
