"""Numbers and depths that a reader has to bear."""

from __future__ import annotations

import numpy as np

from ..columns import Ints
from ..edges.kinship import kinship
from ..limits import MAX_ABOVE, MAX_BUFFER_DEPTH, MAX_QUEUES
from ..tape import Tape
from ..validate import Findings
from .lookup import Tables, exists, op_rows

__all__ = ["nothing_grows_over"]


def nothing_grows_over(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check the numbers and depths that a reader has to bear."""
    ops, buffers, queues = tables["ops"], tables["buffers"], tables["queues"].rows
    if queues > MAX_QUEUES:
        found.add("limit", "queues", None, f"{queues} queues")
    if buffers.rows:
        rows = np.arange(buffers.rows)
        parent = buffers.ints("parent")
        up = np.where(buffers.valid("parent") & (parent < rows), parent, -1)
        at = up
        for _ in range(MAX_BUFFER_DEPTH):
            at = np.where(at >= 0, up[at], -1)
            if (at < 0).all():
                break
        found.rows("limit", "buffers", at >= 0, lambda r: f"buffer {r} lies in more than {MAX_BUFFER_DEPTH}")
    rows = ops.rows_with("parent") if ops.rows else np.empty(0, np.int64)
    if len(rows):
        parents = ops.raw("parent")[rows].astype(np.int64)
        row_of = op_rows(tables, parents)
        known = exists(tables, "ops", parents) & (row_of < rows)
        up = np.full(ops.rows, -1)
        up[rows[known]] = row_of[known]
        joint = np.flatnonzero(ops.isin("kind", "coll") & ops.valid("sync"))
        if not len(joint) and not _deep(up, rows[known]):
            return
        member = np.full(ops.rows, -1)
        member[joint] = ops.raw("sync")[joint]
        kin = kinship(member.tolist(), up.tolist())
        for code, row, fault in kin.faults:
            found.add(code, "ops", row, f"op {ops.ints('op')[row]} {fault}")


def _deep(up: Ints, rows: Ints) -> bool:
    """Return whether an op may be part of too many others, each row's parent being an earlier one."""
    at = rows
    for _ in range(MAX_ABOVE):
        at = up[at]
        at = np.unique(at[at >= 0])
        if not len(at):
            return False
    return True
