"""Use of memory and sync objects outside of their life, from the times of a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ....formats.columns import Columns
from ...outcome import WrongRead
from ...program import Program
from .graph import Graph
from .memory import Memory
from .run import Times, Trace

__all__ = ["Lives"]

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

    def facts(self, trace: Trace) -> Iterator[WrongRead]:
        """Yield uses outside of a life."""
        unit = self.contract.unit
        for a, lives in self._users:
            of = unit[a.row]
            if trace.start_ns[of] < 0 or trace.done_ns[of] < 0:
                continue
            for life in lives:
                at = self._outside(life, a.row, trace)
                if at >= 0:
                    yield WrongRead(a.row, a.access, "freed", a.root, a.begin, a.end, at)
                    break
        for ending, rows in self._sync_users.items():
            over = unit[ending]
            for row in rows:
                of = unit[row]
                if self._is_before(over, trace.end_ns, of, trace.start_ns, trace):
                    yield WrongRead(row, -1, "destroyed", -1, 0, 0, int(trace.start_ns[of]))

    def _outside(self, life: _Life, row: int, trace: Trace) -> int:
        """Return when an access was outside of a life, or -1."""
        unit = self.contract.unit
        of = unit[row]
        start, done, end = trace.start_ns, trace.done_ns, trace.end_ns
        # Of a use that follows the alloc in row order `check` says nothing either.
        if 0 <= row < life.begin and unit[life.begin] != of:
            begun = unit[life.begin]
            if end[begun] < 0 or self._is_before(of, start, begun, end, trace):
                return int(start[of])
        if life.end >= 0 and unit[life.end] != of:
            over = unit[life.end]
            if self._is_before(over, end, of, done, trace):
                return int(max(end[over], start[of]))
        return -1

    def _is_before(self, a: int, at: Times, b: int, until: Times, trace: Trace) -> bool:
        """Whether a moment of unit `a` came before one of `b`: by the edges, else by the clocks."""
        if not (at[a] >= 0 and until[b] >= 0):
            return False
        if a in self._all_before(b):
            return True
        if b in self._all_before(a):
            return False
        mixed = self.graph.is_host(a) != self.graph.is_host(b)
        return bool(at[a] + (trace.clock_error_ns if mixed else 0) < until[b])

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
