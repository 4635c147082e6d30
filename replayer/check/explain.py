"""Findings in words: what two ops are, and which edge nothing provides."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...formats.columns import Words
from ...formats.plain import NULL
from ...formats.tape import Tape
from .. import _core
from .findings import OpView

__all__ = ["Views", "phrase", "signature", "signed", "story"]

_NOUNS = {
    "host": "host code",
    "kernel": "kernel",
    "compute": "compute",
    "copy": "copy",
    "memset": "fill",
    "rdma": "network transfer",
    "coll": "collective",
    "free": "free",
    "alloc": "allocation",
    "destroy": "destruction",
    "semwait": "semaphore wait",
    "semsig": "semaphore signal",
    "wait": "wait",
    "wait_any": "wait for any",
    "record": "event record",
    "sync": "synchronisation",
}
READS = frozenset({"read", "update", "reduce"})
WRITES = frozenset({"write", "update", "may_write", "reduce"})
_KEPT = 100_000
"""Rows of which something is kept, before all is read anew."""
_DIGITS = re.compile(r"\d+")


class _Cells:
    """Single values of a column, wherever its chunks are."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._chunks = column.chunks
        self._first = list(accumulate((len(c) for c in self._chunks), initial=0))

    def __getitem__(self, row: int) -> Any:
        at = bisect_right(self._first, row) - 1
        return self._chunks[at][row - self._first[at]].as_py()


class _Table:
    """Single values of a table, its columns taken when they are first asked for."""

    def __init__(self, tape: Tape, name: str) -> None:
        self._tape = tape
        self._name = name
        self._columns: dict[str, _Cells] = {}

    def get(self, row: int, name: str) -> Any:
        """Return a value."""
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = _Cells(_column(self._tape, self._name, name))
        return column[row]


