"""One pattern: a tiny tape whose verdict is known before anything has looked at it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ...formats.delays.resolved import BEFORE_START, Delays
from ...formats.litmus import Litmus, Verdict, parse
from ...formats.tape import Tape

__all__ = ["Pattern"]


@dataclass(frozen=True)
class Pattern:
    """A tape as litmus text, and what is known of it by how it was made.

    Attributes
    ----------
    name : str
        ``FAMILY/SHAPE/VARIANT``; unique.
    text : str
        The tape as litmus text, verdict lines included: ``clean``, or every pair that `check` must find.
    late : str
        Label of the op that shows the fault: if it starts after everything that is not ordered behind it has
        ended, some read sees a wrong version. Empty where the pattern is clean, or is wrong under any delay.
    then : str
        Label of the op that must come before it, and behind all that stands before both; empty if it does so
        by itself.

    Notes
    -----
    The verdict is stated by the generator from the shape that it draws. No checker was asked.
    """

    name: str
    text: str
    late: str = ""
    then: str = ""

    @property
    def family(self) -> str:
        """First part of the name."""
        return self.name.split("/", 1)[0]

    @cached_property
    def litmus(self) -> Litmus:
        """The text, parsed."""
        return parse(self.text, name=self.name)

    @cached_property
    def tape(self) -> Tape:
        """The tape."""
        return self.litmus.tape()

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdict lines, parsed; one ``clean`` where there is nothing to find."""
        return self.litmus.verdicts()

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong with it."""
        return all(v.kind == "clean" for v in self.verdicts)

    @property
    def deadlock(self) -> bool:
        """Whether some op never starts."""
        return any(v.kind == "deadlock" for v in self.verdicts)

    def row(self, label: str) -> int:
        """Return the row of a label."""
        return self.litmus.labels()[label]

    def delays(self, ns: int) -> Delays:
        """Return the delays that show the fault; none where there is none to aim.

        Parameters
        ----------
        ns : int
            How long `late` is held up; `then`, if there is one, half as long. More than twice what a run
            takes without delays.
        """
        held = [(self.late, ns), (self.then, ns // 2)]
        return Delays.of([(self.row(label), BEFORE_START, by) for label, by in held if label])
