"""What the ops and buffers of a tape are called, read row by row: only messages need it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ...formats.tape import Tape
from ..check.explain import phrase
from ..check.findings import OpView
from ..outcome import AT_END

__all__ = ["Names"]

_KNOWN_SETS = 256
"""Access sets whose rows are kept."""
_COLUMNS = ("op", "kind", "name", "label", "queue", "access_set", "step", "split")
_READS = ("read", "update")
_WRITES = ("write", "update", "may_write", "reduce")


class Names:
    """Makes `OpView`s and phrases of rows."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._accesses = tape.table("accesses")
        self._queues: list[dict[str, Any]] = tape.table("queues").select(["name", "device"]).to_pylist()
        self._devices: list[dict[str, Any]] = tape.table("devices").select(["name", "kind"]).to_pylist()
        self._buffers = tape.table("buffers")
        self._sets: tuple[Any, Any] | None = None
        self._known: dict[int, list[dict[str, Any]]] = {}
        self._shared: dict[int, int] | None = None
        self._views: dict[tuple[int, int], OpView] = {}

    @cached_property
    def _ops(self) -> pa.Table:
        return self._tape.columns("ops", _COLUMNS)

    def title(self, buffer: int) -> str:
        """Return the name of a buffer."""
        return self._buffers.column("name")[buffer].as_py() or f"buffer {buffer}"

    def queue_name(self, queue: int) -> str:
        """Return the name of a queue."""
        return self._queues[queue]["name"] or f"queue {queue}"

    def device_name(self, queue: int) -> str:
        """Return the name of a queue's device."""
        device: int = self._queues[queue]["device"]
        return self._devices[device]["name"] or f"device {device}"

    def of(self, row: int, access: int = -1) -> OpView:
        """Return the view of a row, with one of its accesses (a row of `accesses`)."""
        known = self._views.get((row, access))
        if known is None:
            known = self._views[row, access] = self._view(row, access)
        return known

    def phrase(self, row: int, access: int = -1) -> str:
        """Return a row as a noun phrase with its label."""
        if row == AT_END:
            return "the host, at the end,"
        view = self.of(row, access)
        return f"{phrase(view)} ({view.label})"

    def writer(self, row: int, root: int) -> str:
        """Return a row as the writer of a buffer."""
        for access in self._of_set(row):
            if access["mode"] in _WRITES and self._root(access["buffer"]) == root:
                return self.phrase(row, access["row"])
        return self.phrase(row)

    def _view(self, row: int, access: int) -> OpView:
        op = self._ops.slice(row, 1).to_pylist()[0]
        queue = op["queue"]
        reads = writes = mode = tensor = ""
        touched = self._of_set(row)
        mine = [a for a in touched if a["row"] == access]
        for a in mine + touched:
            if not reads and a["mode"] in _READS:
                reads = self._what(a)
            if not writes and a["mode"] in _WRITES:
                writes = self._what(a)
        if mine:
            mode, tensor = mine[0]["mode"], self._what(mine[0])
        name = op["name"] or ""
        if op["kind"] == "copy" and name and not any(a["name"] for a in touched):
            # engines name a copy after the tensor that moves
            reads, writes = (name, writes) if reads else ("", name)
        device = self._devices[self._queues[queue]["device"]]
        return OpView(
            op=op["op"],
            label=op["label"] or f"#{op['op']}",
            kind=op["kind"],
            name=name,
            queue=self.queue_name(queue),
            device=self.device_name(queue),
            device_kind=device["kind"],
            step=op["step"],
            split=op["split"],
            mode=mode,
            tensor=tensor,
            reads=reads,
            writes=writes,
        )

    def _what(self, access: dict[str, Any]) -> str:
        if access["name"]:
            return str(access["name"])
        return "" if access["buffer"] is None else self.title(self._root(access["buffer"]))

    def _root(self, buffer: int | None) -> int:
        """Return the lowest root buffer of the memory that a buffer is in; -1 for memory without name."""
        if buffer is None:
            return -1
        while (parent := self._buffers.column("parent")[buffer].as_py()) is not None:
            buffer = parent
        key = self._buffers.column("shared_key")[buffer].as_py()
        if key is None:
            return buffer
        if self._shared is None:
            self._shared = {}
            for row, k in enumerate(self._buffers.column("shared_key").to_pylist()):
                if k is not None:
                    self._shared.setdefault(k, row)
        return self._shared[key]

    def _of_set(self, row: int) -> list[dict[str, Any]]:
        key = self._ops.column("access_set")[row].as_py()
        if not key:
            return []
        if self._sets is None:
            column = self._accesses.column("set").to_numpy()
            order = np.argsort(column, kind="stable")
            self._sets = column[order], order
        known = self._known.get(key)
        if known is None:
            keys, order = self._sets
            first, last = np.searchsorted(keys, [key, key + 1])
            rows = order[first:last]
            found = self._accesses.take(pa.array(rows)).to_pylist()
            if len(self._known) >= _KNOWN_SETS:
                self._known.clear()
            known = [{**a, "row": int(r)} for a, r in zip(found, rows, strict=True)]
            self._known[key] = known
        return known
