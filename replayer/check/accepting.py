"""What a baseline accepts, asked per pair of accesses without making words of each."""

from __future__ import annotations

from ...formats.plain import NULL
from .baseline import Baseline
from .explain import Views, signed
from .ranges import Buffers

__all__ = ["Accepting"]


class Accepting:
    """Sorts ops and accesses by what a signature says of them.

    Two accesses of one sort are accepted with the same others. `NULL` is the sort of whatever stands in no
    signature of the baseline.
    """

    def __init__(self, baseline: Baseline, views: Views, buffers: Buffers) -> None:
        self._baseline = baseline
        self._views = views
        self._buffers = buffers
        self._named: dict[int, bool] = {}
        self._accepted: dict[tuple[str, str, str, int, int], bool] = {}

    def sort(self, row: int, access: int) -> int:
        """Return the sort of an op with one of its accesses (`NULL` for the op alone)."""
        sort = self._views.sort(row, access)
        named = self._named.get(sort)
        if named is None:
            named = self._named[sort] = self._baseline.names(self._views.sorts[sort])
        return sort if named else NULL

    def race(self, fault: str, root: int, first: int, second: int) -> bool:
        """Whether a race between two sorts is accepted."""
        return self.fault("race", fault, self._buffers.title(root), first, second)

    def fault(self, kind: str, fault: str, what: str, first: int, second: int) -> bool:
        """Whether a finding about two sorts is accepted."""
        if first == NULL or second == NULL:
            return False
        key = (kind, fault, what, first, second)
        known = self._accepted.get(key)
        if known is None:
            parts = [self._views.sorts[s] for s in (first, second)]
            known = self._accepted[key] = self._baseline.accepts(signed(kind, fault, what, parts))
        return known
