"""The backend of native threads: real waits, real memory, real copies."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import numpy as np

from ...formats.delays import Delays
from ...formats.errors import ReplayFailed, Unsupported, UsageError
from .. import _core
from ..layout import Layout
from ..outcome import WRONG_KINDS, Outcome, Seen, WrongRead, own_first
from ..program import Program, checked
from .protocol import Capabilities, Options, Pin

__all__ = ["MAX_THREADS", "LoadedThreads", "ThreadsBackend"]

MAX_THREADS = 512
"""A tape with more queues than that is refused: each one is a thread."""

_TOLD = 10_000
"""How many wrong reads are looked at, to find those that do not come out of others."""

_STATES = ("version", "derived", "torn", "unknown")
_FREE = np.empty(0, np.int32)
_STUCK, _LATE = 1, 2


class ThreadsBackend:
    """One native thread per queue and host thread; ops sleep as long as they took and stamp what they write.

    A thread serves all ops of its queue: on a queue that is not in order their times overlap, while what they
    do as they start and end happens one after another.
    """

    def capabilities(self) -> Capabilities:
        """Return what it can do."""
        return Capabilities(name="threads", real_time=True, timing_only=True, pin=True, resolution_ns=100_000)

    def available(self) -> str:
        """Return an empty string: it runs everywhere."""
        return ""

    def load(self, program: Program, options: Options) -> LoadedThreads:
        """Start the threads, take the memory and run the reference order in it.

        Raises
        ------
        Unsupported
            It needs more than `MAX_THREADS` threads, or more memory than `layout.FULL_LIMIT_BYTES`.
        InvalidTape
            If an access of the tape makes no sense.
        ReplayFailed
            The threads or the memory are not to be had.
        """
        return LoadedThreads(program, options)


class LoadedThreads:
    """A program on threads that wait for its next run."""

    def __init__(self, program: Program, options: Options) -> None:
        where = program.tape.where
        scale = options.time_scale
        if not 0 <= scale < float("inf"):
            raise UsageError(f"time scale {scale}", expected="a number of at least 0", where=where)
        threads = len(np.union1d(program.queue, program.issuer[program.issuer >= 0]))
        if threads > MAX_THREADS:
            raise Unsupported(
                f"{threads} queues with ops",
                expected=f"at most {MAX_THREADS}: each one is a thread",
                where=where,
                next_step="replay a part of the tape (`--ops a:b`), or on the virtual backend",
            )
        self._program = program
        self._options = options
        first, root, begin, end, mode, access = program.core.accesses()
        self._layout = layout = Layout.of(root, begin, end, compact=options.compact, words=1, where=where)
        try:
            core = _core.Threads(
                program.core, first, root, mode, access, layout.begin, layout.end,
                layout.root, layout.root_begin, layout.root_end, layout.bytes,
                program.gap_ns, program.duration_ns, options.values,
            )  # fmt: skip
        except (RuntimeError, MemoryError) as error:
            raise ReplayFailed(
                f"{threads} threads and {layout.bytes:,} bytes of memory are not to be had: {error}",
                where=where,
                next_step="replay a part of the tape (`--ops a:b`), or on the virtual backend",
            ) from error
        self._core: _core.Threads | None = core
        self._running = Lock()
        stuck, never, cycles = program.core.stuck()
        units = program.core.units() if stuck else np.empty(0, np.int32)
        self._stuck = tuple(np.flatnonzero(np.isin(units, stuck)).tolist())
        self._never = tuple(never)
        self._cycles = tuple(tuple(c) for c in cycles)

    def run(self, delays: Delays, *, pin: Pin | None = None) -> Outcome:
        """Run it once; one run at a time, others wait.

        Raises
        ------
        UsageError
            A delay names a row that the program has not, or the pin is no order of its events.
        Unsupported
            The program takes so long that no op ends for `Options.timeout_s`; or it was closed.
        """
        checked(self._program, delays)
        options = self._options
        with self._running:
            if self._core is None:
                raise Unsupported("a run of a program that was closed", expected="one that is loaded")
            try:
                found = self._core.run(
                    delays.row, delays.place, delays.ns, _FREE if pin is None else pin.schedule,
                    options.time_scale, options.timeout_s, max(options.wrong_limit, _TOLD),
                )  # fmt: skip
            except ValueError as error:
                raise UsageError(
                    f"a pinned run: {error}",
                    expected="an order of all starts and ends that the edges allow (Program.interleaving)",
                    where=self._program.tape.where,
                ) from error
            reads = self._core.reads
        issue, start, end, told, count, chain, finish, late_row, late_ns = found
        wrong = [self._wrong_read(w) for w in told]
        if finish == _LATE:
            raise self._too_slow(late_row, late_ns)
        stuck, notes = self._stuck, self._program.notes
        if finish == _STUCK:
            stuck = tuple(np.flatnonzero(end < 0).tolist())
            notes = (*notes, f"given up: no op ended for {options.timeout_s:g} s")
        return Outcome(
            backend="threads",
            issue_ns=issue,
            start_ns=start,
            end_ns=end,
            wrong=own_first(wrong, max(options.wrong_limit, 1)),
            wrong_count=count,
            own_count=sum(not w.derived for w in wrong) if len(wrong) == count else None,
            chain=chain,
            judged=options.values,
            reads=reads if options.values else 0,
            stuck=stuck,
            never=self._never,
            cycles=self._cycles,
            notes=notes,
        )

    def _too_slow(self, row: int, at_ns: int) -> Unsupported:
        return Unsupported(
            f"given up: no op ended for {self._options.timeout_s:g} s; "
            f"{self._program.labels(row)} would have gone on {at_ns / 1e9:g} s after the begin",
            expected="recorded times that a run in real time can wait for",
            where=self._program.tape.where,
            next_step="scale them down (--time-scale X) or wait longer (--timeout SECONDS)",
        )

    def _wrong_read(self, found: _core.RealWrongRead) -> WrongRead:
        row, access, kind, root, begin, end, at_ns, saw, expected, derived = found
        if root >= 0:
            begin, end = self._layout.recorded(root, begin, end)
        return WrongRead(
            row, access, WRONG_KINDS[kind], root, begin, end, at_ns,
            self._seen(root, saw), self._seen(root, expected), derived,
        )  # fmt: skip

    def _seen(self, root: int, parts: Sequence[tuple[int, int, int, int]]) -> tuple[Seen, ...]:
        return tuple(
            Seen(*self._layout.recorded(root, begin, end), writer, _STATES[state])
            for begin, end, writer, state in parts
        )

    def close(self) -> None:
        """Join the threads and give back the memory."""
        core, self._core = self._core, None
        if core is not None:
            with self._running:
                core.close()
