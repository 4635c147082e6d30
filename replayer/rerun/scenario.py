"""A scenario: what an engine's scheduler is built with, and all that reaches it, in order.

Standard library only: scenarios are run, and made, in the engine's own Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from .protocol import Answer, Pool, Submission
from .tokens import Tokens

__all__ = ["Ending", "Input", "Scenario"]


@dataclass(frozen=True, slots=True)
class Input:
    """One input.

    Attributes
    ----------
    kind : str
        One of `INPUT_KINDS` (table `inputs`).
    request : int or None
        The request, of an input about one.
    requests : tuple of int
        Of an ``abort``: the requests, in the engine's order; `request` may be given in place of one.
    tokens : int or None
        Of a ``next_chunk``: how many tokens come.
    value : int or None
        Of a ``priority``: the new one.
    word : str or None
        Of a ``pause`` or ``cache_reset``: its mode.
    decode_only : bool
        The step may only decode.
    last : bool
        Of a ``next_chunk``: no other follows.
    submission : Submission or None
        Of a ``submit``: the request.
    arrive_ns : int or None
        Of a ``next_chunk``: the arrival that its request is sorted by from then on.
    step : int or None
        The number of the step that a ``step`` makes; of an ``output`` the step that it answers, None: the
        oldest in flight.
    answers : tuple of Answer or None
        Of an ``output``: what the model gave; None: what a model gives as a rule.
    """

    kind: str
    request: int | None = None
    requests: tuple[int, ...] = ()
    tokens: int | None = None
    value: int | None = None
    word: str | None = None
    decode_only: bool = False
    last: bool = False
    submission: Submission | None = None
    arrive_ns: int | None = None
    step: int | None = None
    answers: tuple[Answer, ...] | None = None

    def about(self) -> tuple[int, ...]:
        """Return the requests that it is about."""
        if self.submission is not None:
            return (self.submission.request,)
        return self.requests or (() if self.request is None else (self.request,))

    def text(self) -> str:
        """Return it as one line, as a reduced case writes it after ``>``."""
        names = " ".join(f"R{r}" for r in self.about())
        words = [_WORDS.get(self.kind, self.kind), names] if names else [_WORDS.get(self.kind, self.kind)]
        s = self.submission
        if s is not None:
            words.append(f"prompt={s.prompt_tokens}")
            words += [f"max={s.max_tokens}"] * (s.max_tokens is not None)
            words += [f"priority={s.priority}"] * (s.priority is not None)
            words += [f"reserve={s.reserve_tokens}"] * (s.reserve_tokens is not None)
            words += [f"rank={s.id_rank}"] * (s.id_rank is not None)
            words += s.flags
        words += [f"tokens={self.tokens}"] * (self.tokens is not None)
        words += [str(self.value)] * (self.value is not None)
        words += [self.word] if self.word else []
        words += ["decode_only"] * self.decode_only + ["last"] * self.last
        return " ".join(words)


_WORDS = {"set_schedulable": "schedulable", "next_chunk": "chunk", "cache_reset": "reset"}


@dataclass(frozen=True, slots=True)
class Ending:
    """A request that the model ended: with its `tokens`-th token, for this reason (``stop``)."""

    request: int
    tokens: int
    word: str


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a scheduler is built with and what reaches it; after the last input it is drained.

    Attributes
    ----------
    engine : str
        Name of the driver.
    engine_version : str or None
        Version of the engine that was recorded, None: any.
    config : mapping of str to scalar
        What the scheduler is built with (table `schedulers`).
    pools : tuple of Pool
        Its pools of units, as recorded; a driver may have others under another configuration.
    inputs : tuple of Input
        In order.
    prefixes : tuple of (int, int, int, int)
        Request, an earlier request, first position, one past the last: equal tokens.
    endings : tuple of Ending
        Where the model ended a request on its own, for outputs whose answers are not given.
    """

    engine: str
    engine_version: str | None
    config: Mapping[str, Any]
    pools: tuple[Pool, ...]
    inputs: tuple[Input, ...]
    prefixes: tuple[tuple[int, int, int, int], ...] = ()
    endings: tuple[Ending, ...] = field(default=())

    def submissions(self) -> tuple[Submission, ...]:
        """Return the requests, in the order in which they arrive."""
        return tuple(i.submission for i in self.inputs if i.submission is not None)

    def demands(self, more: Mapping[int, int] | None = None) -> tuple[Submission, ...]:
        """Return the requests as long as they get in the end: with their chunks, and what each turn gives.

        Parameters
        ----------
        more : mapping of int to int, optional
            Tokens beside, by request.
        """
        grown = Counter[int](more or {})
        limits = {s.request: s.max_tokens or 0 for s in self.submissions()}
        for given in self.inputs:
            if given.kind == "next_chunk" and given.request in limits:
                limit = limits[given.request] if given.value is None else given.value
                grown[given.request] += (given.tokens or 0) + limit
        return tuple(
            replace(s, prompt_tokens=s.prompt_tokens + grown[s.request]) if grown[s.request] else s
            for s in self.submissions()
        )

    def tokens(self) -> Tokens:
        """Return its source of tokens."""
        return Tokens(self.prefixes)

    def but(self, **changes: Any) -> Scenario:
        """Return it with other values of some attributes."""
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON can have it, what has its default left out."""
        data = _bare(self)
        data["config"] = dict(self.config)
        data["pools"] = [_bare(p) for p in self.pools]
        data["inputs"] = [_bare_input(i) for i in self.inputs]
        data["endings"] = [_bare(e) for e in self.endings]
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Scenario:
        """Return the scenario of `as_dict`.

        Raises
        ------
        TypeError, KeyError, ValueError
            It is none.
        """
        return cls(
            engine=data["engine"],
            engine_version=data.get("engine_version"),
            config=dict(data["config"]),
            pools=tuple(Pool(**p) for p in data["pools"]),
            inputs=tuple(_input(i) for i in data["inputs"]),
            prefixes=tuple((int(r), int(of), int(b), int(e)) for r, of, b, e in data.get("prefixes", ())),
            endings=tuple(Ending(**e) for e in data.get("endings", ())),
        )


def _bare(value: Any) -> dict[str, Any]:
    """Return the attributes of a dataclass that have not their default."""
    shown = {f.name: getattr(value, f.name) for f in fields(value)}
    return {f.name: shown[f.name] for f in fields(value) if shown[f.name] != f.default}


def _bare_input(value: Input) -> dict[str, Any]:
    data = _bare(value)
    if value.submission is not None:
        data["submission"] = _bare(value.submission)
    if value.answers is not None:
        data["answers"] = [_bare(a) for a in value.answers]
    return data


def _input(data: Mapping[str, Any]) -> Input:
    given = dict(data)
    if given.get("submission") is not None:
        submission = dict(given["submission"])
        submission["flags"] = tuple(submission.get("flags", ()))
        given["submission"] = Submission(**submission)
    if given.get("answers") is not None:
        given["answers"] = tuple(Answer(**a) for a in given["answers"])
    given["requests"] = tuple(given.get("requests", ()))
    return Input(**given)
