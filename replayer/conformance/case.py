"""What the kit measures a backend by: cases, results, and the report over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from ...formats.delays.resolved import PLACES, Delays
from ...formats.litmus import Litmus, parse
from ...formats.tape import Tape
from .. import kit_report
from ..backends.protocol import Backend, Capabilities
from ..outcome import Outcome
from ..program import Program

__all__ = ["EXPECTATIONS", "LONG", "Case", "Delay", "Report", "Result", "Run"]

EXPECTATIONS = ("clean", "wrong", "deadlock", "any")
"""What a run has to give: nothing wrong; at least one wrong read; ops that never start; whatever it gives."""

LONG = "{long}"
"""Stands in the text of a case for the time of an op that takes long: it depends on the backend."""

Delay = tuple[str, str, float]
"""Label of a row, place, and length in steps (see `runner.step_ns`)."""


@dataclass(frozen=True)
class Run:
    """A run that a case's own check looks at.

    Attributes
    ----------
    program : Program
        What ran.
    outcome : Outcome
        What it gave.
    plain : Outcome
        What a run without delays gave.
    capabilities : Capabilities
        Of the backend.
    step_ns : int
        Length of a step.
    rows : dict
        Row of each label.
    """

    program: Program
    outcome: Outcome
    plain: Outcome
    capabilities: Capabilities
    step_ns: int
    rows: dict[str, int]

    @property
    def slack_ns(self) -> int:
        """What times may be off: nothing in virtual time."""
        return self.capabilities.resolution_ns if self.capabilities.real_time else 0


@dataclass(frozen=True)
class Case:
    """One promise of the protocol, as a tape that shows whether it is kept.

    Attributes
    ----------
    name : str
        ``GROUP/NAME``; unique.
    promise : str
        What the backend promises, in words; printed where it does not keep it.
    text : str
        The tape as litmus text.
    variant : str
        ``buggy`` or ``fixed``.
    expect : str
        One of `EXPECTATIONS`.
    delays : tuple of Delay
        What the run is delayed by.
    needs : frozenset of str
        Fields of `Capabilities` that have to be true; without them the case is skipped.
    pin : bool
        The run is pinned to the order that the delays give in virtual time; it runs ten times.
    repeat : int
        How often it runs on one loaded program.
    check : callable or None
        Looks at each run; returns what is wrong with it, in words, or an empty string.
    trial : callable or None
        Does all of the case itself, in place of runs.
    """

    name: str
    promise: str
    text: str
    variant: str = "buggy"
    expect: str = "clean"
    delays: tuple[Delay, ...] = ()
    needs: frozenset[str] = frozenset()
    pin: bool = False
    repeat: int = 1
    check: Callable[[Run], str] | None = None
    trial: Callable[[Backend, Case], str] | None = None

    def litmus_in(self, step_ns: int) -> Litmus:
        """Return the text, parsed; ops that take long take four steps."""
        return parse(self.text.replace(LONG, str(4 * step_ns)), name=self.name)

    @cached_property
    def litmus(self) -> Litmus:
        """The text, parsed, with short steps."""
        return self.litmus_in(1_000)

    @cached_property
    def tape(self) -> Tape:
        """The tape of the variant."""
        return self.litmus.tape(self.variant)

    @cached_property
    def rows(self) -> dict[str, int]:
        """Row of each label."""
        return self.litmus.labels(self.variant)

    def delays_in(self, step_ns: int) -> Delays:
        """Return the delays, a step being `step_ns` long."""
        return Delays.of(
            (self.rows[label], PLACES.index(place), round(steps * step_ns))
            for label, place, steps in self.delays
        )

    def lacks(self, capabilities: Capabilities) -> tuple[str, ...]:
        """Return what a backend would need for it and says that it cannot."""
        needed = set(self.needs) | {place for _, place, _ in self.delays}
        if self.pin:
            needed.add("pin")
        return tuple(sorted(n for n in needed if not getattr(capabilities, n)))


Result = kit_report.Result[Case]
"""What became of a case."""


class Report(kit_report.KitReport[Case]):
    """The results of a backend."""

    SUBJECT = "backend"
    SCHEMA = "tapedelay-conformance-1"

    @property
    def backend(self) -> str:
        """Its name."""
        return self.subject
