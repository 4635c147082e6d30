"""Pools of units: reference counts, a free list, and what the units are known to contain."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable

__all__ = ["UnitPool"]


class UnitPool:
    """Units ``reserved`` .. ``units - 1``: free ones keep their content until handed out."""

    def __init__(self, name: str, units: int, reserved: int, log: Callable[[str, list[int]], None]) -> None:
        self.name = name
        self.references = [0] * units
        self.free: deque[int] = deque(range(reserved, units))
        self.free_count = units - reserved
        self.content: dict[Hashable, int] = {}
        self.content_of: dict[int, Hashable] = {}
        self._log = log

    def take(self, count: int) -> list[int]:
        """Hand out units, the longest free first; their content is forgotten."""
        units = [self.free.popleft() for _ in range(count)]
        self.free_count -= count
        for unit in units:
            self.forget(unit)
            self.references[unit] = 1
        if units:
            self._log("alloc", units)
        return units

    def touch(self, unit: int) -> None:
        """Hand out one more reference to a unit whose content is wanted."""
        if self.references[unit] == 0:
            self.free.remove(unit)
            self.free_count -= 1
        self.references[unit] += 1
        self._log("share", [unit])

    def give(self, units: Iterable[int]) -> None:
        """Take references back; a unit without one is free."""
        given = list(units)
        for unit in given:
            self.references[unit] -= 1
            if self.references[unit] == 0:
                self.free.append(unit)
                self.free_count += 1
        if given:
            self._log("free", given)

    def remember(self, unit: int, content: Hashable) -> None:
        """Say what a unit contains from now on; the first unit with a content keeps it."""
        if unit not in self.content_of and content not in self.content:
            self.content[content] = unit
            self.content_of[unit] = content

    def forget(self, unit: int) -> None:
        """Forget what a unit contains."""
        content = self.content_of.pop(unit, None)
        if content is not None:
            del self.content[content]

    def forget_all(self) -> None:
        """Forget what all units contain."""
        self.content.clear()
        self.content_of.clear()
