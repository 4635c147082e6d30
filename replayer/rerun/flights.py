"""Steps in flight, and what the model gives for them. Standard library only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .protocol import Answer, Decision, Reaction, State
from .scenario import Ending

__all__ = ["Flight", "Flights"]


@dataclass(slots=True)
class Flight:
    """A step whose output is outstanding.

    Attributes
    ----------
    key : int
        The number that the scenario gives it.
    step : int
        Its number in this run.
    handle : object
        What the engine wants back with its output.
    scheduled : dict of int to Decision
        Its requests.
    answers : tuple of Answer
        What a model gives for it as a rule.
    """

    key: int
    step: int
    handle: Any
    scheduled: dict[int, Decision]
    answers: tuple[Answer, ...]


class Flights:
    """The steps in flight, oldest first.

    Parameters
    ----------
    depth : int
        How many there may be.
    endings : iterable of Ending
        Where the model ends a request.
    """

    def __init__(self, depth: int, endings: Sequence[Ending]) -> None:
        self.depth = depth
        self._endings = {e.request: e for e in endings}
        self._steps: list[Flight] = []
        self._emitted: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def full(self) -> bool:
        """Whether an output has to come before the next step."""
        return len(self._steps) >= self.depth

    @property
    def outstanding(self) -> int:
        """How many of them scheduled something."""
        return sum(1 for f in self._steps if f.scheduled)

    def requests(self) -> Iterator[int]:
        """Yield the requests of all, oldest step first."""
        return (r for f in self._steps for r in f.scheduled)

    def launch(self, key: int, step: int, reaction: Reaction, before: State) -> None:
        """Add a step that was just scheduled; `before`: what was visible before it."""
        scheduled = reaction.scheduled()
        answers = reaction.answers
        if answers is None:
            answers = self._expected(scheduled, before)
        rows = {d.request: d for d in scheduled}
        self._steps.append(Flight(key, step, reaction.handle, rows, answers))

    def land(self, flight: Flight) -> None:
        """Take a step out: its output is being given."""
        self._steps.remove(flight)

    def find(self, key: int | None) -> Flight | None:
        """Return the step that a scenario numbers so; None: the oldest."""
        if key is None:
            return self._steps[0] if self._steps else None
        return next((f for f in self._steps if f.key == key), None)

    def shown(self, emitted: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Note what users have seen: endings count it."""
        for request, tokens in emitted:
            self._emitted[request] += len(tokens)

    def placed(self, flight: Flight, given: Sequence[Answer] | None) -> tuple[Answer, ...]:
        """Return the answers for a step, each with the position of its first token; None: those of a rule.

        An answer of the rule has its end, too, where the request has one.
        """
        answers = flight.answers if given is None else given
        return tuple(self._placed(a, flight.scheduled, given is None) for a in answers)

    def _expected(self, scheduled: Sequence[Decision], before: State) -> tuple[Answer, ...]:
        """Return what a model gives: a token for each request whose known tokens are all computed then."""
        made = []
        outstanding = Counter[int]()
        for flight in self._steps:
            for answer in flight.answers:
                outstanding[answer.request] += answer.tokens
        for decision in scheduled:
            request = before.requests.get(decision.request)
            if request is None or decision.tokens is None or decision.computed_tokens is None:
                continue
            known = request.known_tokens + outstanding[decision.request]
            if decision.computed_tokens + decision.tokens >= known:
                made.append(Answer(decision.request, 1))
        return tuple(made)

    def _placed(self, answer: Answer, scheduled: Mapping[int, Decision], ours: bool) -> Answer:
        """Return an answer with the position of its first token, and with its end where it has one."""
        decision = scheduled.get(answer.request)
        position = answer.position
        if position is None and decision is not None and decision.computed_tokens is not None:
            many = 1 if decision.kind == "decode" else decision.tokens or 0
            position = decision.computed_tokens + many
        word = answer.word
        ending = self._endings.get(answer.request)
        if ours and word is None and ending is not None and answer.tokens:
            shown = self._emitted[answer.request] + answer.tokens
            word = ending.word if shown >= ending.tokens else None
        if position == answer.position and word == answer.word:
            return answer
        return Answer(answer.request, answer.tokens, word, position)
