"""Which flows begin and end at which op: the edges between queues, forward in time only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...columns import Ints
from ..timeline import Timeline

__all__ = ["Flows", "positions"]

_TIES = 1000
"""Ops in a row that start at one instant and are put in the order of their edges."""


def positions(source: npt.NDArray[Any], target: npt.NDArray[Any], times: Timeline) -> Ints:
    """Return, per row, where it stands among the ops that start at its instant: after those it waits for."""
    place: Ints = np.arange(len(times.start_ns), dtype=np.int64) * _TIES
    tied = times.start_ns[source] == times.start_ns[target]
    source, target = source[tied], target[tied]
    for _ in range(_TIES):
        late = place[source] >= place[target]
        if not late.any():
            break
        np.maximum.at(place, target[late], place[source[late]] + 1)
    return place


class Flows:
    """Flows by row, numbered from 1.

    Perfetto takes the events of a flow in the order of time: one that would end before it begins is lost.
    Each flow leaves where its source begins, and ends where its target begins or, if that is earlier, at an
    instant of its own where its target ends: a wait begins before what it waits for.

    Parameters
    ----------
    source, target : numpy.ndarray of int
        Rows.
    place : numpy.ndarray of int64
        See `positions`.

    Attributes
    ----------
    shown : int
        How many there are.
    backward : int
        Pairs that the recorded times turn backwards.
    late : numpy.ndarray of int64
        Rows where flows end at the end.
    """

    def __init__(
        self, source: npt.NDArray[Any], target: npt.NDArray[Any], times: Timeline, place: Ints
    ) -> None:
        begin, end = times.start_ns, times.end_ns
        at_begin = (begin[source] < begin[target]) | (
            (begin[source] == begin[target]) & (place[source] < place[target])
        )
        lasts = times.lasting[target]
        at_end = ~at_begin & lasts & (begin[source] <= end[target])
        shown = at_begin | at_end
        self.shown = int(shown.sum())
        self.backward = len(shown) - self.shown
        self.late: Ints = np.unique(target[at_end]).astype(np.int64)
        number: Ints = np.cumsum(shown)
        rows = len(begin)
        self._out = _grouped(source, number, shown, rows)
        self._in_begin = _grouped(target, number, at_begin, rows)
        self._in_end = _grouped(target, number, at_end, rows)

    def leave(self, row: int) -> Sequence[int]:
        """Return the flows that leave from an op."""
        return _of(self._out, row)

    def end_at_begin(self, row: int) -> Sequence[int]:
        """Return the flows that end where an op begins."""
        return _of(self._in_begin, row)

    def end_at_end(self, row: int) -> Sequence[int]:
        """Return the flows that end where an op ends."""
        return _of(self._in_end, row)


def _grouped(
    key: npt.NDArray[Any], number: Ints, chosen: npt.NDArray[np.bool_], rows: int
) -> tuple[Ints, Ints]:
    key, number = key[chosen], number[chosen]
    by = np.argsort(key, kind="stable")
    first = np.concatenate(([0], np.cumsum(np.bincount(key, minlength=rows))))
    return first, number[by]


def _of(grouped: tuple[Ints, Ints], row: int) -> Sequence[int]:
    first, number = grouped
    found: list[int] = number[first[row] : first[row + 1]].tolist()
    return found
