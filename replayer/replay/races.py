"""Which races are behind a wrong read that shows none of them directly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ...formats.errors import Unsupported
from ...formats.schema import ACCESS_MODES
from ..check.findings import Finding
from ..outcome import AT_END, Outcome, WrongRead
from ..program import Program
from .names import Names

__all__ = ["Races", "involved"]

_KEEPING = tuple(ACCESS_MODES.index(m) for m in ("may_write", "reduce"))
_MAX_WRITERS = 256
"""Writers that are followed back from one read."""

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]


def involved(wrong: WrongRead) -> set[int]:
    """Return the rows that a wrong read names: its own, and whose values it saw or should have seen."""
    rows = {s.writer for s in (*wrong.saw, *wrong.expected)} | {wrong.row}
    return {r for r in rows if r != AT_END}


class Races:
    """The races of a report as columns, to be asked at once.

    Parameters
    ----------
    findings : sequence of Finding
        All findings.
    rows : sequence of tuple of int
        Their rows.
    names : Names
        Of the same tape.
    program : Program
        What runs.
    """

    def __init__(
        self, findings: Sequence[Finding], rows: Sequence[tuple[int, ...]], names: Names, program: Program
    ) -> None:
        self._names = names
        self._program = program
        self.queue = program.queue
        races = [(f, r) for f, r in zip(findings, rows, strict=True) if f.kind == "race"]
        self._races = [f for f, _ in races]
        self._first = np.array([r[0] for _, r in races], np.int64)
        self._second = np.array([r[1] for _, r in races], np.int64)
        self._begin = np.array([0 if f.begin is None else f.begin for f, _ in races], np.int64)
        self._end = np.array([np.iinfo(np.int64).max if f.end is None else f.end for f, _ in races], np.int64)
        self._reads = np.array([f.ops[0].mode in ("read", "update") for f, _ in races], bool)
        self._writes = np.array([f.ops[0].mode != "read" for f, _ in races], bool)
        self._of_buffer: dict[str, list[int]] = {}
        for at, (finding, _) in enumerate(races):
            self._of_buffer.setdefault(finding.buffer, []).append(at)

    def standing_for(self, wrong: WrongRead, outcome: Outcome) -> list[Finding]:
        """Return the races that stand for one that a wrong read shows.

        An op that the read names, of the queue and mode of the first op of the race and not after it, came
        the wrong way around with the second one, or at once, and the bytes are among those of the race.
        """
        at = self._there(wrong.root, wrong.begin, wrong.end)
        if not len(at):
            return []
        start, end = outcome.start_ns, outcome.end_ns
        began = start[self._second[at]]
        found = np.zeros(len(at), bool)
        for row in involved(wrong):
            if start[row] < 0:
                continue
            alike = (self._reads if row == wrong.row else self._writes)[at]
            alike = alike & (self.queue[self._first[at]] == self.queue[row]) & (self._first[at] >= row)
            found |= alike & (began >= 0) & ((end[row] < 0) | (end[row] > began))
        return [self._races[i] for i in at[found].tolist()]

    def behind(self, wrong: WrongRead, outcome: Outcome) -> list[Finding]:
        """Return the races over old content that the writers of what was read may have kept.

        An op that may write, or reduces, takes what is there into what it writes, and nothing judges that. A
        race that came the wrong way around on such bytes is behind the read, also through several such ops.
        """
        row, root, begin, end = self._kept
        if not len(row) or not self._races:
            return []
        todo = sorted(r for r in involved(wrong) if r != wrong.row)
        seen, found = set(todo), set()
        turned = self._turned(outcome)
        while todo and len(seen) <= _MAX_WRITERS:
            for i in np.flatnonzero(row == todo.pop()).tolist():
                at = self._there(int(root[i]), int(begin[i]), int(end[i]))
                found.update(at[turned[at]].tolist())
                meets = (root == root[i]) & (begin < end[i]) & (end > begin[i])
                more = set(np.unique(row[meets]).tolist()) - seen
                seen |= more
                todo += sorted(more)
        return [self._races[i] for i in sorted(found)]

    def _there(self, root: int, begin: int, end: int) -> _Ints:
        """Return which races are on these bytes."""
        if root < 0:
            return np.empty(0, np.int64)
        at = np.array(self._of_buffer.get(self._names.title(root), []), np.int64)
        return at[(self._begin[at] < end) & (begin < self._end[at])]

    def _turned(self, outcome: Outcome) -> _Bools:
        """Return which races came the wrong way around in a run, or at once."""
        start, end = outcome.start_ns[self._first], outcome.end_ns[self._first]
        other = outcome.start_ns[self._second]
        return (start >= 0) & (other >= 0) & ((end < 0) | (end > other))

    @cached_property
    def _kept(self) -> tuple[_Ints, _Ints, _Ints, _Ints]:
        """Return row, root and bytes of every access that keeps some of the old content."""
        try:
            first, root, begin, end, mode, _ = self._program.core.accesses()
        except Unsupported:  # too many to be looked at
            none = np.empty(0, np.int64)
            return none, none, none, none
        keeps = np.flatnonzero(np.isin(mode, _KEEPING))
        row = np.searchsorted(first, keeps, "right") - 1
        return row, root[keeps].astype(np.int64), begin[keeps], end[keeps]
