"""A delay plan as data; ``formats/DELAYS.md`` specifies the notation."""

from __future__ import annotations

from dataclasses import dataclass, field

from .globs import Glob
from .resolved import BEFORE_START

__all__ = [
    "ANY_KIND",
    "EVERY",
    "LAST",
    "MAX_ANCHORS",
    "MAX_BYTES",
    "MAX_LINE",
    "MAX_LINES",
    "MAX_NS",
    "MAX_NTH",
    "MAX_SEED",
    "MAX_TOTAL_NS",
    "VERSION",
    "Line",
    "Pattern",
    "Plan",
]

VERSION = 1
"""Version of the notation: the number in a file's first line."""

MAX_BYTES = 32 << 20
MAX_LINES = 1_000_000
MAX_ANCHORS = 1_000
MAX_LINE = 4_096
"""Bounds on what is read; `MAX_ANCHORS` counts what patterns look for, whichever of the ops they mean."""

MAX_NS = 3_600 * 10**9
"""The longest delay: one hour."""

MAX_TOTAL_NS = 10**18
"""What the delays of one run may add up to."""

MAX_NTH = 10**9
MAX_SEED = (1 << 64) - 1

EVERY = 0
LAST = -1
"""Values of `Pattern.which` beside 1 (first), 2, 3, ..."""

ANY_KIND = "op"
"""The kind that stands for all of them."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """Ops by what they are, which finds them again in another run.

    Attributes
    ----------
    which : int
        The n-th of those that match, in issue order, from 1; or `EVERY` or `LAST`.
    kind : str
        Op kind, or `ANY_KIND`.
    name : Glob or None
        Name of the op; label of a litmus row that has no name.
    touching : Glob or None
        Name of a tensor that it accesses; of a buffer, where the access names no tensor.
    on : Glob or None
        Its queue, or the device of that.
    further : int
        So many ops further on the same queue.
    """

    which: int = EVERY
    kind: str = ANY_KIND
    name: Glob | None = None
    touching: Glob | None = None
    on: Glob | None = None
    further: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """One delay, or one rule that delays many ops.

    Attributes
    ----------
    anchor : int or Pattern
        Op id in one tape, or what to look for.
    ns : int
        Added time; with a seed, the most that is added.
    place : int
        Index into `PLACES`.
    seed : int or None
        Each op that matches is delayed by its own amount, see `random_ns`.
    note : str
        Comment behind it.
    number : int
        Line of the file; 0 where it comes from none.
    """

    anchor: int | Pattern
    ns: int
    place: int = BEFORE_START
    seed: int | None = None
    note: str = field(default="", compare=False)
    number: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Plan:
    """Delays as written.

    Attributes
    ----------
    lines : tuple of Line
        Delays; those that meet at one place of one op add up.
    notes : tuple of str
        Comment lines at the top.
    name : str
        Where it comes from, for messages.
    """

    lines: tuple[Line, ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)
    name: str = field(default="plan", compare=False)

    def __add__(self, other: Plan) -> Plan:
        """Return both, one after the other."""
        return Plan(self.lines + other.lines, self.notes + other.notes, self.name)
