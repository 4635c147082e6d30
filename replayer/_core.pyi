"""Types of the native core."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

# --- columns_bind.cpp

class Tape:
    """The columns of a tape with its edges; `replayer.columns.core_tape` makes one."""

    def __init__(self, tables: Mapping[str, Mapping[str, Any]], where: str) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def where(self) -> str: ...
    def edges(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int8]]:
        """Return sources, targets (units) and rules (places in `formats.edges.RULES`), by target."""

    def any_of(self) -> dict[int, list[int]]:
        """Return the record units of each wait for any of several events."""

    def units(self) -> npt.NDArray[np.int32]:
        """Return the unit of each row."""

    def parents(self, unit: int) -> list[int]:
        """Return the units that a unit is part of."""

    def unresolved(self) -> list[int]:
        """Return the rows that wait for something that was not seen."""

    def never(self) -> list[int]:
        """Return the rows that wait for a signal that no row gives."""

    def schedule(self) -> npt.NDArray[np.int32]:
        """Return the reference order: ``u`` where unit u starts, ``~u`` where one with children ends."""

    def stuck(self) -> tuple[list[int], list[int], list[list[int]]]:
        """Return the units that never start, the rows whose signal no row gives, and the cycles (rows)."""

    def accesses(
        self,
    ) -> tuple[
        npt.NDArray[np.int64],
        npt.NDArray[np.int32],
        npt.NDArray[np.int64],
        npt.NDArray[np.int64],
        npt.NDArray[np.int8],
        npt.NDArray[np.int32],
    ]:
        """Return what the ops touch, one entry per range.

        Returns
        -------
        first : numpy.ndarray, shape (rows + 1,)
            Entries of row r: ``first[r]`` to ``first[r + 1]``.
        root, begin, end, mode, access_row : numpy.ndarray, shape (entries,)
            Root buffer, bytes, place in `ACCESS_MODES`, row of `accesses`.

        Raises
        ------
        Unsupported
            Beyond 50,000,000 entries.
        """

# --- virtual/bind.cpp

_Part = tuple[int, int, int, int]
"""Begin, end, writer (row), what stands there: 0 version, 1 derived, 2 torn."""

WrongRead = tuple[int, int, int, int, int, int, int, tuple[_Part, ...], tuple[_Part, ...], bool]
"""Row, access, place in `WRONG_KINDS`, root, begin, end, at_ns, saw, expected, derived."""

def program_times(tape: Tape) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the gap before each row and what it takes, in ns."""

class Virtual:
    """A program in virtual time. Delays are sorted by row and place, one each."""

    def __init__(
        self, tape: Tape, gap_ns: npt.NDArray[np.int64], duration_ns: npt.NDArray[np.int64], values: bool
    ) -> None: ...
    @property
    def reads(self) -> int:
        """How many reads a run judges."""

    def run(
        self, row: npt.NDArray[np.int32], place: npt.NDArray[np.int8], ns: npt.NDArray[np.int64], limit: int
    ) -> tuple[
        npt.NDArray[np.int64],
        npt.NDArray[np.int64],
        npt.NDArray[np.int64],
        list[WrongRead],
        int,
        tuple[int, ...],
        bool,
    ]:
        """Return issue, start and end of each row (-1: never), wrong reads up to a limit, how many, chain, too late."""

    def run_many(
        self,
        first: npt.NDArray[np.int64],
        row: npt.NDArray[np.int32],
        place: npt.NDArray[np.int8],
        ns: npt.NDArray[np.int64],
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return wrong reads and total time of each run; run i has the delays ``first[i]`` to ``first[i + 1]``."""

    def interleaving(
        self, row: npt.NDArray[np.int32], place: npt.NDArray[np.int8], ns: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int32]:
        """Return the events of a run in order: ``u`` where unit u starts, ``~u`` where it ends."""