class Views:
    """Makes `OpView`s of rows; nothing is read but what is asked for."""

    def __init__(self, tape: Tape, core: _core.Tape) -> None:
        self._tape = tape
        self._core = core
        self._roots: npt.NDArray[np.int32] | None = None
        tables = ("ops", "queues", "devices", "accesses", "buffers", "syncs")
        self._ops, self._queues, self._devices, self._accesses, self._buffers, self._syncs = (
            _Table(tape, name) for name in tables
        )
        self.sorts: list[str] = []
        self._sort_of: dict[tuple[str, int, int, str | None], int] = {}
        self._sort_ids: dict[str, int] = {}
        self._ops_known: dict[int, tuple[str, int, str | None]] = {}
        self._whats: dict[int, str] = {}
        self._names_of: dict[int, tuple[str, str, bool]] = {}

    def _root(self, buffer: int) -> int:
        if self._roots is None:
            self._roots = self._core.roots()
        return int(self._roots[buffer])

    def title(self, buffer: int, sync: int = NULL) -> str:
        """Return the name of a buffer's memory, or of a sync object, for people."""
        if sync != NULL:
            return str(self._syncs.get(sync, "name") or f"sync {sync}")
        root = self._root(buffer)
        return str(self._buffers.get(root, "name") or f"buffer {root}")

    def named_accesses(self) -> npt.NDArray[np.uint8]:
        """Return, per row of `accesses`, whether it or its memory has a name."""
        named = _has_word(_column(self._tape, "accesses", "name"))
        titled = np.append(_has_word(_column(self._tape, "buffers", "name"))[self._core.roots()], False)
        of = _column(self._tape, "accesses", "buffer").fill_null(NULL).to_numpy()
        known = (of >= 0) & (of < len(titled) - 1)
        return np.ascontiguousarray(named | titled[np.where(known, of, NULL)], np.uint8)

    def _what(self, access: int) -> str:
        known = self._whats.get(access)
        if known is None:
            known = self._accesses.get(access, "name")
            if not known:
                buffer = self._accesses.get(access, "buffer")
                known = "" if buffer is None else self._buffers.get(self._root(buffer), "name") or ""
            if len(self._whats) >= _KEPT:
                self._whats.clear()
            self._whats[access] = known
        return known

    def _op(self, row: int) -> tuple[str, int, str | None]:
        known = self._ops_known.get(row)
        if known is None:
            kind, queue, name = (self._ops.get(row, c) for c in ("kind", "queue", "name"))
            known = (kind or "", queue, name)
            if len(self._ops_known) >= _KEPT:
                self._ops_known.clear()
            self._ops_known[row] = known
        return known

    def sort(self, row: int, access: int = NULL) -> int:
        """Return which of `sorts`, what a signature says of an op and its access, these are."""
        tensor = self._what(access) if access != NULL else ""
        kind, queue, name = self._op(row)
        key = (kind, queue, access, None if tensor else name)
        known = self._sort_of.get(key)
        if known is None:
            text = _sort(
                kind,
                self._queues.get(queue, "name") or f"queue {queue}",
                (self._accesses.get(access, "mode") or "") if access != NULL else "",
                tensor or name or "",
            )
            known = self._sort_ids.setdefault(text, len(self.sorts))
            if known == len(self.sorts):
                self.sorts.append(text)
            self._sort_of[key] = known
        return known

    @cached_property
    def _sets(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Set ids in order, and the rows of `accesses` that have them."""
        ids = _column(self._tape, "accesses", "set").to_numpy()
        rows = np.argsort(ids, kind="stable")
        return ids[rows], rows

    def _touched(self, key: int | None) -> tuple[str, str, bool]:
        """Return what a set reads and writes, by the first names in it, and whether tensors are named."""
        if key is None:
            return "", "", False
        known = self._names_of.get(key)
        if known is not None:
            return known
        ids, order = self._sets
        low, high = np.searchsorted(ids, key, "left"), np.searchsorted(ids, key, "right")
        rows: list[int] = order[low:high].tolist()
        reads = writes = ""
        for row in rows:
            if reads and writes:
                break
            mode = self._accesses.get(row, "mode")
            if not reads and mode in READS:
                reads = self._what(row)
            if not writes and mode in WRITES:
                writes = self._what(row)
        found = reads, writes, any(self._accesses.get(r, "name") for r in rows)
        if len(self._names_of) >= _KEPT:
            self._names_of.clear()
        self._names_of[key] = found
        return found

    def of(self, row: int, access: int = NULL) -> OpView:
        """Return the view of an op, with the access (a row of `accesses`) that the finding is about."""
        mode = self._accesses.get(access, "mode") if access != NULL else ""
        tensor = self._what(access) if access != NULL else ""
        reads, writes, named = self._touched(self._ops.get(row, "access_set"))
        reads = tensor if tensor and mode in READS else reads
        writes = tensor if tensor and mode in WRITES else writes
        kind, queue, name = self._op(row)
        if kind == "copy" and name and not named:
            # engines name a copy after the tensor that moves
            reads, writes = (name, writes) if reads else ("", name)
        device = self._queues.get(queue, "device")
        op = self._ops.get(row, "op")
        return OpView(
            op=op,
            label=self._ops.get(row, "label") or f"#{op}",
            kind=kind,
            name=name or "",
            queue=self._queues.get(queue, "name") or f"queue {queue}",
            device=self._devices.get(device, "name") or f"device {device}",
            device_kind=self._devices.get(device, "kind") or "",
            step=self._ops.get(row, "step"),
            split=self._ops.get(row, "split"),
            mode=mode or "",
            tensor=tensor,
            reads=reads,
            writes=writes,
        )


def _column(tape: Tape, table: str, name: str) -> pa.ChunkedArray:
    return tape.columns(table, [name]).column(0)


def _has_word(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return where a column of words has one that is not empty."""
    words = Words(column)
    return np.array([*map(bool, words.words), False], np.bool_)[words.codes]


def phrase(op: OpView) -> str:
    """Return an op as a noun phrase: ``the copy of `X` on TAPE0``, ``the CPU compute that writes `Y```."""
    noun = _NOUNS.get(op.kind, op.kind)
    host = op.device_kind == "host"
    if op.kind == "copy" and (op.reads or op.writes):
        words_of = f"of `{op.reads}`" if op.reads else f"into `{op.writes}`"
        if op.mode in WRITES and op.reads and op.tensor and op.tensor != op.reads:
            words_of += f" into `{op.tensor}`"
        return f"the {noun} {words_of} on {op.queue}"
    verb = ""
    if op.tensor:
        verb = {"read": "reads", "update": "updates", "reduce": "reduces into"}.get(op.mode, "writes")
        verb = f" that {verb} `{op.tensor}`"
    if host and op.kind in ("compute", "kernel"):
        return f"the CPU {noun}{verb}"
    return f"the {noun} on {op.queue}{verb}"


def story(kind: str, fault: str, ops: Sequence[OpView], what: str) -> str:
    """Return what is missing, in one sentence."""
    if kind == "race":
        return f"nothing orders {phrase(ops[0])} before {phrase(ops[1])}"
    if kind == "deadlock":
        if len(ops) == 1 and ops[0].kind == "semwait":
            return f"{phrase(ops[0])} waits for a signal that never comes"
        return "these ops wait for each other: " + ", ".join(f"{phrase(o)} ({o.label})" for o in ops)
    first, second = phrase(ops[0]), phrase(ops[1])
    if fault == "double-free":
        return f"`{what}` is freed twice: by {first} and by {second}"
    if fault == "use-before-alloc":
        use, alloc = (
            (ops[1], ops[0]) if ops[0].kind == "alloc" and ops[1].kind != "alloc" else (ops[0], ops[1])
        )
        return f"{phrase(use)} touches `{what}`, and nothing orders it after {phrase(alloc)} that begins it"
    ends = ("free", "destroy")
    use, end = (ops[1], ops[0]) if ops[0].kind in ends and ops[1].kind not in ends else (ops[0], ops[1])
    if fault in ("free-in-flight", "destroy-pending"):
        return f"nothing orders {phrase(use)} before {phrase(end)} that ends `{what}`"
    return f"{phrase(use)} uses `{what}` after {phrase(end)} that ended it"


def signature(kind: str, fault: str, ops: Sequence[OpView], what: str) -> str:
    """Return what the same finding has in common with itself in another run.

    Numbers inside of op and tensor names count for nothing: layer 3 and layer 4 are one kind of finding. So
    are the ids; queue, device and buffer names are kept.
    """
    return signed(kind, fault, what, [_sort(o.kind, o.queue, o.mode, o.tensor or o.name) for o in ops])


def signed(kind: str, fault: str, what: str, sorts: Sequence[str]) -> str:
    """Return the signature of a finding about ops of these sorts, see `Views.sort`."""
    return " | ".join([kind, fault, what, *sorts])


def _sort(kind: str, queue: str, mode: str, name: str) -> str:
    return f"{kind} {queue} {mode} {_DIGITS.sub('#', name)}".replace("  ", " ").strip()
