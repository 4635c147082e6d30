"""A tape as something that runs: its edges, and how long everything takes.

Times that a tape has not are made up in one way for all backends: work takes 1 us, host code between
ops nothing.
Waits and bookkeeping take no time of their own, whatever was recorded: what they waited for is an edge.
`REPLAY.md` has the rules.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..formats.columns import Columns
from ..formats.delays import Delays
from ..formats.errors import Unsupported, UsageError
from ..formats.tape import Tape
from ..formats.window import window, windows
from . import _core
from .backends.protocol import Pin
from .columns import core_tape

__all__ = ["Program", "checked", "window_of_steps"]


class Program:
    """A tape, ready to be loaded by a backend.

    Attributes
    ----------
    tape : Tape
        What it was made from: a whole tape or a window of one.
    core : _core.Tape
        Its columns and edges in the native core.
    rows : int
        Rows of `ops`.
    op_ids : numpy.ndarray of int64, shape (rows,)
        Op id of each row.
    queue, issuer : numpy.ndarray of int32, shape (rows,)
        Queue that executes a row and the host thread that issued it; -1: not seen.
    gap_ns : numpy.ndarray of int64, shape (rows,)
        Host code between the thread's item before and the issue of this row; for a row without an issuer its
        issue time since the first of the program.
    duration_ns : numpy.ndarray of int64, shape (rows,)
        What it takes once it has started; an op with children takes what those take instead.
    notes : tuple of str
        What a replay of it does not say, in words: the work outside of a window, waits that were not seen.
    """

    def __init__(self, tape: Tape, core: _core.Tape) -> None:
        self.tape = tape
        self.core = core
        self.rows: int = core.rows
        ops = Columns(tape.columns("ops", ("op", "queue", "issuer")))
        self.op_ids: npt.NDArray[np.int64] = ops.ints("op")
        self.queue: npt.NDArray[np.int32] = ops.ints("queue").astype(np.int32)
        self.issuer: npt.NDArray[np.int32] = ops.ints("issuer").astype(np.int32)
        self.gap_ns, self.duration_ns = _core.program_times(core)
        self.notes = _notes(tape, core)

    @classmethod
    def from_tape(cls, tape: Tape) -> Program:
        """Return the program of a tape or of a window (`formats.window`, `window_of_steps`).

        Raises
        ------
        InvalidTape
            If a reference of the tape points nowhere or a device names an unknown profile.
        CorruptTape
            If a table cannot be read.
        """
        return cls(tape, core_tape(tape))

    @cached_property
    def _labels(self) -> list[str | None]:
        column = self.tape.columns("ops", ("label",)).column("label")
        if column.null_count == len(column):
            return []
        labels: list[str | None] = column.to_pylist()
        return labels

    def labels(self, row: int) -> str:
        """Return how people name a row: the label of a litmus file, else ``#`` and the op id."""
        label = self._labels[row] if self._labels else None
        return f"#{int(self.op_ids[row])}" if label is None else label

    @cached_property
    def _timing(self) -> _core.Virtual:
        return _core.Virtual(self.core, self.gap_ns, self.duration_ns, False)

    def interleaving(self, delays: Delays) -> Pin:
        """Return the order of events of a virtual run, for a backend that can enforce it.

        Raises
        ------
        UsageError
            If a delay names a row that the program has not.
        Unsupported
            If some ops never start: no run has all events.
        """
        checked(self, delays)
        stuck = self.core.stuck()[0]
        if stuck:
            raise Unsupported(
                f"{len(stuck)} ops never start",
                expected="a tape without a deadlock: an order of all events",
                where=self.tape.where,
            )
        return Pin(self._timing.interleaving(delays.row, delays.place, delays.ns))


def checked(program: Program, delays: Delays) -> None:
    """Refuse delays that do not belong to a program."""
    row, place, ns = delays.row, delays.place, delays.ns
    if not len(row):
        return
    found = ""
    if int(row.min()) < 0 or int(row.max()) >= program.rows:
        found = f"a delay of row {int(row.max()) if int(row.min()) >= 0 else int(row.min())}"
    elif int(place.min()) < 0 or int(place.max()) > 2 or int(ns.min()) < 0:
        found = "a delay at an unknown place, or of negative time"
    elif (np.diff(row.astype(np.int64) * 3 + place) <= 0).any():
        found = "delays that are not sorted by row and place, or two of one place"
    if found:
        raise UsageError(
            found,
            expected=f"rows below {program.rows}, sorted (Delays.of)",
            where=program.tape.where,
            next_step="match the plan against this tape",
        )


def _notes(tape: Tape, core: _core.Tape) -> tuple[str, ...]:
    notes = [f"a {note}: what the ops outside of it do is not replayed" for note in windows(tape.manifest)]
    unresolved = len(core.unresolved())
    if unresolved:
        waits = "1 wait" if unresolved == 1 else f"{unresolved} waits"
        notes.append(f"{waits} without a known record: here they wait for nothing")
    return tuple(notes)


def window_of_steps(tape: Tape, begin: int, end: int) -> Tape:
    """Return the ops of the steps ``begin <= step < end`` as a tape of its own.

    It is the window from the first op of these steps to the last, with all that stands between them.

    Raises
    ------
    UsageError
        If the tape does not know its steps, or has none of these.
    """
    ops = Columns(tape.columns("ops", ("op", "step")))
    step, known = ops.ints("step"), ops.valid("step")
    if not known.any():
        raise UsageError(
            "a range of steps, on a tape whose ops have no step",
            expected="a tape whose recorder saw the steps of the engine",
            where=tape.where,
            next_step="choose the ops by id, --ops FIRST:LAST, or record again with `tapedelay record --tap`",
        )
    rows = np.flatnonzero(known & (step >= begin) & (step < end))
    if not rows.size:
        there = f"{int(step[known].min())}:{int(step[known].max()) + 1}"
        raise UsageError(
            f"no op of steps {begin}:{end if end < 1 << 62 else ''}",
            expected=f"steps of {there}",
            where=tape.where,
            next_step=f"say --steps {there}, or a part of it",
        )
    op = ops.ints("op")
    return window(tape, int(op[rows[0]]), int(op[rows[-1]]) + 1)
