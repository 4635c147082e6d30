"""When each op of a tape begins and ends, for a picture: as recorded, else as the edges allow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..columns import Bools, Columns, Ints
from ..edges import Contract, resolve
from ..edges.contract import ISSUE
from ..tape import Tape

__all__ = ["OP_NS", "WORK", "Timeline", "timeline"]

WORK = frozenset({"host", "kernel", "compute", "copy", "memset", "rdma", "coll"})
"""Kinds of ops that do something; the others order, wait and note."""

OP_NS = 1000
"""What an op takes that no time is known of, where no op has one."""

_BOUND_NS = 1 << 60
"""36 years: times beyond are taken for that."""


@dataclass(frozen=True)
class Timeline:
    """Times by row, since the first of all.

    Attributes
    ----------
    issue_ns, start_ns, end_ns : numpy.ndarray of int64, shape (rows,)
        An op without a known time stands where the last op before it stands.
    lasting : numpy.ndarray of bool, shape (rows,)
        It is known how long the op took.
    timed : numpy.ndarray of bool, shape (rows,)
        It is known when it was issued.
    origin_ns : int
        What was taken from the times of the tape.
    recorded : bool
        The times are those of the tape; false: it has none, and each op starts as soon as the edges allow.
    """

    issue_ns: Ints
    start_ns: Ints
    end_ns: Ints
    lasting: Bools
    timed: Bools
    origin_ns: int
    recorded: bool


def timeline(tape: Tape, contract: Contract | None = None) -> Timeline:
    """Return when each op begins and ends.

    Parameters
    ----------
    tape : Tape
        A valid tape.
    contract : Contract, optional
        Its edges, where they are at hand; needed only for a tape without times.
    """
    ops = Columns(tape.table("ops"))
    timed = ops.valid("issue_ns")
    if timed.any():
        return _recorded(ops, timed)
    return _laid_out(ops, contract or resolve(tape))


def _recorded(ops: Columns, timed: Bools) -> Timeline:
    known = _bounded(ops, "issue_ns")
    before = np.maximum.accumulate(np.where(timed, known, -_BOUND_NS))
    issue = np.where(timed, known, np.maximum(before, known[timed].min()))
    start = issue + np.where(ops.valid("start_after_issue_ns"), _bounded(ops, "start_after_issue_ns"), 0)
    lasting = ops.valid("duration_ns") & timed
    end = start + np.where(lasting, np.maximum(_bounded(ops, "duration_ns"), 0), 0)
    origin = min(int(issue.min()), int(start.min()))
    return Timeline(issue - origin, start - origin, end - origin, lasting, timed, origin, recorded=True)


def _bounded(ops: Columns, column: str) -> Ints:
    """Return a column of times whose sums stay numbers of 64 bits."""
    return np.clip(ops.ints(column), -_BOUND_NS, _BOUND_NS)


def _laid_out(ops: Columns, contract: Contract) -> Timeline:
    work = ops.words("kind").isin(WORK)
    known = ops.valid("duration_ns")
    takes: list[int] = np.where(
        work, np.where(known, np.maximum(_bounded(ops, "duration_ns"), 0), OP_NS), 0
    ).tolist()
    start, end = [0] * ops.rows, [0] * ops.rows
    first, sources = contract.by_target()
    order = contract.order()
    latest = 0
    for event in order.schedule:
        unit = event if event >= 0 else ~event
        if event < 0:
            end[unit] = max([start[unit], *(end[c] for c in contract.children[unit])])
        else:
            begins = [end[s] for s in sources[first[unit] : first[unit + 1]]]
            begins += [start[p] for p in contract.parents.get(unit, ())]
            if unit in contract.any_of:
                begins.append(min(end[r] for r in contract.any_of[unit]))
            start[unit] = max(begins, default=0)
            end[unit] = start[unit] + max(takes[r] for r in contract.rows_of(unit))
        latest = max(latest, end[unit])
    for unit in order.stuck.units:  # after everything that ran
        start[unit] = end[unit] = latest
    of = np.asarray(contract.unit, np.int64)
    start_ns, end_ns = np.asarray(start, np.int64)[of], np.asarray(end, np.int64)[of]
    issue_ns = np.zeros(ops.rows, np.int64)
    issues = contract.rule == ISSUE
    np.maximum.at(issue_ns, contract.target[issues], end_ns[contract.source[issues]])
    own = ops.ints("queue") == ops.ints("issuer")
    issue_ns = np.where(own, start_ns, np.minimum(issue_ns[of], start_ns))
    timed = np.ones(ops.rows, np.bool_)
    return Timeline(issue_ns, start_ns, end_ns, work | (end_ns > start_ns), timed, 0, recorded=False)
