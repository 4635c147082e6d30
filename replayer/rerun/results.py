"""What a run is given and what it gives back. Standard library only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...formats.sequence.commands import Command
from .protocol import Answer, BlockChange, Decision, Pool, Reaction, State
from .scenario import Input, Scenario
from .violation import Violation

__all__ = ["Call", "Hook", "Limits", "Moment", "Run"]


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run is given up.

    Attributes
    ----------
    max_steps : int
        Steps in all.
    slack_steps : int
        Steps without progress, beside those that would compute everything known once more.
    settle_steps : int
        Steps after the last request has ended, for engines that give units back in the step after.
    stop_at_first : bool
        End with the first call that shows a violation.
    max_calls : int or None
        End before the call with this index, as if it had been made: it is one that does not come back.
    """

    max_steps: int = 20_000
    slack_steps: int = 64
    settle_steps: int = 2
    stop_at_first: bool = True
    max_calls: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """One call to the engine.

    Attributes
    ----------
    given : Input
        What was asked; an ``output`` has the answers that were given.
    reaction : Reaction
        What the engine did.
    step : int
        Number of the step that it made or answered, -1 for other inputs.
    free, used : mapping of str to int
        Free and used units of each pool after it; empty where nobody looked.
    answers : tuple of Answer or None
        Of an ``output``: the answers that the scenario gives; None: `drive` worked them out.
    at : int
        How many commands stood before it.
    """

    given: Input
    reaction: Reaction
    step: int = -1
    free: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    answers: tuple[Answer, ...] | None = None
    at: int = 0


@dataclass(slots=True)
class Run:
    """What came of a scenario.

    Attributes
    ----------
    scenario : Scenario
        What was asked for.
    calls : list of Call
        What was really called, in order, the drain included.
    given : int
        How many of the calls come from the scenario and the hook; the drain made the others.
    commands : list of Command
        The same as a sequence.
    violations : list of Violation
        What is wrong.
    drained : bool
        Everything ended.
    steps : int
        Steps made.
    skipped : Counter of str
        Inputs that did not apply (an abort of a request that never arrived), or that the engine does not
        have, by kind.
    lacking : Counter of str
        Those among them that the engine does not have.
    error : str or None
        Why it ended early, if it did.
    pools : tuple of Pool
        The pools that the scheduler was really built with.
    """

    scenario: Scenario
    calls: list[Call] = field(default_factory=list)
    given: int = 0
    commands: list[Command] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    drained: bool = False
    steps: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    lacking: Counter[str] = field(default_factory=Counter)
    error: str | None = None
    pools: tuple[Pool, ...] = ()

    @property
    def events(self) -> Iterator[tuple[int, Decision | BlockChange]]:
        """Every event with the index of its call."""
        return ((i, event) for i, call in enumerate(self.calls) for event in call.reaction.events)

    def made(self) -> Scenario:
        """Return the scenario as it was really run, what a hook inserted included.

        Steps have no numbers and outputs no answers in it, but where those were given on purpose: it can be
        cut down and runs again alike.
        """
        inputs = (replace(c.given, step=None, answers=c.answers) for c in self.calls[: self.given])
        return self.scenario.but(inputs=tuple(inputs))


@dataclass(frozen=True, slots=True)
class Moment:
    """What a hook sees before each call.

    Attributes
    ----------
    state : State
        What is visible of the scheduler.
    coming : Input or None
        What is called next; None: nothing, everything has ended.
    previous : str
        Kind of the call before.
    in_flight : tuple of int
        Requests with output outstanding, oldest step first.
    flights : int
        Steps with output outstanding.
    depth : int
        How many may be.
    """

    state: State
    coming: Input | None
    previous: str
    in_flight: tuple[int, ...]
    flights: int
    depth: int


Hook = Callable[[Moment], Sequence[Input]]
"""Returns inputs to be called before the one that comes; asked again until it returns none."""
