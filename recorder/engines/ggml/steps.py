"""Step and split of every record, from what the tap says of the scheduler's calls.

The step is the ordinal of a compute call of the scheduler; the split counts the backend computes inside of
it. ``formats/SPEC.md`` (Steps) says which ops outside of the calls belong to one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .definitions import Spool
from .joins import by_value
from .layout import NO_QUEUE, NONE, Flag, Kind

__all__ = ["Steps", "input_names"]

_Ints = npt.NDArray[np.int64]
_NOT = -1
_INPUT = 1
_LOOK_AHEAD = 4
"""Calls on a thread that a write before them is compared with: contexts may take turns."""
_CALLS = (Kind.SCHED_COMPUTE, Kind.SCHED_ALLOC, Kind.SCHED_RESET)
_MOVES = (Kind.COPY, Kind.SET, Kind.GET)
_FEEDS = (Kind.COPY, Kind.SET, Kind.SPLIT_COPY_WAIT)


def input_names(spool: Spool, graph: int) -> dict[int, int]:
    """Return the inputs of a graph: node index by name id, the first of a name."""
    rows = spool.graphs[graph].rows
    found: dict[int, int] = {}
    for node in np.flatnonzero(rows["flags"] & _INPUT).tolist():
        found.setdefault(int(rows["name"][node]), node)
    found.pop(NONE, None)
    return found


class Steps:
    """Where the records of one process belong.

    Attributes
    ----------
    step, split : array of int
        By record; -1 = none.
    calls : array of int
        The records of compute calls, in issue order.
    unsplit : int
        Calls whose splits could not be told apart: the backends computed another number of times than the
        scheduler has splits.
    """

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._r = spool.records
        n = len(self._r)
        self.step: _Ints = np.full(n, _NOT, np.int64)
        self.split: _Ints = np.full(n, _NOT, np.int64)
        self.unsplit = 0
        kind = self._r["kind"]
        self.calls: _Ints = np.flatnonzero(kind == Kind.SCHED_COMPUTE)
        if not len(self.calls):
            return
        self._of_thread = dict(by_value(self._r["thread"]))
        self._calls_of = {t: self.calls[rows] for t, rows in by_value(self._r["thread"][self.calls])}
        owner = self._owners()
        inside = np.flatnonzero(owner != _NOT)
        self.step[inside] = self._ordinal(owner[inside])
        self._number_splits(owner, inside)
        self.split[np.isin(kind, _CALLS)] = _NOT
        self.step[self.calls] = self._ordinal(self.calls)
        self._place_preparations()
        touched = self._touched()
        self._place_writes(touched)
        self._place_waits()
        self._place_reads()
        self._place_meta()

    def _ordinal(self, calls: _Ints) -> _Ints:
        return self._r["b"][calls].astype(np.int64)

    def _span(self, call: _Ints, thread: _Ints, times: npt.NDArray[np.uint64]) -> tuple[_Ints, _Ints]:
        """Return which records of a thread (positions in `thread`) lie in its calls."""
        end = self._r["end_ns"][call]
        first = np.searchsorted(thread, call) + 1
        last = np.where(end == 0, len(thread), np.searchsorted(times, end, "left"))
        return first, np.maximum(first, last)

    def _owners(self) -> _Ints:
        """Return the innermost compute call that each record was made in; -1 = none."""
        owner = np.full(len(self._r), _NOT, np.int64)
        for t, calls in self._calls_of.items():
            mine = self._of_thread[t]
            first, last = self._span(calls, mine, self._r["issue_ns"][mine])
            for call, a, b in zip(calls.tolist(), first.tolist(), last.tolist(), strict=True):
                owner[mine[a:b]] = call  # inner calls come later
        # a worker's records are found by their issuing record
        owner[np.isin(self._r["kind"], (Kind.EXEC, Kind.DELAY, Kind.GAP))] = _NOT
        return owner

    # --- splits -------------------------------------------------------------------------------------------

    def _number_splits(self, owner: _Ints, inside: _Ints) -> None:
        order = inside[np.argsort(owner[inside], kind="stable")]
        groups = owner[order]
        kind, flags = self._r["kind"][order], self._r["flags"][order]
        own = (flags & int(Flag.CHILD)) == 0
        computes = (kind == Kind.COMPUTE) & own
        starts = np.flatnonzero(np.diff(groups, prepend=_NOT - 1))
        sizes = np.diff(starts, append=len(order))
        before = np.cumsum(computes) - computes
        before -= np.repeat(before[starts], sizes)
        counts = np.add.reduceat(computes, starts) if len(starts) else np.empty(0, np.int64)
        count = np.repeat(counts, sizes)
        # The last op before each that no other call made, and whether it was a compute.
        last_own = np.maximum.accumulate(np.where(own, np.arange(len(order)), 0))
        previous = np.concatenate([[0], last_own[:-1]]) if len(order) else last_own
        after = (kind == Kind.EVENT_RECORD) & computes[previous] & (groups[previous] == groups)
        split = np.minimum(np.where(after, before - 1, before), count - 1)
        split = np.where(own, split, split[last_own])
        self.split[order] = split
        calls = groups[starts]
        wanted = self._r["c"][calls].astype(np.int64)
        unfinished = (self._r["end_ns"][calls] == 0) | ((self._r["flags"][calls] & int(Flag.FAILED)) != 0)
        for g in np.flatnonzero((counts != wanted) & ~unfinished).tolist():
            rows = order[starts[g] : starts[g] + sizes[g]]
            merged = self._in_pieces(rows, int(wanted[g]))
            self.unsplit += merged is None
            self.split[rows] = _NOT if merged is None else merged

    def _in_pieces(self, rows: _Ints, wanted: int) -> _Ints | None:
        """Number the splits of a call that computes them node by node (an evaluation callback).

        A split ends where another backend computes or something is copied.
        """
        split, fed, queue = _NOT, False, None
        found = np.empty(len(rows), np.int64)
        pending = 0
        for i, r in enumerate(self._r[rows]):
            kind = int(r["kind"])
            if r["flags"] & int(Flag.CHILD):
                found[i] = found[i - 1] if i else _NOT
                continue
            if kind == Kind.COMPUTE:
                if fed or r["queue"] != queue:
                    split += 1
                queue, fed = r["queue"], False
                found[pending : i + 1] = split
                pending = i + 1
            elif kind in _FEEDS or kind == Kind.EVENT_WAIT:
                fed = True
            elif not fed:
                found[i] = split
                pending = i + 1
        found[pending:] = split
        return found if split + 1 == wanted else None

    # --- outside of the calls -----------------------------------------------------------------------------

    def _place_preparations(self) -> None:
        """Give a scheduler's reset and allocation, and what is done in it, the step they prepare."""
        kind, sched = self._r["kind"], self._r["e"]
        which = np.flatnonzero(np.isin(kind, _CALLS))
        waiting: dict[int, list[int]] = {}
        spans: list[tuple[int, int]] = []
        columns = (which.tolist(), kind[which].tolist(), sched[which].tolist(), self._r["b"][which].tolist())
        for at, k, s, step in zip(*columns, strict=True):
            if k == Kind.SCHED_COMPUTE:
                spans += [(p, step) for p in waiting.pop(s, ()) if self.step[p] == _NOT]
            elif k == Kind.SCHED_RESET or any(kind[p] == Kind.SCHED_ALLOC for p in waiting.get(s, ())):
                waiting[s] = [at]  # what was prepared before was never computed
            else:
                waiting.setdefault(s, []).append(at)
        prepared = np.array([p for p, _ in spans], np.int64)
        for t, which in by_value(self._r["thread"][prepared]):
            mine = self._of_thread[t]
            calls = prepared[which]
            steps = [spans[i][1] for i in which.tolist()]
            first, last = self._span(calls, mine, self._r["issue_ns"][mine])
            done = self._r["end_ns"][calls] != 0
            for a, b, step, whole in zip(first.tolist(), last.tolist(), steps, done.tolist(), strict=True):
                rows = mine[a - 1 : b] if whole else mine[a - 1 : a]
                self.step[rows[self.step[rows] == _NOT]] = step

    def _touched(self) -> set[tuple[int, int]]:
        """Return which buffers the calls on each scheduler touch."""
        ordinals, first = np.unique(self._ordinal(self.calls), return_index=True)
        inside = np.flatnonzero(self.step != _NOT)
        r = self._r[inside]
        at = np.searchsorted(ordinals, self.step[inside])
        sched = self._r["e"][self.calls[first[at]]].astype(np.int64)
        found: set[tuple[int, int]] = set()
        moved = np.isin(r["kind"], _MOVES)
        for column in ("d", "e"):
            pairs = np.unique(np.stack([sched[moved], r[column][moved].astype(np.int64)], 1), axis=0)
            found.update((s, b) for s, b in pairs.tolist() if b != NONE)
        computed = (r["kind"] == Kind.COMPUTE) & (r["d"] != NONE)
        pairs = np.unique(np.stack([sched[computed], r["d"][computed].astype(np.int64)], 1), axis=0)
        for s, graph in pairs.tolist():
            found.update((s, b) for b in self._buffers_of(graph) if b != NONE)
        return found

    def _buffers_of(self, graph: int) -> list[int]:
        buffers: list[int] = np.unique(self._spool.sets[graph]["buffer"]).tolist()
        return buffers

    def _place_writes(self, touched: set[tuple[int, int]]) -> None:
        """Give a write to an input the step that it is for: a later call of its thread on that graph."""
        r = self._r
        writes = np.flatnonzero(
            np.isin(r["kind"], (Kind.SET, Kind.MEMSET))
            & (self.step == _NOT)
            & (r["e"] != NONE)
            & (r["name"] != NONE)
        )
        if not len(writes) or not self._spool.graphs:
            return
        inputs = [set(input_names(self._spool, g)) for g in range(len(self._spool.graphs))]
        for t, rows in by_value(r["thread"][writes]):
            mine = writes[rows]
            calls = self._calls_of.get(t, np.empty(0, np.int64))
            nexts = np.searchsorted(calls, mine)
            self._match(mine, nexts, calls, inputs, touched)

    def _match(
        self,
        writes: _Ints,
        nexts: _Ints,
        calls: _Ints,
        inputs: list[set[int]],
        touched: set[tuple[int, int]],
    ) -> None:
        r = self._r
        graphs, scheds = r["d"][calls].tolist(), r["e"][calls].tolist()
        steps = self._ordinal(calls).tolist()
        columns = (writes.tolist(), nexts.tolist(), r["name"][writes].tolist(), r["e"][writes].tolist())
        for at, first, name, buffer in zip(*columns, strict=True):
            for k in range(first, min(first + _LOOK_AHEAD, len(steps))):
                if graphs[k] != NONE and name in inputs[graphs[k]] and (scheds[k], buffer) in touched:
                    self.step[at] = steps[k]
                    break

    def _place_waits(self) -> None:
        """Give a host wait the newest step that used the queue, or recorded the event, that it waits for."""
        kind = self._r["kind"]
        known = self.step != _NOT
        used = known & (self._r["queue"] != NO_QUEUE) & (kind != Kind.SYNC)
        self._newest(np.flatnonzero((kind == Kind.SYNC) & ~known), np.flatnonzero(used), "queue")
        recorded = known & (kind == Kind.EVENT_RECORD)
        self._newest(np.flatnonzero((kind == Kind.EVENT_SYNC) & ~known), np.flatnonzero(recorded), "d")

    def _newest(self, outside: _Ints, inside: _Ints, column: str) -> None:
        values = self._r[column]
        candidates = dict(by_value(values[inside]))
        for value, rows in by_value(values[outside]):
            if value in candidates:
                self._take_newest(outside[rows], inside[candidates[value]])

    def _take_newest(self, outside: _Ints, inside: _Ints) -> None:
        at = np.searchsorted(inside, outside) - 1
        seen = at >= 0
        self.step[outside[seen]] = self.step[inside[at[seen]]]

    def _place_reads(self) -> None:
        """Give a read of a tensor the newest step that touched its buffer."""
        r, kind = self._r, self._r["kind"]
        known = self.step != _NOT
        outside = np.flatnonzero((kind == Kind.GET) & ~known & (r["d"] != NONE))
        if not len(outside):
            return
        computes = np.flatnonzero(known & (kind == Kind.COMPUTE) & (r["d"] != NONE))
        moves = np.flatnonzero(known & np.isin(kind, _MOVES))
        graphs = r["d"][computes]
        holds = {g: set(self._buffers_of(g)) for g in np.unique(graphs).tolist()}
        for buffer in np.unique(r["d"][outside]).tolist():
            wanted = [g for g, buffers in holds.items() if buffer in buffers]
            touched = np.concatenate(
                [
                    computes[np.isin(graphs, wanted)],
                    moves[(r["d"][moves] == buffer) | (r["e"][moves] == buffer)],
                ]
            )
            self._take_newest(outside[r["d"][outside] == buffer], np.sort(touched))

    def _place_meta(self) -> None:
        """A call on a meta device belongs where the first part of it does: it names no memory itself."""
        flags, threads = self._r["flags"], self._r["thread"]
        meta = (flags & int(Flag.META)) != 0
        for t in np.unique(threads[meta & (self.step == _NOT)]).tolist():
            mine = self._of_thread[t]
            parts = mine[1:][(flags[mine[1:]] & int(Flag.CHILD)) != 0]
            of = mine[np.searchsorted(mine, parts) - 1]
            open_ = meta[of] & (self.step[of] == _NOT)
            self.step[of[open_]] = self.step[parts[open_]]

    # --- what graphs ask ------------------------------------------------------------------------------------

    def first_calls(self) -> dict[int, int]:
        """Return the first compute call (record) of each graph."""
        graphs = self._r["d"][self.calls]
        found, first = np.unique(graphs, return_index=True)
        return {int(g): int(self.calls[i]) for g, i in zip(found, first, strict=True) if g != NONE}

    def inputs_written(self, call: int) -> list[int]:
        """Return the inputs (node indices) in the order in which they were written for a compute call."""
        graph, step = int(self._r["d"][call]), int(self._r["b"][call])
        names = input_names(self._spool, graph)
        r = self._r[:call]
        mine = np.flatnonzero((self.step[:call] == step) & np.isin(r["kind"], (Kind.SET, Kind.MEMSET)))
        order: dict[int, None] = {}
        for name in r["name"][mine].tolist():
            if name in names:
                order.setdefault(names[name])
        return list(order)

    def first_compute(self, call: int) -> int | None:
        """Return the first backend compute (record) of a compute call."""
        step = int(self._r["b"][call])
        tail = np.flatnonzero((self.step[call:] == step) & (self._r["kind"][call:] == Kind.COMPUTE))
        return call + int(tail[0]) if len(tail) else None
