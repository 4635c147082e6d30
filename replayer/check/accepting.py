"""What a baseline accepts, asked by the native pass once per sort of accesses and pair of sorts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...formats.columns import Words
from ...formats.plain import NULL
from ...formats.tape import Tape
from .baseline import Baseline
from .explain import Views, signed
from .faults import FAULTS, kind_of

__all__ = ["Accepting"]


class Accepting:
    """Sorts ops and accesses by what a signature says of them.

    Two accesses of one sort are accepted with the same others. `NULL` is the sort of whatever stands in no
    signature of the baseline.

    Attributes
    ----------
    names : numpy.ndarray, shape (ops,)
        A number per op name.
    tensors : numpy.ndarray, shape (accesses,)
        1 where an access has a name of its own, so that the op's says nothing.
    """

    def __init__(self, baseline: Baseline, views: Views, tape: Tape) -> None:
        self._baseline = baseline
        self._views = views
        self._named: dict[int, bool] = {}
        names = Words(tape.columns("ops", ["name"]).column(0))
        self.names: npt.NDArray[np.int32] = np.ascontiguousarray(names.codes)
        self.tensors: npt.NDArray[np.uint8] = views.named_accesses()

    def sort(self, row: int, access: int) -> int:
        """Return the sort of an op with one of its accesses (`NULL` for the op alone)."""
        sort = self._views.sort(row, access)
        named = self._named.get(sort)
        if named is None:
            named = self._named[sort] = self._baseline.names(self._views.sorts[sort])
        return sort if named else NULL

    def accepts(self, fault: int, buffer: int, sync: int, first: int, second: int) -> bool:
        """Whether a fault of two sorts about a buffer or a sync object is accepted."""
        if first == NULL or second == NULL:
            return False
        parts = [self._views.sorts[s] for s in (first, second)]
        what = self._views.title(buffer, sync)
        return self._baseline.accepts(signed(kind_of(fault), FAULTS[fault], what, parts))
