"""What a recording with delays came to: counts, faults, and the plan of what was applied."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...formats.delays import Anchors, Counting, Line, Plan, print_plan
from ...formats.delays.plan import MAX_LINES
from ...formats.disk import write_text
from ...formats.errors import CannotJudge, TapedelayError
from ...formats.schema import DELAY_PLACES
from .report import LineCount, delay_faults
from .spool import read_line_counts

if TYPE_CHECKING:
    from ...formats.tape import Tape
    from .asked import AskedDelays

__all__ = ["applied_plan", "settle"]


def settle(
    spool: Path, tape: Tape | None, asked: AskedDelays | None
) -> tuple[tuple[LineCount, ...] | None, list[TapedelayError]]:
    """Return what came of each line, None without a plan, and what is wrong; write the plan if asked to.

    Raises
    ------
    SpoolError
        The counts are not what a recorder leaves.
    InfrastructureError
        The plan cannot be written.
    """
    found = read_line_counts(spool)
    if found is None:
        return None, []
    processes, refused, counts = found
    faults = delay_faults(
        counts,
        processes,
        refused,
        allow_unmatched=asked is not None and asked.allow_unmatched,
        allow="--allow-unmatched" if asked is None else asked.allow,
    )
    if asked is not None and asked.write_plan is not None and tape is not None:
        faults += _write(asked.write_plan, tape, counts)
    return tuple(counts), faults


def _write(path: Path, tape: Tape, counts: list[LineCount]) -> list[TapedelayError]:
    plan, left_out = applied_plan(tape)
    lines = len(plan.lines)
    if lines > MAX_LINES:
        return [
            CannotJudge(
                f"{lines:,} delays were applied: no plan is written",
                expected=f"at most {MAX_LINES:,}",
                where=str(path),
                next_step="delay fewer ops, or record a shorter run",
            )
        ]
    notes = [f"applied in {tape.name}: {lines} delays of {len(counts)} lines"]
    if left_out:
        notes.append(f"{left_out} delays are left out: a recording of many counts is not exact for them")
    write_text(path, print_plan(Plan(plan.lines, tuple(notes))))
    return []


def applied_plan(tape: Tape) -> tuple[Plan, int]:
    """Return the delays that were applied as lines that count, and how many could not be put into one.

    Each names an op by its kind, its queue and its number among those: ``17th copy on TAPE0 +57us
    before_start``. On the tape, and in a run that issues the same ops, it means the same op.
    """
    table = tape.table("delays")
    asked = table.column("asked_ns").to_numpy()
    ops = table.column("op").to_numpy()
    place = np.array([DELAY_PLACES.index(p) for p in table.column("place").to_pylist()], np.int64)
    anchors = Anchors(tape)
    keys, inverse = np.unique(np.stack([ops, place]), axis=1, return_inverse=True)
    total = np.zeros(keys.shape[1], np.int64)
    np.add.at(total, inverse.reshape(-1), asked)
    rows = np.searchsorted(anchors.op_ids, keys[0])
    counting = Counting(anchors, tape)
    lines: list[Line] = []
    left_out = 0
    for row, at, ns in zip(rows.tolist(), keys[1].tolist(), total.tolist(), strict=True):
        if not ns:
            continue
        pattern = counting.pattern(row)
        if pattern is None:
            left_out += 1
        else:
            lines.append(Line(pattern, ns, at))
    return Plan(tuple(lines)), left_out
