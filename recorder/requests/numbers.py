"""The numbers that stand for an engine's request ids, in the order in which they are first seen.

The ids stay here: what leaves are numbers, and of each which one's id sorts right before it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

__all__ = ["Key", "Numbers"]

Key = str | int
_ENDED_KEPT = 8192
"""So many ids of ended requests are remembered: what comes late still finds its number."""
_UNKNOWN = (None,) * 6


class Numbers:
    """Numbers the requests of one scheduler."""

    def __init__(self) -> None:
        self._of: dict[Key, int] = {}
        self._count = 0
        self._ids: list[tuple[str, Any]] = []
        self._live: set[Key] = set()
        self._ended: OrderedDict[Key, None] = OrderedDict()
        self._new: dict[int, list[Any]] = {}
        self._last_keys: Sequence[Key] = ()
        self._last: list[int] = []

    def of(self, key: Key) -> int:
        """Return the number of an id."""
        number = self._of.get(key)
        return self._assign(key, None) if number is None else number

    def all(self, keys: Sequence[Key]) -> list[int]:
        """Return the numbers of ids: the same list for the same ids, step after step."""
        if keys == self._last_keys:
            return self._last
        try:
            numbers = list(map(self._of.__getitem__, keys))
        except KeyError:
            numbers = [self.of(k) for k in keys]
        self._last_keys, self._last = keys, numbers
        return numbers

    def again(self, key: Key) -> None:
        """Let an id that was submitted before be a new request."""
        if key in self._ended or key in self._live:
            self._ended.pop(key, None)
            self._assign(key, self._of[key])

    def submitted(self, key: Key, *about: Any) -> None:
        """Note what is known of a request: the six last columns of ``new`` in a raw recording."""
        number = self.of(key)
        self._new.setdefault(number, [number, None, *_UNKNOWN])[2:] = about
        self._live.add(key)

    def ended(self, key: Key) -> None:
        """Note that a request is over."""
        self._live.discard(key)
        self._ended[key] = None
        if len(self._ended) > _ENDED_KEPT:
            old, _ = self._ended.popitem(last=False)
            del self._of[old]
            self._last_keys = ()
            del self._ids[bisect_left(self._ids, (type(old).__name__, old))]

    def take_new(self) -> list[list[Any]]:
        """Return the rows of those that are new since the last call, or of which more is known."""
        if not self._new:
            return []
        new, self._new = list(self._new.values()), {}
        return new

    def _assign(self, key: Key, after: int | None) -> int:
        """Give the next number; `after`: the request whose id sorts right before (None: look)."""
        if after is None:
            sortable = (type(key).__name__, key)
            at = bisect_left(self._ids, sortable)
            after = self._of[self._ids[at - 1][1]] if at else -1
            self._ids.insert(at, sortable)
        number = self._count
        self._count += 1
        self._new[number] = [number, after, *_UNKNOWN]
        self._of[key] = number
        self._last_keys = ()
        return number
