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
from .run import Trace

__all__ = ["Lives"]

_USES_SYNC = frozenset({"record", "wait", "semsig", "semwait", "coll", "compute", "kernel"})


@dataclass(frozen=True, slots=True)
class _Life:
    """Rows that begin and end something; -1: none that runs. `whole`: it covers all of its root."""

    begin: int
    end: int
    whole: bool = True

    def ends_for(self, row: int) -> bool:
        """Whether its end concerns an op: releasing a part in flight is bookkeeping."""
        return self.end >= 0 and (self.whole or row > self.end)


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
            begin, end = self._runs(begun.get(buffer, -1)), self._runs(ended.get(buffer, -1))
            if max(begin, end) >= 0:
                self._lives[buffer] = _Life(begin, end, self._is_whole(buffer))
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
        """Return roots all of whose whole generations that the tape knows of are freed."""
        whole = {b: life for b, life in self._lives.items() if life.whole}
        shared = {a.root: int(self._touched[a.access]) for a in memory.all}
        top = {next(iter(reversed(list(self._line(b))))): root for root, b in shared.items()}
        touched = {int(self._touched[a.access]) for a in memory.all}
        gone, lives = set(), set()
        for buffer in range(self._buffers.rows):
            line = list(self._line(buffer))
            root = top.get(line[-1], line[-1])
            life = whole.get(buffer)
            if life is not None and life.end >= 0:
                gone.add(root)
            elif (life is not None or buffer in touched) and not any(
                whole[b].end >= 0 for b in line if b in whole
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
                if self._is_before(~over, of, trace):
                    yield WrongRead(row, -1, "destroyed", -1, 0, 0, int(trace.start_ns[of]))

    def _outside(self, life: _Life, row: int, trace: Trace) -> int:
        """Return when an access was outside of a life, or -1."""
        unit = self.contract.unit
        of = unit[row]
        # Of a use that follows the alloc in row order `check` says nothing either.
        if 0 <= row < life.begin and unit[life.begin] != of:
            begun = unit[life.begin]
            if trace.end_ns[begun] < 0 or self._is_before(of, ~begun, trace):
                return int(trace.start_ns[of])
        if life.ends_for(row) and unit[life.end] != of:
            over = unit[life.end]
            if self._is_before(~over, ~of, trace):
                return int(max(trace.end_ns[over], trace.start_ns[of]))
        return -1

    def _is_before(self, first: int, second: int, trace: Trace) -> bool:
        """Whether a node came before another: by the edges, by the pin, else by the clocks."""
        a, b = (n if n >= 0 else ~n for n in (first, second))
        at, until = (
            int((trace.start_ns if n >= 0 else trace.done_ns)[u]) for n, u in ((first, a), (second, b))
        )
        if at < 0 or until < 0:
            return False
        if a in self._all_before(b):
            return True
        if b in self._all_before(a):
            return False
        if trace.place:
            return trace.place[first] < trace.place[second]
        mixed = self.graph.is_host(a) != self.graph.is_host(b)
        return at + (trace.clock_error_ns if mixed else 0) < until

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
