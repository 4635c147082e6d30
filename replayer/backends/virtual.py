"""The backend in virtual time: exact, the same everywhere, as fast as computing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...formats.delays import Delays
from ...formats.errors import Unsupported
from .. import _core
from ..outcome import WRONG_KINDS, Outcome, Seen, WrongRead
from ..program import Program, checked
from .protocol import Capabilities, Options, Pin

__all__ = ["LoadedVirtual", "ManyRuns", "VirtualBackend"]

_END_OF_TIME_NS = 1 << 61
"""Where virtual time stands still."""

_STATES = ("version", "derived", "torn")


class VirtualBackend:
    """Ops as events in virtual time, values with identity (`REPLAY.md`)."""

    def capabilities(self) -> Capabilities:
        """Return what it can do."""
        return Capabilities(name="virtual", deterministic=True, timing_only=True)

    def available(self) -> str:
        """Return an empty string: it runs everywhere."""
        return ""

    def load(self, program: Program, options: Options) -> LoadedVirtual:
        """Make a program ready to run: the reference is played once.

        Raises
        ------
        InvalidTape
            If an access of the tape makes no sense.
        Unsupported
            If the tape has more ranges than a run can hold.
        """
        return LoadedVirtual(program, options)


@dataclass(frozen=True)
class ManyRuns:
    """What many runs gave, without saying which reads were wrong.

    Attributes
    ----------
    wrong_count : numpy.ndarray of int64, shape (runs,)
        Wrong reads; 0 everywhere where values were left out.
    total_ns : numpy.ndarray of int64, shape (runs,)
        When the last op ended.
    """

    wrong_count: npt.NDArray[np.int64]
    total_ns: npt.NDArray[np.int64]


class LoadedVirtual:
    """A program in virtual time."""

    def __init__(self, program: Program, options: Options) -> None:
        self._program = program
        self._options = options
        self._core: _core.Virtual | None = _core.Virtual(
            program.core, program.gap_ns, program.duration_ns, options.values
        )
        stuck, never, cycles = program.core.stuck()
        units = program.core.units() if stuck else np.empty(0, np.int32)
        self._stuck = tuple(np.flatnonzero(np.isin(units, stuck)).tolist())
        self._never = tuple(never)
        self._cycles = tuple(tuple(c) for c in cycles)

    def _ready(self, delays: Sequence[Delays]) -> _core.Virtual:
        if self._core is None:
            raise Unsupported("a run of a program that was closed", expected="one that is loaded")
        for d in delays:
            checked(self._program, d)
        return self._core

    def run(self, delays: Delays, *, pin: Pin | None = None) -> Outcome:
        """Run it once.

        Raises
        ------
        Unsupported
            With a pin: a run in virtual time always takes its own order. Also where times add up to more than
            70 years.
        UsageError
            If a delay names a row that the program has not.
        """
        core = self._ready([delays])
        if pin is not None:
            raise Unsupported(
                "a pinned run in virtual time",
                expected="a backend in real time; a virtual run has the same order every time",
                where=self._program.tape.where,
                next_step="leave the pin out",
            )
        issue, start, end, wrong, count, chain, late, own = core.run(
            delays.row, delays.place, delays.ns, max(self._options.wrong_limit, 1)
        )
        if late:
            raise self._too_late()
        return Outcome(
            backend="virtual",
            issue_ns=issue,
            start_ns=start,
            end_ns=end,
            wrong=[_wrong_read(w) for w in wrong],
            wrong_count=count,
            own_count=own,
            chain=chain,
            judged=self._options.values,
            reads=core.reads,
            stuck=self._stuck,
            never=self._never,
            cycles=self._cycles,
            notes=self._program.notes,
        )

    def run_many(self, delays: Sequence[Delays]) -> ManyRuns:
        """Run it with each of several delays, and only count: thousands of runs a second on a small tape.

        Raises
        ------
        UsageError
            If a delay names a row that the program has not.
        Unsupported
            If the times of one of the runs add up to more than 70 years.
        """
        core = self._ready(delays)
        first = np.zeros(len(delays) + 1, np.int64)
        np.cumsum([len(d) for d in delays], out=first[1:])
        found = core.run_many(
            first,
            np.concatenate([d.row for d in delays] or [np.empty(0, np.int32)]),
            np.concatenate([d.place for d in delays] or [np.empty(0, np.int8)]),
            np.concatenate([d.ns for d in delays] or [np.empty(0, np.int64)]),
        )
        many = ManyRuns(*found)
        if len(delays) and many.total_ns.max() >= _END_OF_TIME_NS:
            raise self._too_late()
        return many

    def _too_late(self) -> Unsupported:
        return Unsupported(
            "times that add up to more than 70 years",
            expected="durations, gaps and delays of less",
            where=self._program.tape.where,
        )

    def close(self) -> None:
        """Give back the memory."""
        self._core = None


def _wrong_read(found: _core.WrongRead) -> WrongRead:
    row, access, kind, root, begin, end, at_ns, saw, expected, derived = found
    return WrongRead(
        row, access, WRONG_KINDS[kind], root, begin, end, at_ns, _seen(saw), _seen(expected), derived
    )


def _seen(parts: Sequence[tuple[int, int, int, int]]) -> tuple[Seen, ...]:
    return tuple(Seen(begin, end, writer, _STATES[state]) for begin, end, writer, state in parts)
