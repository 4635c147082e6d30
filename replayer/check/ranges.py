"""Which physical bytes an op touches: roots resolved, growing ranges and unit lists spelled out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...formats.edges import Contract
from ...formats.errors import InvalidTape
from ...formats.limits import MAX_BUFFER_DEPTH
from ...formats.plain import NULL, flat, ids, optional, words
from ...formats.tape import Tape

__all__ = ["MODES", "READS", "WRITES", "Access", "Buffers", "Ranges", "Span", "conflict", "hazard"]

Span = tuple[int, int]

MODES = ("read", "write", "update", "may_write", "reduce")
READS = frozenset({"read", "update", "reduce"})
WRITES = frozenset({"write", "update", "may_write", "reduce"})


def conflict(earlier: str, later: str) -> bool:
    """Whether two accesses to one byte need an order."""
    if earlier == "reduce" and later == "reduce":
        return False
    return earlier in WRITES or later in WRITES


def hazard(earlier: str, later: str) -> str:
    """Return RAW, WAW or WAR for two accesses that conflict."""
    if earlier in WRITES:
        return "RAW" if later in READS else "WAW"
    return "WAR"


class Access(NamedTuple):
    """One access of one op.

    Attributes
    ----------
    root : int
        Memory: the lowest root buffer of it.
    begin, end : int
        Hull in bytes of the root.
    spans : tuple of (int, int) or None
        The ranges, disjoint and ascending, where there is more than one.
    mode : str
        Access mode.
    observed : bool
        Neither inferred nor declared nor over-approximated.
    buffer : int
        The buffer row that the access names.
    row : int
        Row of `accesses`.
    """

    root: int
    begin: int
    end: int
    spans: tuple[Span, ...] | None
    mode: str
    observed: bool
    buffer: int
    row: int

    def ranges(self) -> Sequence[Span]:
        """Return the ranges."""
        return self.spans or ((self.begin, self.end),)

    def overlap(self, other: Access) -> Span | None:
        """Return the hull of the bytes that both touch, or None."""
        if self.root != other.root or self.begin >= other.end or other.begin >= self.end:
            return None
        if self.spans is None and other.spans is None:
            return max(self.begin, other.begin), min(self.end, other.end)
        low, high = None, None
        ours, theirs = self.ranges(), other.ranges()
        i = j = 0
        while i < len(ours) and j < len(theirs):
            begin, end = max(ours[i][0], theirs[j][0]), min(ours[i][1], theirs[j][1])
            if begin < end:
                low = begin if low is None else low
                high = end
            if ours[i][1] <= theirs[j][1]:
                i += 1
            else:
                j += 1
        return None if low is None or high is None else (low, high)


class Buffers:
    """Roots, offsets and kinship of the buffers."""

    def __init__(self, tape: Tape) -> None:
        table = flat(tape.table("buffers"))
        self.rows: int = table.num_rows
        self.name = words(table, "name")
        self.parent = ids(table, "parent")
        self.bytes = optional(table, "bytes")
        offsets = optional(table, "parent_offset")
        shared = optional(table, "shared_key")
        if ids(table, "buffer") != list(range(self.rows)):
            raise InvalidTape("buffer ids have gaps", expected="0 .. rows-1, in order", where=tape.where)
        depth: list[int] = []
        self.root: list[int] = []
        self.offset: list[int] = []
        self.owner: list[int] = []
        keyed: dict[int, int] = {}
        for buffer, parent in enumerate(self.parent):
            if parent == NULL:
                key = shared[buffer]
                self.root.append(buffer if key is None else keyed.setdefault(key, buffer))
                self.owner.append(buffer)
                self.offset.append(0)
                depth.append(0)
            elif 0 <= parent < buffer:
                self.root.append(self.root[parent])
                self.owner.append(self.owner[parent])
                self.offset.append(self.offset[parent] + (offsets[buffer] or 0))
                depth.append(depth[parent] + 1)
                if depth[-1] > MAX_BUFFER_DEPTH:
                    raise InvalidTape(
                        f"buffer {buffer} lies in {depth[-1]} others, one in the other",
                        expected=f"at most {MAX_BUFFER_DEPTH}",
                        where=tape.where,
                    )
            else:
                raise InvalidTape(
                    f"buffer {buffer} has parent {parent}",
                    expected="a buffer with a lower id",
                    where=tape.where,
                )

    def title(self, root: int) -> str:
        """Return the name of a memory for people."""
        return self.name[root] or f"buffer {root}"

    def is_whole(self, buffer: int) -> bool:
        """Whether the row is a root buffer or a generation of one: it covers all of its parent."""
        parent = self.parent[buffer]
        while parent != NULL:
            if self.offset[buffer] != self.offset[parent] or self.bytes[buffer] != self.bytes[parent]:
                return False
            buffer, parent = parent, self.parent[parent]
        return True

    def lineage(self, buffer: int) -> list[int]:
        """Return the buffer and all that it is a part of."""
        found = [buffer]
        while self.parent[found[-1]] != NULL:
            found.append(self.parent[found[-1]])
        return found


@dataclass(frozen=True)
class _Row:
    """A row of `accesses`."""

    buffer: int
    offset: int
    bytes: int
    offset_per_arg: int
    bytes_per_arg: int
    unit_bytes: int | None
    mode: str
    observed: bool
    row: int


class Ranges:
    """Resolves access sets; those that depend on nothing but themselves are resolved once."""

    def __init__(self, tape: Tape, contract: Contract, buffers: Buffers) -> None:
        self._ops = contract.ops
        self._buffers = buffers
        self._where = tape.where
        table = flat(tape.table("accesses"))
        self.tensor = words(table, "name")
        self._sets: dict[int, list[_Row]] = {}
        columns = zip(
            ids(table, "set"),
            ids(table, "buffer"),
            optional(table, "offset"),
            optional(table, "bytes"),
            optional(table, "offset_per_arg"),
            optional(table, "bytes_per_arg"),
            optional(table, "unit_bytes"),
            words(table, "mode"),
            words(table, "origin"),
            strict=True,
        )
        for row, (key, buffer, offset, size, offset_arg, size_arg, unit, mode, origin) in enumerate(columns):
            if buffer >= buffers.rows or buffer < NULL:
                raise self._error(f"access set {key}: buffer {buffer}", f"a buffer id below {buffers.rows}")
            if mode not in MODES:
                raise self._error(f"access set {key}: mode {mode!r}", ", ".join(MODES))
            observed = origin == "observed" and mode != "may_write"
            self._sets.setdefault(key, []).append(
                _Row(
                    buffer, offset or 0, size or 0, offset_arg or 0, size_arg or 0, unit, mode, observed, row
                )
            )
        self._fixed = {
            key: [self._place(r) if _is_fixed(r) else r for r in rows] for key, rows in self._sets.items()
        }
        self._cache: dict[int, tuple[Access, ...]] = {0: ()}
        for key, parts in self._fixed.items():
            if not any(isinstance(p, _Row) for p in parts):
                self._cache[key] = tuple(p for p in parts if isinstance(p, Access))
        self._last = NULL
        self._last_found: tuple[Access, ...] = ()
        self._lists: dict[int, list[int]] = {}
        units = flat(tape.table("lists"))
        for key, unit_index in zip(ids(units, "list"), ids(units, "unit"), strict=True):
            self._lists.setdefault(key, []).append(unit_index)

    def _error(self, found: str, expected: str) -> InvalidTape:
        return InvalidTape(
            found,
            expected=expected,
            where=self._where,
            next_step="`tapedelay info --validate` lists every fault",
        )

    def buffers_of(self, key: int) -> set[int]:
        """Return the buffers that a set names."""
        return {r.buffer for r in self._sets.get(key, ()) if r.buffer != NULL}

    def is_fixed(self, row: int) -> bool:
        """Whether what an op touches depends on nothing but its access set."""
        return self._ops.access_set[row] in self._cache

    def of(self, row: int) -> tuple[Access, ...]:
        """Return the accesses of an op to memory that other ops can name; unknown ones are none."""
        key = self._ops.access_set[row]
        if key == NULL:
            return ()
        known = self._cache.get(key)
        if known is not None:
            return known
        if row == self._last:
            return self._last_found
        parts = self._fixed.get(key)
        if parts is None:
            raise self._error(f"op {self._ops.op[row]}: access set {key}", "a set of `accesses`, or 0")
        found = [p if isinstance(p, Access) or p is None else self._resolve(p, row) for p in parts]
        self._last = row
        self._last_found = tuple(a for a in found if a is not None)
        return self._last_found

    def _place(self, access: _Row) -> Access | None:
        """Return an access that is the same for every op."""
        if access.buffer == NULL or access.bytes <= 0:
            return None
        begin = self._buffers.offset[access.buffer] + access.offset
        root = self._buffers.root[access.buffer]
        return Access(
            root, begin, begin + access.bytes, None, access.mode, access.observed, access.buffer, access.row
        )

    def _resolve(self, access: _Row, row: int) -> Access | None:
        """Return an access that depends on the op's arg or list."""
        if access.buffer == NULL:
            return None
        arg = self._ops.arg[row]
        if arg is None:
            if access.offset_per_arg or access.bytes_per_arg:
                raise self._error(f"op {self._ops.op[row]} has no arg", "one: its access set grows with it")
            arg = 0
        begin = self._buffers.offset[access.buffer] + access.offset + arg * access.offset_per_arg
        size = access.bytes + arg * access.bytes_per_arg
        if size <= 0:
            return None
        root = self._buffers.root[access.buffer]
        if access.unit_bytes is None:
            return Access(
                root, begin, begin + size, None, access.mode, access.observed, access.buffer, access.row
            )
        units = self._lists.get(self._ops.list[row])
        if units is None:
            raise self._error(
                f"op {self._ops.op[row]}: list {self._ops.list[row]}", "a list: its access set names units"
            )
        spans: list[Span] = []
        for unit in sorted(set(units)):
            low = begin + unit * access.unit_bytes
            if spans and low <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(spans[-1][1], low + size))
            else:
                spans.append((low, low + size))
        if not spans:
            return None
        return Access(
            root,
            spans[0][0],
            spans[-1][1],
            tuple(spans) if len(spans) > 1 else None,
            access.mode,
            access.observed,
            access.buffer,
            access.row,
        )


def _is_fixed(row: _Row) -> bool:
    return row.unit_bytes is None and not row.offset_per_arg and not row.bytes_per_arg
