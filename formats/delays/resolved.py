"""Delays on the rows of one tape: what a plan comes to once its anchors have found their ops."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..schema import DELAY_PLACES

__all__ = ["AFTER_END", "BEFORE_ISSUE", "BEFORE_START", "PLACES", "Delays"]

PLACES = DELAY_PLACES
"""Where a delay stands: on the issuing host thread, on the queue before the op, or between its end and all
that waits for it. `Delays.place` holds indices into this."""

(BEFORE_ISSUE, BEFORE_START, AFTER_END) = range(3)


@dataclass(frozen=True)
class Delays:
    """Delays by row, sorted by (row, place), one entry each.

    Attributes
    ----------
    row : numpy.ndarray of int32, shape (n,)
        Row of `ops`.
    place : numpy.ndarray of int8, shape (n,)
        Index into `PLACES`.
    ns : numpy.ndarray of int64, shape (n,)
        Added time, at least 0.
    """

    row: npt.NDArray[np.int32]
    place: npt.NDArray[np.int8]
    ns: npt.NDArray[np.int64]

    @staticmethod
    def of(entries: Iterable[tuple[int, int, int]] = ()) -> Delays:
        """Return delays from (row, place, ns); those of one row and place add up."""
        total: dict[tuple[int, int], int] = {}
        for row, place, ns in entries:
            total[row, place] = total.get((row, place), 0) + ns
        keys = sorted(total)
        return Delays(
            np.array([k[0] for k in keys], np.int32),
            np.array([k[1] for k in keys], np.int8),
            np.array([total[k] for k in keys], np.int64),
        )

    def __len__(self) -> int:
        return len(self.row)
