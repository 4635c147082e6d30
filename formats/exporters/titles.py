"""What ops are called in a picture, and what they touch, in words that a screen may show."""

from __future__ import annotations

import numpy as np

from ..columns import Columns
from ..shown import printable
from ..tape import Tape

__all__ = ["Titles"]

_NAMED = 8
"""Names of tensors that are said one by one."""


class Titles:
    """Names for the rows of a tape; every text is printable."""

    def __init__(self, tape: Tape) -> None:
        self.ops = Columns(tape.table("ops"))
        self.accesses = Columns(tape.table("accesses"))
        self.queues = self._names(tape, "queues", "queue")
        self.devices = self._names(tape, "devices", "device")
        self.buffers = self._names(tape, "buffers", "buffer")
        self.syncs = self._names(tape, "syncs", "sync")
        sets = self.accesses.ints("set")
        self._by_set = np.argsort(sets, kind="stable")
        self._sets = sets[self._by_set]
        self._touched: dict[int, tuple[str, str]] = {}
        self._shown: dict[str, str] = {}

    def _names(self, tape: Tape, table: str, what: str) -> list[str]:
        names = tape.table(table).column("name").to_pylist()
        return [printable(n) or f"{what} {i}" for i, n in enumerate(names)]

    def _word(self, column: str, row: int) -> str:
        word = self.ops.words(column)[row]
        if word is None:
            return ""
        shown = self._shown.get(word)
        if shown is None:
            shown = self._shown[word] = printable(word)
        return shown

    def kind(self, row: int) -> str:
        """Return the kind of an op."""
        return self._word("kind", row)

    def name(self, row: int) -> str:
        """Return the name of an op, empty where it has none."""
        return self._word("name", row)

    def label(self, row: int) -> str:
        """Return ``#12`` or the label of a litmus file."""
        return self._word("label", row) or f"#{int(self.ops.ints('op')[row])}"

    def touched(self, row: int) -> tuple[str, str]:
        """Return what an op reads and what it writes: tensors, else buffers."""
        key = int(self.ops.ints("access_set")[row])
        found = self._touched.get(key)
        if found is None:
            found = self._touched[key] = self._touched_by(key)
        return found

    def _touched_by(self, key: int) -> tuple[str, str]:
        if key <= 0:
            return "", ""
        first, last = np.searchsorted(self._sets, (key, key + 1)).tolist()
        names, modes = self.accesses.words("name"), self.accesses.words("mode")
        buffers = self.accesses.ints("buffer")
        sides: tuple[dict[str, None], dict[str, None]] = ({}, {})
        for row in self._by_set[first:last].tolist():
            buffer = int(buffers[row])
            name = names[row] or (self.buffers[buffer] if buffer >= 0 else "")
            if name:
                sides[modes[row] != "read"][printable(name)] = None
        return _some(sides[0]), _some(sides[1])

    def object(self, row: int) -> str:
        """Return what an op waits for, signals, begins or ends; empty where it does none of these."""
        sync = int(self.ops.ints("sync")[row])
        if sync >= 0:
            return self.syncs[sync]
        target, kind = int(self.ops.ints("target")[row]), self.kind(row)
        if kind == "sync":
            what = self.ops.words("target_kind")[row]
            if what == "queue":
                return self.queues[target]
            return self.devices[target] if what == "device" else "every queue"
        return self.buffers[target] if kind in ("alloc", "free") and target >= 0 else ""

    def title(self, row: int) -> str:
        """Return the kind of an op and what tells it from others of its kind."""
        kind = self.kind(row)
        what = self.name(row) or self.object(row)
        if not what:
            reads, writes = self.touched(row)
            what = writes or reads
        return f"{kind} {what}" if what else kind


def _some(names: dict[str, None]) -> str:
    shown = list(names)[:_NAMED]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
