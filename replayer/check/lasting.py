"""Anchors of ops that a plan can name in another run as well."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...formats.delays import Anchors, Glob, Pattern
from .findings import OpView

__all__ = ["lasting_anchor"]

_NEAR = 8
_MAX_NTH = 1_000
_Ints = npt.NDArray[np.int64]


def lasting_anchor(anchors: Anchors, row: int, view: OpView, queue: _Ints) -> int | Pattern:
    """Return an anchor that means exactly one op in the tape and finds it again in another run, else its id.

    Parameters
    ----------
    anchors : Anchors
        Of the whole tape.
    row : int
        Row of the whole tape.
    view : OpView
        The op.
    queue : numpy.ndarray of int64, shape (rows,)
        Queue of each row.
    """
    for further in range(_NEAR + 1):
        near = _before(row, queue, further)
        if near < 0:
            break
        kind, name = anchors.named(near)
        if not name:
            continue
        pattern = _one(anchors, near, Pattern(1, kind, Glob.exactly(name), on=Glob.exactly(view.queue)))
        if pattern is not None:
            found = Pattern(pattern.which, kind, pattern.name, on=pattern.on, further=further)
            if anchors.rows(found).tolist() == [row]:
                return found
    plain = _one(anchors, row, Pattern(1, view.kind, on=Glob.exactly(view.queue)))
    return int(anchors.op_ids[row]) if plain is None else plain


def _one(anchors: Anchors, row: int, pattern: Pattern) -> Pattern | None:
    nth = anchors.nth(pattern, row)
    if not 1 <= nth <= _MAX_NTH:
        return None
    return Pattern(nth, pattern.kind, pattern.name, on=pattern.on)


def _before(row: int, queue: _Ints, count: int) -> int:
    """Return the row so many places before on the same queue; -1 where there is none near."""
    mine = int(queue[row])
    while count and row > 0:
        row -= 1
        count -= int(queue[row]) == mine
    return row if not count else -1
