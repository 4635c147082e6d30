"""Runs of an adapter of which every call is kept, with the state before and after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ..drive import Hook, Limits, Run, run
from ..protocol import Decision, Driver, Engine, Pool, Reaction, State, Submission, TokenSource, Unsupported
from ..scenario import Input, Scenario
from ..tokens import Tokens
from .case import Skip, Subject

__all__ = ["Seen", "Trace", "submit", "trace"]

_CALLS = (
    "submit", "abort", "set_schedulable", "next_chunk", "pause", "resume", "cache_reset", "priority", "step",
    "output",
)  # fmt: skip
_NEEDED = ("submit", "abort", "step", "output")


@dataclass(frozen=True)
class Seen:
    """One call.

    Attributes
    ----------
    kind : str
        Name of the method.
    args : tuple
        What it was called with.
    before, after : State
        What was visible.
    reaction : Reaction
        What it returned.
    """

    kind: str
    args: tuple[Any, ...]
    before: State
    reaction: Reaction
    after: State

    def decisions(self, *kinds: str) -> list[Decision]:
        """Return its decisions of some kinds."""
        return [e for e in self.reaction.events if isinstance(e, Decision) and e.kind in kinds]


@dataclass
class Trace:
    """A whole run.

    Attributes
    ----------
    built : State
        What was visible of the scheduler just built.
    calls : list of Seen
        Every call, in order.
    run : Run
        What `drive` says of it.
    """

    built: State
    calls: list[Seen]
    run: Run

    def rows(self, request: int) -> list[Decision]:
        """Return the decisions that schedule a request, in order."""
        return [d for c in self.calls for d in c.reaction.scheduled() if d.request == request]

    def emitted(self, request: int) -> list[int]:
        """Return the tokens that became visible of a request."""
        return [t for c in self.calls for r, tokens in c.reaction.emitted if r == request for t in tokens]

    def count(self, kind: str, request: int) -> int:
        """Return how many decisions of a kind a request has."""
        return sum(d.request == request for c in self.calls for d in c.decisions(kind))

    def wrong(self) -> str:
        """Return why the run did not come to its end, or an empty string."""
        return "" if self.run.drained else f"the run does not end: {self.run.error}"


def submit(
    request: int, prompt_tokens: int, max_tokens: int, flags: Sequence[str] = (), **more: Any
) -> Input:
    """Return the arrival of a request."""
    return Input(
        "submit", submission=Submission(request, prompt_tokens, max_tokens, flags=tuple(flags), **more)
    )


def trace(
    subject: Subject,
    inputs: Iterable[Input],
    *,
    config: Mapping[str, Any] | None = None,
    prefixes: tuple[tuple[int, int, int, int], ...] = (),
    hook: Hook | None = None,
    check: bool = False,
    **more: Any,
) -> Trace:
    """Run inputs, drain the scheduler, and return every call.

    Raises
    ------
    Skip
        The engine does not have one of the inputs.
    Unsupported
        It refuses one that every engine has.
    """
    given = tuple(inputs)
    lacking = {i.kind for i in given} - subject.driver.inputs
    if lacking:
        raise Skip(f"the engine has no {', '.join(sorted(lacking))}")
    driver = _Watched(subject.driver)
    scenario = Scenario(
        subject.driver.name,
        None,
        subject.config if config is None else config,
        subject.pools or _pools(subject, config),
        given,
        prefixes,
        **more,
    )
    done = run(scenario, driver, check=check, hook=hook, limits=Limits(max_steps=2_000))
    for kind, words in driver.refused:
        if kind in _NEEDED:
            raise Unsupported(f"{kind}: {words}")
        raise Skip(f"{kind} is refused: {words}")
    assert driver.built is not None
    return Trace(driver.built, driver.calls, done)


def _pools(subject: Subject, config: Mapping[str, Any] | None) -> tuple[Pool, ...]:
    """Return the pools of a scheduler just built; what a walk of the free list leaves out is reserved."""
    engine = subject.driver.build(subject.config if config is None else config, Tokens())
    try:
        free = {name: (p.free, p.free_units) for name, p in engine.state().pools.items()}
    finally:
        engine.close()
    reserved = {name: min(units) if units else 0 for name, (_, units) in free.items()}
    return tuple(Pool(name, count + reserved[name], reserved[name]) for name, (count, _) in free.items())


class _Watched:
    """A driver that builds engines which keep every call."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.name, self.inputs, self.shrinks = driver.name, driver.inputs, driver.shrinks
        self.exempt: frozenset[str] = getattr(driver, "exempt", frozenset())
        self.patience: int = getattr(driver, "patience", 3)
        self.calls: list[Seen] = []
        self.refused: list[tuple[str, str]] = []
        self.built: State | None = None
        patience_of = getattr(driver, "patience_of", None)
        if patience_of is not None:
            self.patience_of = patience_of

    def version(self) -> str:
        return self._driver.version()

    def depth(self, config: Mapping[str, Any]) -> int:
        return self._driver.depth(config)

    def smaller(
        self, config: Mapping[str, Any], key: str, submissions: Sequence[Submission]
    ) -> list[Mapping[str, Any]]:
        return self._driver.smaller(config, key, submissions)

    def faults(self) -> Mapping[str, Callable[[], AbstractContextManager[None]]]:
        return self._driver.faults()

    def build(self, config: Mapping[str, Any], tokens: TokenSource) -> Engine:
        engine = self._driver.build(config, tokens)
        self.built = engine.state()
        return _Engine(engine, self)


class _Engine:
    """An engine that keeps every call; everything else is that of the engine below."""

    def __init__(self, engine: Engine, to: _Watched) -> None:
        self._engine, self._to = engine, to

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._engine, name)
        if name not in _CALLS:
            return method

        def call(*args: Any) -> Reaction:
            before = self._engine.state()
            try:
                reaction: Reaction = method(*args)
            except Unsupported as e:
                self._to.refused.append((name, str(e)))
                raise
            self._to.calls.append(Seen(name, args, before, reaction, self._engine.state()))
            return reaction

        return call
