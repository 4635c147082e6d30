"""Single ops of a tape as patterns that count, which mean the same op while an engine runs."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np

from ..columns import Columns
from ..tape import Tape
from ..window import windows
from .globs import Glob
from .match import Anchors
from .plan import MAX_ANCHORS, Line, Pattern, Plan

__all__ = ["ENGINE_KINDS", "Counting", "counting_plan"]

ENGINE_KINDS = ("compute", "copy", "memset", "record", "wait", "sync", "alloc", "free", "destroy", "mark")
"""Kinds of ops that the recorder sees an engine issue, in the order of ``op_kind``."""

_NEVER_HELD = ("alloc", "destroy", "mark")
_SPLIT_COPY = re.compile(r"(p\d+\.)?split copy(\.\d+)?")
"""Sync objects with which a recording shows that one queue waits for a copy on another."""


class Counting:
    """Names ops of one tape by kind, queue and number: ``17th copy on TAPE0``.

    Parameters
    ----------
    anchors : Anchors
        Of the whole tape.
    tape : Tape
        That tape.
    """

    def __init__(self, anchors: Anchors, tape: Tape) -> None:
        self._anchors = anchors
        names = tape.table("queues").column("name").to_pylist()
        self._queues = [Glob.exactly(str(n)) if n else None for n in names]
        self._patterns: dict[tuple[str, int], Pattern] = {}
        ops = Columns(tape.columns("ops", ("sync", "origin")))
        self._issued = ops.words("origin").isin(["observed"])
        syncs = tape.table("syncs").select(["sync", "name"]).to_pylist()
        parts = [s["sync"] for s in syncs if _SPLIT_COPY.fullmatch(s["name"] or "")]
        self._part = np.isin(ops.ints("sync"), parts) & ops.valid("sync")
        self.elsewhere = _other_counts(tape)
        """Why counts on this tape are not those of the run that it is of; empty where they are."""

    def pattern(self, row: int) -> Pattern | None:
        """Return the pattern of a row on this tape; None where it has none."""
        kind, queue = self._anchors.kind(row), int(self._anchors.queue[row])
        on = self._queues[queue]
        if on is None:
            return None
        known = self._patterns.get((kind, queue))
        if known is None:
            if len(self._patterns) == MAX_ANCHORS:
                return None
            known = self._patterns[kind, queue] = Pattern(0, kind, on=on)
        nth = self._anchors.nth(known, row)
        return Pattern(nth, kind, on=on) if nth else None

    def never(self, row: int) -> str:
        """Return why no engine can be told by a pattern to hold this op up; empty where it can."""
        kind = self._anchors.kind(row)
        if self.elsewhere:
            return self.elsewhere
        if not self._issued[row] or kind not in ENGINE_KINDS:
            return "no engine issues it"
        if kind in _NEVER_HELD:
            return f"an engine's {kind} cannot be held up"
        if self._part[row]:
            return "it is part of a copy between queues"
        return "" if self.pattern(row) is not None else "its queue has no name, or there are too many"


def _other_counts(tape: Tape) -> str:
    if windows(tape.manifest):
        return "the tape is a window, counts of the whole run are others"
    return "records were lost, counts of the run are others" if tape.manifest.lost else ""


def counting_plan(exact: Plan, tape: Tape, anchors: Anchors | None = None) -> tuple[Plan, int]:
    """Return a plan of op ids as lines that count; those that no engine could follow stay, and say why.

    Parameters
    ----------
    exact : Plan
        Of op ids of `tape`.
    tape : Tape
        The whole tape.
    anchors : Anchors, optional
        Of it.

    Returns
    -------
    tuple of Plan and int
        The plan, and how many of its lines are op ids.
    """
    anchors = anchors or Anchors(tape)
    counting = Counting(anchors, tape)
    lines: list[Line] = []
    reasons: Counter[str] = Counter()
    for line in exact.lines:
        assert isinstance(line.anchor, int)
        row = int(np.searchsorted(anchors.op_ids, line.anchor))
        why = counting.never(row)
        pattern = None if why else counting.pattern(row)
        if pattern is None:
            reasons[why] += 1
            lines.append(replace(line, note=why))
        else:
            lines.append(replace(line, anchor=pattern))
    by_id = reasons.total()
    notes = exact.notes
    if by_id:
        notes += (f"{by_id} of {len(lines)} lines name ops of this tape alone; `record` cannot take them:",)
        notes += tuple(f"  {count}: {why}" for why, count in reasons.most_common())
    return Plan(tuple(lines), notes, exact.name), by_id
