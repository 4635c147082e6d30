"""A cursor over one definition frame of a spool, and the checks that its readers share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ....formats.errors import SpoolError
from .layout import NONE

__all__ = ["INT64_MAX", "Payload", "all_known", "damaged", "int64", "known"]

INT64_MAX = (1 << 63) - 1


def damaged(found: str, expected: str, where: str) -> SpoolError:
    """Return the error for bytes that no writer can have left."""
    return SpoolError(found, expected=expected, where=where, next_step="record again; this spool is damaged")


def int64(value: int, what: str, where: str) -> int:
    """Return a number that a tape can hold.

    Raises
    ------
    SpoolError
        It is too large.
    """
    if value > INT64_MAX:
        raise damaged(f"{what} is {value}", "a number below 2^63", where)
    return value


class Payload:
    """A cursor over one frame that never reads past its end."""

    def __init__(self, data: memoryview, where: str) -> None:
        self.data = data
        self.at = 0
        self.where = where

    def take(self, n: int) -> memoryview:
        """Return the next `n` bytes.

        Raises
        ------
        SpoolError
            There are not so many.
        """
        if n > len(self.data) - self.at:
            raise damaged(
                f"a field of {n} bytes in a frame with {len(self.data) - self.at} left", "no more", self.where
            )
        got = self.data[self.at : self.at + n]
        self.at += n
        return got

    def u32(self) -> int:
        """Return the next 32-bit number."""
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        """Return the next 64-bit number."""
        return int.from_bytes(self.take(8), "little")

    def text(self) -> str:
        """Return the next text."""
        return bytes(self.take(self.u32())).decode("utf-8", "replace")

    def rows(self, n: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return the next `n` rows of a layout."""
        return np.frombuffer(self.take(n * dtype.itemsize), dtype)

    def next_id(self, have: int, what: str) -> None:
        """Refuse an id that is not the next one."""
        got = self.u32()
        if got != have:
            raise damaged(f"{what} id {got}", f"{have}: ids count up from 0", self.where)

    def end(self) -> None:
        """Refuse bytes that are left."""
        if self.at != len(self.data):
            raise damaged(f"{len(self.data) - self.at} bytes too many in a frame", "none", self.where)


def known(value: int, have: int, what: str, where: str, *, optional: bool = False) -> None:
    """Refuse an id that was not defined; `optional`: `NONE` is none.

    Raises
    ------
    SpoolError
        It was not.
    """
    if value >= have and not (optional and value == NONE):
        raise damaged(f"{what} {value}", f"one of the {have} defined", where)


def all_known(values: npt.NDArray[Any], have: int, what: str, where: str, *, optional: bool = False) -> None:
    """As `known`, for a column."""
    wrong = values >= have
    if optional:
        wrong &= values != NONE
    if wrong.any():
        raise damaged(f"{what} {int(values[wrong][0])}", f"one of the {have} defined", where)
