"""What one run gave: times, and every read that saw something else than in the reference order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["AT_END", "WRONG_KINDS", "Outcome", "Seen", "WrongRead", "own_first"]

AT_END = -1
"""Row of the host's read of every buffer after all ops."""

WRONG_KINDS = ("stale", "torn", "freed", "destroyed")
"""What is wrong with a read: it saw another version than in the reference order; a write went on during it;
its memory was not allocated or freed already; the event or semaphore that an op used was destroyed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A part of what a read saw.

    Attributes
    ----------
    begin, end : int
        Bytes of the root buffer.
    writer : int
        Row of the op whose version stands there; -1: what was there before the first op.
    state : str
        ``version``: written in one piece by `writer`; ``derived``: by `writer`, from something wrong that it
        had read before; ``torn``: `writer` was at it, or several ops were; ``unknown``: bytes that no
        version has.
    """

    begin: int
    end: int
    writer: int
    state: str = "version"


@dataclass(frozen=True, slots=True)
class WrongRead:
    """A read that saw something else than in the reference order, or a use of what was not there.

    Attributes
    ----------
    row : int
        Row of the reading op; `AT_END` for the host's read at the end.
    access : int
        Row of `accesses`; -1 where there is none.
    kind : str
        One of `WRONG_KINDS`.
    root : int
        Root buffer; -1 for ``destroyed``.
    begin, end : int
        Bytes of the root buffer: what the access touches.
    at_ns : int
        When it became a fact.
    saw, expected : tuple of Seen
        Where they differ, ascending, at most 16 parts each; a neighbour of one writer is one part.
    derived : bool
        Only what came out of an earlier wrong read is wrong with it.
    """

    row: int
    access: int
    kind: str
    root: int
    begin: int
    end: int
    at_ns: int
    saw: tuple[Seen, ...] = ()
    expected: tuple[Seen, ...] = ()
    derived: bool = False


@dataclass
class Outcome:
    """One run.

    Attributes
    ----------
    backend : str
        Name of the backend.
    issue_ns, start_ns, end_ns : numpy.ndarray of int64, shape (rows,)
        Per row, since the start of the run; -1: never. `end_ns` is when those who wait for it may go on: a
        delay after the end is in it.
    wrong : list of WrongRead
        In the order in which they became facts, at most the limit that was asked for, the first of all always
        among them. Those that come out of others (``derived``) are the first to be left out.
    wrong_count : int
        How many there are.
    own_count : int or None
        How many of them do not come out of earlier ones; None where the backend does not know.
    chain : tuple of int
        Rows from the first wrong read on to a read of the host that saw what came out of it (`AT_END` last if
        it is the one at the end); empty where no host read saw anything.
    judged : bool
        The reads were judged; false for a run for timing alone.
    reads : int
        Reads judged.
    stuck : tuple of int
        Rows that never started.
    never : tuple of int
        Rows that wait for a signal that no row gives.
    cycles : tuple of tuple of int
        Rows that wait for each other.
    notes : tuple of str
        What the backend has to say, in words.
    """

    backend: str
    issue_ns: npt.NDArray[np.int64]
    start_ns: npt.NDArray[np.int64]
    end_ns: npt.NDArray[np.int64]
    wrong: list[WrongRead] = field(default_factory=list)
    wrong_count: int = 0
    own_count: int | None = None
    chain: tuple[int, ...] = ()
    judged: bool = True
    reads: int = 0
    stuck: tuple[int, ...] = ()
    never: tuple[int, ...] = ()
    cycles: tuple[tuple[int, ...], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> WrongRead | None:
        """The first wrong read."""
        return self.wrong[0] if self.wrong else None

    @property
    def unlisted(self) -> int:
        """Wrong reads that are left out of `wrong` and may not come out of those that are in it."""
        if self.own_count is None:
            return max(self.wrong_count - len(self.wrong), 0)
        return max(self.own_count - sum(not w.derived for w in self.wrong), 0)

    @property
    def deadlock(self) -> bool:
        """Whether something never starts."""
        return bool(self.stuck)

    @property
    def clean(self) -> bool:
        """Every op ran, and every read saw what it sees in the reference order."""
        return not self.wrong_count and not self.stuck

    @property
    def total_ns(self) -> int:
        """When the last op ended."""
        return int(self.end_ns.max(initial=0))


def own_first(wrong: Sequence[WrongRead], limit: int) -> list[WrongRead]:
    """Return at most so many wrong reads, in their order; those that come out of others are left out first.

    The first of all always stays.
    """
    if len(wrong) <= limit:
        return list(wrong)
    kept = [*wrong[:1]]
    room = limit - 1 - min(sum(not w.derived for w in wrong[1:]), limit - 1)
    for w in wrong[1:]:
        if len(kept) < limit and (not w.derived or room > 0):
            kept.append(w)
            room -= w.derived
    return kept
