"""Which of several pairs are reported: the latest, and what is more certain than all later ones."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

__all__ = ["POSSIBLE", "SURE", "UNKNOWN", "Thinned"]

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

UNKNOWN, POSSIBLE, SURE = range(3)


class Thinned(Generic[K, V]):
    """Of what is added under one key, a later one stands for earlier ones that are no more certain.

    Iterating yields (key, certainty, value), per key the most certain first.
    """

    def __init__(self) -> None:
        self._best: dict[K, list[tuple[int, V] | None]] = {}

    def add(self, key: K, certainty: int, rank: int, value: V) -> None:
        """Add a value that stands at `rank`; of one rank and certainty the first one stays."""
        best = self._best.get(key)
        if best is None:
            best = self._best[key] = [None, None, None]
        known = best[certainty]
        if known is None or known[0] < rank:
            best[certainty] = (rank, value)

    def sure(self, key: K) -> int:
        """Return the rank from which on earlier values under a key count for nothing."""
        best = self._best.get(key)
        found = None if best is None else best[SURE]
        return -1 if found is None else found[0]

    def __iter__(self) -> Iterator[tuple[K, int, V]]:
        for key, best in self._best.items():
            latest = -1
            for certainty in (SURE, POSSIBLE, UNKNOWN):
                found = best[certainty]
                if found is not None and found[0] > latest:
                    latest = found[0]
                    yield key, certainty, found[1]
