"""What a pair of ops can be at fault for, under the numbers of the native pass."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FAULTS", "Pair", "kind_of"]

FAULTS = (
    "RAW",
    "WAR",
    "WAW",
    "use-after-free",
    "free-in-flight",
    "use-before-alloc",
    "double-free",
    "destroy-pending",
    "use-after-destroy",
)
"""In the order of `Fault` in ``replayer/native/check/common.h``."""

_RACES = 3


def kind_of(fault: int) -> str:
    """Return ``race`` or ``lifetime``."""
    return "race" if fault < _RACES else "lifetime"


class Pair(NamedTuple):
    """Two rows of ops, the earlier in reference order first.

    Attributes
    ----------
    fault : int
        Place in `FAULTS`.
    first, second : int
        Rows of `ops`.
    first_access, second_access : int
        Rows of `accesses`; -1 where the op begins or ends something.
    buffer : int
        A buffer of the memory that it is about; -1 for a sync object.
    sync : int
        The sync object, or -1.
    begin, end : int or None
        Bytes of the root buffer.
    definite, assumed : bool
        Rests on observed facts alone; something that was not seen may order the two.
    hull : bool
        Not all bytes from `begin` to `end` need be common ones.
    """

    fault: int
    first: int
    second: int
    first_access: int
    second_access: int
    buffer: int
    sync: int
    begin: int | None
    end: int | None
    definite: bool
    assumed: bool
    hull: bool
