"""Adapters that break one promise each, made of the toy's: what the conformance kit has to notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from tapedelay.replayer.rerun.protocol import (
    Answer,
    BlockChange,
    Decision,
    PoolState,
    Reaction,
    RequestState,
    State,
    Submission,
    TokenSource,
)

from .toy.driver import ToyDriver, ToyEngine

__all__ = ["BROKEN", "CONFIG", "Altered"]

CONFIG = {"kv_units": 65, "unit_tokens": 4, "token_budget": 16, "max_running": 4, "depth": 2}
"""Has what every case needs, together with `sharing` and `priority`."""

Event = Decision | BlockChange


class _Engine(ToyEngine):
    """The toy with something changed."""

    def __init__(self, driver: Altered, config: Mapping[str, Any], tokens: TokenSource) -> None:
        super().__init__(config, tokens)
        self.driver = driver
        self.closed = False
        self.called = 0
        driver.engines.append(self)

    def _reaction(self, handle: Any = None) -> Reaction:
        return self.driver.reaction(super()._reaction(handle), self)

    def state(self) -> State:
        return self.driver.state(super().state(), self)

    def close(self) -> None:
        self.driver.close(self)
        self.closed = True


@dataclass
class Altered(ToyDriver):
    """The toy's driver with something changed.

    Attributes
    ----------
    reaction, state : callable
        Change what a call returns, and what is visible.
    close : callable
        Is told that an engine closes.
    calls : dict
        Stands for methods of the engine, each is given the engine first.
    """

    reaction: Callable[[Reaction, _Engine], Reaction] = lambda r, e: r
    state: Callable[[State, _Engine], State] = lambda s, e: s
    close: Callable[[_Engine], None] = lambda e: None
    calls: dict[str, Callable[..., Any]] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    engines: list[_Engine] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name, value in self.attributes.items():
            setattr(self, name, value)

    def build(self, config: Mapping[str, Any], tokens: TokenSource) -> ToyEngine:
        made = _Engine(self, config, tokens)
        for name, call in self.calls.items():
            setattr(made, name, call.__get__(made))
        return made


def _events(change: Callable[[Event], Event | None]) -> Altered:
    def reaction(given: Reaction, engine: _Engine) -> Reaction:
        changed = (change(e) for e in given.events)
        return replace(given, events=tuple(e for e in changed if e is not None))

    return Altered(reaction=reaction)


def _requests(change: Callable[[RequestState], RequestState]) -> Altered:
    def state(given: State, engine: _Engine) -> State:
        return replace(given, requests={n: change(r) for n, r in given.requests.items()})

    return Altered(state=state)


def _pools(change: Callable[[PoolState], PoolState]) -> Altered:
    def state(given: State, engine: _Engine) -> State:
        return replace(given, pools={n: change(p) for n, p in given.pools.items()})

    return Altered(state=state)


def _decided(kind: str, change: Callable[[Decision], Event | None]) -> Altered:
    return _events(lambda e: change(e) if isinstance(e, Decision) and e.kind == kind else e)


def _emitted(change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Altered:
    return Altered(
        reaction=lambda r, e: replace(r, emitted=tuple((n, change(tokens)) for n, tokens in r.emitted))
    )


def _ignoring(call: str) -> Altered:
    """An adapter that takes an input and does nothing."""
    return Altered(calls={call: lambda self, *args: Reaction()})


# --- what cannot be said in a line ---

_versions = count()


def _shared_state(state: State, engine: _Engine) -> State:
    other = next((e for e in engine.driver.engines if e is not engine and not e.closed), None)
    return state if other is None else ToyEngine.state(other)


def _changing(reaction: Reaction, engine: _Engine) -> Reaction:
    turn = len(engine.driver.engines) % 3  # a kit may build one to look at it, and one to run
    return replace(reaction, events=tuple(reversed(reaction.events))) if turn else reaction


def _close_once(engine: _Engine) -> None:
    if engine.closed:
        raise RuntimeError("closed already")


@contextmanager
def _stays() -> Iterator[None]:
    _Staying.planted = True
    yield


class _Staying(Altered):
    planted = False

    def build(self, config: Mapping[str, Any], tokens: TokenSource) -> ToyEngine:
        return super().build({**config, "token_budget": 9} if self.planted else config, tokens)

    def faults(self) -> Mapping[str, Callable[[], AbstractContextManager[None]]]:
        type(self).planted = False
        return {"stays": _stays}


class _Growing(Altered):
    def smaller(
        self, config: Mapping[str, Any], key: str, submissions: Sequence[Submission]
    ) -> list[Mapping[str, Any]]:
        return [{**config, key: int(config.get(key, 0)) + 1}]


class _TooSmall(Altered):
    def smaller(
        self, config: Mapping[str, Any], key: str, submissions: Sequence[Submission]
    ) -> list[Mapping[str, Any]]:
        return [{**config, key: 3}] if key == "kv_units" else []


class _DeepSaid(Altered):
    def depth(self, config: Mapping[str, Any]) -> int:
        return super().depth(config) + next(_versions)


def _out_of_place(self: _Engine, handle: Any, answers: Sequence[Answer]) -> Reaction:
    late = len(self.flying) > 1
    moved = [replace(a, position=(a.position or 0) + 1) if late else a for a in answers]
    return ToyEngine.output(self, handle, moved)


def _own_belief(self: _Engine, handle: Any, answers: Sequence[Answer]) -> Reaction:
    known = {n: len(r.tokens) for n, r in self.scheduler.requests.items()}
    return ToyEngine.output(self, handle, [replace(a, position=known.get(a.request)) for a in answers])


def _no_stop(self: _Engine, handle: Any, answers: Sequence[Answer]) -> Reaction:
    return ToyEngine.output(self, handle, [replace(a, word=None) for a in answers])


def _abort_first_only(self: _Engine, requests: Sequence[int]) -> Reaction:
    return ToyEngine.abort(self, requests[:1])


def _abort_known_only(self: _Engine, requests: Sequence[int]) -> Reaction:
    for number in requests:
        self.scheduler.requests[number]  # an adapter that looks it up
    return ToyEngine.abort(self, requests)


def _abort_later(self: _Engine, requests: Sequence[int]) -> Reaction:
    """Aborts are taken as hints: what is running goes on."""
    waiting = [n for n in requests if (r := self.scheduler.requests.get(n)) and r.status != "running"]
    return ToyEngine.abort(self, waiting)


def _abort_not_in_chunk(self: _Engine, requests: Sequence[int]) -> Reaction:
    busy = [n for n in requests if (r := self.scheduler.requests.get(n)) and r.status != "chunk"]
    return ToyEngine.abort(self, busy)


def _always_prompts(self: _Engine, decode_only: bool = False) -> Reaction:
    return ToyEngine.step(self)


def _unblocked(self: _Engine, submission: Submission) -> Reaction:
    return ToyEngine.submit(self, replace(submission, flags=()))


def _upside_down(self: _Engine, request: int, value: int) -> Reaction:
    return ToyEngine.priority(self, request, -value + 2)


def _all_equal(self: _Engine, submission: Submission) -> Reaction:
    """A source of tokens that is not asked: all requests begin alike."""
    source, self.tokens = self.tokens, lambda request, position: 1 << 21 | position
    reaction = ToyEngine.submit(self, submission)
    self.tokens = source
    return reaction


def _paused_new_only(reaction: State, engine: _Engine) -> State:
    return replace(reaction, paused=False)


def _counting(state: State, engine: _Engine) -> State:
    engine.called += 1
    return replace(state, counters={"calls": engine.called})


def _looked_at(state: State, engine: _Engine) -> State:
    """Looking at it makes it forget what it could share."""
    engine.called += 1
    return replace(state, unfinished=state.unfinished + (engine.called > 40))


def _left_over(state: State, engine: _Engine) -> State:
    ended = engine.called and not state.requests
    engine.called += bool(state.requests)
    pool = state.pools["kv"]
    return replace(state, pools={"kv": replace(pool, free=pool.free - 1)}) if ended else state


def _leaks_one(self: _Engine, requests: Sequence[int]) -> Reaction:
    for number in requests:
        request = self.scheduler.requests.get(number)
        if request is not None and request.kv:
            request.kv = request.kv[1:]
    return ToyEngine.abort(self, requests)


def _judged_differs(state: State, engine: _Engine) -> State:
    engine.called += 1
    engine.scheduler.token_budget = 3 + engine.called % 5
    return state


def _preempted_gone(self: _Engine, decode_only: bool = False) -> Reaction:
    reaction = ToyEngine.step(self, decode_only)
    lost = [e.request for e in reaction.events if isinstance(e, Decision) and e.kind == "preempt"]
    self.scheduler.waiting[:] = [r for r in self.scheduler.waiting if r.number not in lost]
    return reaction


def _units_twice(reaction: Reaction, engine: _Engine) -> Reaction:
    shared = [e for e in reaction.events if isinstance(e, BlockChange) and e.action == "share"]
    return replace(reaction, events=tuple(e for e in reaction.events if e not in shared[:1]))


def _share_as_alloc(event: Event) -> Event:
    if isinstance(event, BlockChange) and event.action == "share":
        return replace(event, action="alloc")
    return event


def _without_units(event: Event) -> Event | None:
    return None if isinstance(event, BlockChange) and event.action == "alloc" else event


def _order(phase: str, shown: str) -> Altered:
    return _requests(lambda r: replace(r, phase=shown) if r.phase == phase else r)


BROKEN: dict[str, tuple[Altered, str]] = {
    "another version each time": (
        Altered(attributes={"version": lambda: f"1.{next(_versions)}"}),
        "driver/identity",
    ),
    "no output among its inputs": (
        Altered(attributes={"inputs": ToyDriver.inputs - {"output"}}),
        "driver/identity",
    ),
    "another depth each time": (_DeepSaid(), "driver/depth"),
    "larger ones for smaller": (_Growing(), "driver/smaller"),
    "too small for one request": (_TooSmall(), "driver/smaller"),
    "a fault that stays": (_Staying(), "driver/faults"),
    "state of another engine": (Altered(state=_shared_state), "driver/independent"),
    "another order in every other run": (Altered(reaction=_changing), "driver/repeatable"),
    "close raises": (Altered(close=_close_once), "driver/close"),
    "takes what it has not": (
        Altered(attributes={"inputs": ToyDriver.inputs - {"priority"}}),
        "driver/refuses",
    ),
    "a word of its own": (_decided("decode", lambda d: replace(d, kind="run")), "calls/words"),
    "computed after in place of before": (
        _decided("decode", lambda d: replace(d, computed_tokens=(d.computed_tokens or 0) + 1)),
        "calls/rows",
    ),
    "all is prefill": (_decided("decode", lambda d: replace(d, kind="prefill")), "calls/kinds"),
    "no handle": (Altered(reaction=lambda r, e: replace(r, handle=None)), "calls/handle"),
    "a token shown twice": (_emitted(lambda tokens: tokens * 2), "calls/tokens"),
    "positions as the scheduler believes": (Altered(calls={"output": _own_belief}), "calls/positions"),
    "deaf to stop": (Altered(calls={"output": _no_stop}), "calls/stop"),
    "no word of the end": (_decided("finish", lambda d: None), "calls/finish"),
    "aborts that wait": (Altered(calls={"abort": _abort_later}), "calls/abort"),
    "an abort of the dead raises": (Altered(calls={"abort": _abort_known_only}), "calls/abort-again"),
    "shared units not told": (Altered(reaction=_units_twice), "calls/units"),
    "units not told": (_events(_without_units), "calls/units"),
    "preemptions not told": (_decided("preempt", lambda d: None), "calls/preempt"),
    "the preempted is lost": (Altered(calls={"step": _preempted_gone}), "calls/preempt"),
    "looking counts": (Altered(state=_counting), "states/pure"),
    "prompts have one token more": (
        _requests(lambda r: replace(r, known_tokens=r.known_tokens + 1)),
        "states/arrival",
    ),
    "no phase prefill": (_order("prefill", "decode"), "states/phases"),
    "a phase of its own": (_order("decode", "running"), "states/phases"),
    "computed only after the output": (
        _requests(lambda r: replace(r, computed_tokens=r.computed_tokens - r.in_flight)),
        "states/computed",
    ),
    "known with those in flight": (
        _requests(lambda r: replace(r, known_tokens=r.known_tokens + r.in_flight)),
        "states/known",
    ),
    "nothing is in flight": (_requests(lambda r: replace(r, in_flight=0)), "states/in-flight"),
    "no queues": (_requests(lambda r: replace(r, queue="")), "states/queues"),
    "one unfinished too many": (
        Altered(state=lambda s, e: replace(s, unfinished=s.unfinished + bool(s.requests))),
        "states/unfinished",
    ),
    "free without the cached": (_pools(lambda p: replace(p, free=p.free - 1)), "states/walk"),
    "all is free": (_requests(lambda r: replace(r, units={})), "states/free"),
    "references of nobody": (_pools(lambda p: replace(p, references={})), "states/references"),
    "a unit is left over": (Altered(state=_left_over), "states/end"),
    "only the first of a batch": (Altered(calls={"abort": _abort_first_only}), "inputs/batch"),
    "decode-only is not": (Altered(calls={"step": _always_prompts}), "inputs/decode-only"),
    "tokens of another place in flight": (Altered(calls={"output": _out_of_place}), "inputs/depth"),
    "a pause is not seen": (Altered(state=_paused_new_only), "inputs/pause"),
    "no pause": (_ignoring("pause"), "inputs/pause"),
    "blocked is forgotten": (Altered(calls={"submit": _unblocked}), "inputs/blocked"),
    "set_schedulable does nothing": (_ignoring("set_schedulable"), "inputs/blocked"),
    "a session ends at once": (Altered(calls={"submit": _unblocked}), "inputs/session"),
    "the next chunk is dropped": (_ignoring("next_chunk"), "inputs/session"),
    "a waiting session cannot be aborted": (
        Altered(calls={"abort": _abort_not_in_chunk}),
        "inputs/session-abort",
    ),
    "the higher the better": (Altered(calls={"priority": _upside_down}), "inputs/priority"),
    "all prompts are alike": (Altered(calls={"submit": _all_equal}), "inputs/prefix"),
    "found units as new ones": (_events(_share_as_alloc), "inputs/prefix"),
    "a cache reset does nothing": (_ignoring("cache_reset"), "inputs/cache-reset"),
    "counts a call too many": (Altered(state=_looked_at), "runs/plain"),
    "shares without saying": (Altered(reaction=_units_twice), "runs/shared"),
    "changes when it is judged": (Altered(state=_judged_differs), "runs/judged"),
    "a unit is lost at an abort": (Altered(calls={"abort": _leaks_one}), "runs/aborts"),
    "a preempted one is lost": (Altered(calls={"step": _preempted_gone}), "runs/tight"),
}
"""By name: the adapter, and the case that has to fail."""
