"""One record of a spool."""

from __future__ import annotations

from typing import NamedTuple

from .layout import Flag

__all__ = ["Record"]

_CHILD = int(Flag.CHILD)


class Record(NamedTuple):
    """A record and its place in the issue order of all processes."""

    position: int
    slot: int
    issue_ns: int
    end_ns: int
    a: int
    b: int
    c: int
    d: int
    e: int
    name: int
    thread: int
    queue: int
    kind: int
    flags: int

    @property
    def is_child(self) -> bool:
        """Whether a meta device's call issued it."""
        return bool(self.flags & _CHILD)
