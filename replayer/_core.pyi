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

    def roots(self) -> npt.NDArray[np.int32]:
        """Return the memory of each buffer: its lowest root."""

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
        int,
    ]:
        """Return issue, start, end of each row (-1: never), wrong reads, how many, chain, whether too late,
        and how many of the wrong reads do not come out of earlier ones.
        """

    def run_many(
        self,
        first: npt.NDArray[np.int64],
        row: npt.NDArray[np.int32],
        place: npt.NDArray[np.int8],
        ns: npt.NDArray[np.int64],
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return wrong reads and total time of each run; run i has delays ``first[i] : first[i + 1]``."""

    def interleaving(
        self, row: npt.NDArray[np.int32], place: npt.NDArray[np.int8], ns: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int32]:
        """Return the events of a run in order: ``u`` where unit u starts, ``~u`` where it ends."""

# --- check/bind.cpp

class Pass:
    """One pass of the check over a tape.

    Parameters
    ----------
    tape : Tape
        The tape.
    unseen : list of bool
        Per queue whether its waits were not all seen.
    accepting : object or None
        What a baseline accepts, see `replayer.check.accepting`.
    sizes : list of int
        Ranges per block, access sets kept, chains tried, ops between looks at what is settled: the results
        do not depend on them.
    """

    def __init__(self, tape: Tape, unseen: list[bool], accepting: object, sizes: list[int] = ...) -> None: ...
    def advance(self, ops: int) -> bool:
        """Go on until a unit shows something or about so many ops are done; False at the end."""

    def found(self) -> list[tuple[Any, ...]]:
        """Return what the last unit showed: the fields of `judge.Pair`."""

    @property
    def done(self) -> int: ...
    @property
    def accesses(self) -> int: ...

class LatestMap:
    """A map from bytes to the latest op that touched them; `block` ranges stand in one block."""

    def __init__(self, block: int = ...) -> None: ...
    def cover(self, begin: int, end: int, rank: int) -> None:
        """Give bytes to `rank`, which is at least as high as all before."""

    def latest(self, begin: int, end: int) -> int:
        """Return the highest rank in a range, or -1."""

    @property
    def top(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def blocks(self) -> int: ...

def ordered(tape: Tape, first: npt.NDArray[np.int32], second: npt.NDArray[np.int32]) -> npt.NDArray[np.uint8]:
    """Return, per pair of rows, 1 where the first ends before the second starts, 2 for the other way around.

    0: neither; rows that never start come before nothing.
    """

def check_facts(tape: Tape) -> dict[str, Any]:
    """Return what the conditions of exactness ask about the ops.

    ``touching``, ``unknown`` (ops that touch memory, and those of them of which nothing is known), ``waits``,
    ``sets`` (whether any op waits, begins or ends something; has accesses), ``busy`` (queues of the first).
    """

# --- threads/bind.cpp

_RealPart = tuple[int, int, int, int]
"""Begin, end (real bytes), writer (row), what stands there: 0 version, 1 derived, 2 torn, 3 unknown."""

RealWrongRead = tuple[int, int, int, int, int, int, int, tuple[_RealPart, ...], tuple[_RealPart, ...], bool]
"""As `WrongRead`, with real bytes."""

class Threads:
    """A program on native threads and in real memory; the threads live until `close`."""

    def __init__(
        self,
        tape: Tape,
        first: npt.NDArray[np.int64],
        root: npt.NDArray[np.int32],
        mode: npt.NDArray[np.int8],
        access: npt.NDArray[np.int32],
        begin: npt.NDArray[np.int64],
        end: npt.NDArray[np.int64],
        roots: npt.NDArray[np.int32],
        root_begin: npt.NDArray[np.int64],
        root_end: npt.NDArray[np.int64],
        bytes: int,
        gap_ns: npt.NDArray[np.int64],
        duration_ns: npt.NDArray[np.int64],
        values: bool,
    ) -> None:
        """Take `Tape.accesses` with the real bytes of `Layout`."""

    @property
    def threads(self) -> int:
        """How many threads wait for a run."""

    @property
    def reads(self) -> int:
        """How many reads a run judges."""

    def run(
        self,
        row: npt.NDArray[np.int32],
        place: npt.NDArray[np.int8],
        ns: npt.NDArray[np.int64],
        pin: npt.NDArray[np.int32],
        time_scale: float,
        timeout_s: float,
        limit: int,
    ) -> tuple[
        npt.NDArray[np.int64],
        npt.NDArray[np.int64],
        npt.NDArray[np.int64],
        list[RealWrongRead],
        int,
        tuple[int, ...],
        int,
        int,
        int,
    ]:
        """Return issue, start and end of each row (-1: never), wrong reads up to a limit, how many, chain,
        how it finished (0 done, 1 stuck, 2 late), and where it is late what would have gone on, and when.

        An empty pin: free. Raises ValueError for a pin that is no order of events of the program.
        """

    def close(self) -> None: ...
