"""Tie the steps of a request scheduler to the device ops that they caused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from ...formats.columns import Columns
from ...formats.tape import Tape

__all__ = ["first_ops"]


def first_ops(
    tape: Tape, begun: Iterable[tuple[int, int, int]], ended: Mapping[int, int], inputs: int
) -> npt.NDArray[np.int64]:
    """Return for each input the first op issued between a step and its output; -1 for none.

    Ops of the scheduler's own process count, or those of every process where its own one has none (an engine
    whose workers are processes of their own).

    Parameters
    ----------
    tape : Tape
        With device ops.
    begun : iterable of (input, process, at_ns)
        Every step.
    ended : mapping of int to int
        Time of the output, by the input of its step.
    inputs : int
        How many inputs there are.
    """
    ops = Columns(tape.table("ops"))
    ids, issue, timed = ops.ints("op"), ops.ints("issue_ns"), ops.valid("issue_ns")
    by = np.where(ops.valid("issuer"), ops.ints("issuer"), ops.ints("queue"))
    process = Columns(tape.table("queues")).ints("process")[by]
    found = np.full(inputs, -1, np.int64)
    steps = np.array([(*b, ended[b[0]]) for b in begun if b[0] in ended], np.int64).reshape(-1, 4)
    for where in np.unique(steps[:, 1]):
        mine = timed & (process == where)
        rows = np.flatnonzero(mine if mine.any() else timed)
        if not len(rows):
            continue
        rows = rows[np.argsort(issue[rows], kind="stable")]
        times = issue[rows]
        asked = steps[steps[:, 1] == where]
        first = np.searchsorted(times, asked[:, 2])
        inside = (first < len(rows)) & (times[np.minimum(first, len(rows) - 1)] < asked[:, 3])
        found[asked[inside, 0]] = ids[rows[first[inside]]]
    return found
