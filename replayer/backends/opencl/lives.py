"""Use of memory and sync objects outside of their life, from the times of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....formats.columns import Columns
from ...outcome import WrongRead
from ...program import Program
from .graph import Graph
from .memory import Access, Memory

__all__ = ["Lives"]

Times = npt.NDArray[np.int64]

_USES_SYNC = frozenset({"record", "wait", "semsig", "semwait", "coll", "compute", "kernel"})


@dataclass(frozen=True, slots=True)
class _Life:
    """Rows that begin and end something; -1: none that runs."""

    begin: int
    end: int


class Lives:
    """What begins and ends in a program, and who uses it."""

    def __init__(self, program: Program, graph: Graph, memory: Memory) -> None:
        self.graph = graph
        self.contract = graph.contract
        ops = self.contract.ops
        self._buffers = Columns(program.tape.table("buffers"))
        self._parent = self._buffers.ints("parent").tolist()
        self._sources = self.contract.by_target()
        self._before: dict[int, frozenset[int]] = {}
        self._lives: dict[int, _Life] = {}
        begun: dict[int, int] = {}
        ended: dict[int, int] = {}
        self._destroy: dict[int, int] = {}
        for row, kind in enumerate(ops.kind):
            if kind in ("alloc", "free") and ops.target[row] >= 0:
                (begun if kind == "alloc" else ended).setdefault(ops.target[row], row)
            elif kind == "destroy" and ops.sync[row] >= 0:
                self._destroy.setdefault(ops.sync[row], row)
        for buffer in sorted({*begun, *ended}):
            life = _Life(self._runs(begun.get(buffer, -1)), self._runs(ended.get(buffer, -1)))
            if self._is_whole(buffer) and life != _Life(-1, -1):
                self._lives[buffer] = life
        self._touched = Columns(program.tape.table("accesses")).ints("buffer")
        self._users = [
            (a, lives) for a in memory.all if (lives := self._of_buffer(int(self._touched[a.access])))
        ]
        self._sync_users = self._users_of_syncs(program) if self._destroy else {}
        self.gone = self._gone(memory)

    def _runs(self, row: int) -> int:
        return row if row >= 0 and self.contract.unit[row] in self.graph.home else -1

    def _is_whole(self, buffer: int) -> bool:
        offset, size = self._buffers.ints("parent_offset"), self._buffers.ints("bytes")
        parent = self._parent[buffer]
        while parent >= 0:
            if offset[buffer] != 0 or size[buffer] != size[parent]:
                return False
            buffer, parent = parent, self._parent[parent]
        return True

    def _line(self, buffer: int) -> Iterator[int]:
        while buffer >= 0:
            yield buffer
            buffer = self._parent[buffer]

    def _of_buffer(self, buffer: int) -> tuple[_Life, ...]:
        return tuple(self._lives[b] for b in self._line(buffer) if b in self._lives)

    def _users_of_syncs(self, program: Program) -> dict[int, list[int]]:
        ops = self.contract.ops
        lists: defaultdict[int, list[int]] = defaultdict(list)
        table = Columns(program.tape.table("lists"))
        for key, unit in zip(table.ints("list").tolist(), table.ints("unit").tolist(), strict=True):
            lists[key].append(unit)
        users: dict[int, list[int]] = {}
        for row, kind in enumerate(ops.kind):
            used = lists.get(ops.list[row], []) if kind == "wait_any" else [ops.sync[row]]
            if kind != "wait_any" and kind not in _USES_SYNC:
                continue
            for sync in dict.fromkeys(used):
                end = self._runs(self._destroy.get(sync, -1))
                if end >= 0:
                    users.setdefault(end, []).append(row)
        return users

    def _gone(self, memory: Memory) -> frozenset[int]:
        """Return roots all of whose generations that the tape knows of are freed."""
        shared = {a.root: int(self._touched[a.access]) for a in memory.all}
        top = {next(iter(reversed(list(self._line(b))))): root for root, b in shared.items()}
        touched = {int(self._touched[a.access]) for a in memory.all}
        gone, lives = set(), set()
        for buffer in range(self._buffers.rows):
            line = list(self._line(buffer))
            root = top.get(line[-1], line[-1])
            life = self._lives.get(buffer)
            if life is not None and life.end >= 0:
                gone.add(root)
            elif (life is not None or buffer in touched) and not any(
                self._lives[b].end >= 0 for b in line if b in self._lives
            ):
                lives.add(root)
        return frozenset(gone - lives)

    def facts(self, start: Times, done: Times, end: Times) -> Iterator[WrongRead]:
        """Yield uses outside of a life, given when units started, were done and let others go on."""
        unit = self.contract.unit
        for a, lives in self._users:
            of = unit[a.row]
            if start[of] < 0 or done[of] < 0:
                continue
            for life in lives:
                at = self._outside(life, of, start, done, end)
                if at >= 0:
                    yield self._wrong(a, at)
                    break
        for ending, rows in self._sync_users.items():
            over = unit[ending]
            for row in rows:
                of = unit[row]
                if 0 <= end[over] <= start[of] and of not in self._all_before(over):
                    yield WrongRead(row, -1, "destroyed", -1, 0, 0, int(start[of]))

    def _outside(self, life: _Life, of: int, start: Times, done: Times, end: Times) -> int:
        unit = self.contract.unit
        if life.begin >= 0:
            begun = unit[life.begin]
            early = end[begun] < 0 or end[begun] > start[of]
            if early and begun != of and begun not in self._all_before(of):
                return int(start[of])
        if life.end >= 0:
            over = unit[life.end]
            if over != of and 0 <= end[over] < done[of] and of not in self._all_before(over):
                return int(max(end[over], start[of]))
        return -1

    def _wrong(self, a: Access, at: int) -> WrongRead:
        return WrongRead(a.row, a.access, "freed", a.root, a.begin, a.end, at)

    def _all_before(self, unit: int) -> frozenset[int]:
        """Return what has ended before a unit starts, whatever the clocks of host and device say."""
        known = self._before.get(unit)
        if known is None:
            known = self._before[unit] = self._ended_before(unit)
        return known

    def _ended_before(self, unit: int) -> frozenset[int]:
        contract, (first, sources) = self.contract, self._sources
        found: set[int] = set()
        seen = {unit}
        todo = [unit]
        while todo:
            at = todo.pop()
            for source in sources[first[at] : first[at + 1]]:
                parts = [source]
                while parts:
                    part = parts.pop()
                    if part not in found:
                        found.add(part)
                        parts += contract.children.get(part, ())
                        if part not in seen:
                            seen.add(part)
                            todo.append(part)
            for parent in contract.parents.get(at, ()):
                if parent not in seen:
                    seen.add(parent)
                    todo.append(parent)
        return frozenset(found)
