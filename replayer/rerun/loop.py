"""One run of an engine's scheduler: what each input becomes, what each call did, and what is wrong with it.

Standard library only: it runs in the engine's own Python.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...formats.errors import InfrastructureError
from .flights import Flights
from .protocol import Answer, Engine, Pool, PoolState, Reaction, State, Unsupported
from .results import Call, Hook, Limits, Moment, Run
from .scenario import Input
from .watch import Watch

__all__ = ["Loop", "Stop"]

_MOST_INSERTED = 1000


class Stop(Exception):
    """The run is over."""


class Loop:
    """Makes the calls of a run.

    Parameters
    ----------
    result : Run
        What the calls are added to.
    engine : Engine
        A scheduler that nothing has reached yet.
    pools : sequence of Pool
        Its pools.
    flights : Flights
        Its steps in flight.
    watch : Watch
        Judges what the calls do.
    stuck : callable
        Called with this where the last steps scheduled nothing though work waits.
    check, limits, hook, at
        As `drive.run` takes them.
    """

    def __init__(
        self,
        result: Run,
        engine: Engine,
        pools: Sequence[Pool],
        flights: Flights,
        watch: Watch,
        *,
        stuck: Callable[[Loop], None],
        check: bool,
        limits: Limits,
        hook: Hook | None,
        at: Callable[[int, str], None],
    ) -> None:
        self.result = result
        self.engine = engine
        self.pools = pools
        self.flights = flights
        self.watch = watch
        self.check = check
        self.limits = limits
        self._stuck = stuck
        self._hook = hook
        self._at = at
        self._in_pool = {p.name: p.units - p.reserved for p in pools}
        self._submitted: set[int] = set()
        self._known: State | None = None
        self._previous = ""

    @property
    def hooked(self) -> bool:
        """Whether a hook may insert inputs."""
        return self._hook is not None

    def state(self) -> State:
        """Return what is visible of the scheduler now."""
        if self._known is None:
            self._known = self.engine.state()
        return self._known

    # --- one input ---

    def offer(self, given: Input | None) -> None:
        """Let the hook insert what it wants, then make the call."""
        for _ in range(_MOST_INSERTED if self._hook is not None else 0):
            if not self._insert(given):
                break
        if given is not None:
            self.do(given)

    def _insert(self, coming: Input | None) -> bool:
        """Let the hook insert what it wants at this moment; return whether it did."""
        assert self._hook is not None
        moment = Moment(
            self.state(),
            coming,
            self._previous,
            tuple(self.flights.requests()),
            len(self.flights),
            self.flights.depth,
        )
        inserted = self._hook(moment)
        for given in inserted:
            try:
                self.do(given)
            finally:
                self.result.given = len(self.result.calls)
        return bool(inserted)

    def do(self, given: Input) -> None:
        """Make the calls of an input, the outputs that have to come before it included."""
        must_answer = getattr(self.engine, "must_answer", None)
        while given.kind != "output" and must_answer is not None and self.flights and must_answer():
            self._output(Input("output"))
        if given.kind == "step":
            while self.flights.full:
                self._output(Input("output"))
            self._step(given)
        elif given.kind == "output":
            self._output(given)
        elif (applying := self._applying(given)) is not None:
            self.call(applying, self._calls(applying), -1)
        else:
            self.result.skipped[given.kind] += 1

    def _applying(self, given: Input) -> Input | None:
        """Return the input as far as it applies now; None if it does not."""
        if given.kind == "submit":
            if given.submission is None or given.submission.request in self._submitted:
                return None
            self._submitted.add(given.submission.request)
            return given
        if given.kind == "abort":
            there = tuple(r for r in given.about() if r in self._submitted)
            return replace(given, request=None, requests=there) if there else None
        if given.kind in ("set_schedulable", "next_chunk", "priority"):
            known = self.state().requests.get(given.request) if given.request is not None else None
            return given if known is not None and known.phase != "finished" else None
        return given

    def _calls(self, given: Input) -> Callable[[], Reaction]:
        """Return what makes the call."""
        engine = self.engine
        request = -1 if given.request is None else given.request
        if given.kind == "submit" and given.submission is not None:
            submission = given.submission
            return lambda: engine.submit(submission)
        value = 0 if given.value is None else given.value
        calls: dict[str, Callable[[], Reaction]] = {
            "abort": lambda: engine.abort(given.requests),
            "set_schedulable": lambda: engine.set_schedulable(request),
            "next_chunk": lambda: _next_chunk(engine, given),
            "pause": lambda: engine.pause(given.word or ""),
            "resume": lambda: engine.resume(),
            "cache_reset": lambda: engine.cache_reset(given.word or ""),
            "priority": lambda: engine.priority(request, value),
        }
        if given.kind not in calls:
            raise InfrastructureError(
                f"input {given.kind!r}", expected=", ".join(["submit", "step", "output", *calls])
            )
        return calls[given.kind]

    def _step(self, given: Input) -> None:
        if self.result.steps >= self.limits.max_steps:
            self.result.error = f"more than {self.limits.max_steps} steps"
            self.watch.endless(self.result.steps)
            raise Stop
        before = self.state()
        step = self.result.steps
        self.result.steps += 1

        def call() -> Reaction:
            reaction = self.engine.step(given.decode_only)
            if reaction.handle is not None:
                self.flights.launch(step if given.step is None else given.step, step, reaction, before)
            return reaction

        self.call(given, call, step)
        if self.watch.stuck:
            self._stuck(self)

    def _output(self, given: Input) -> None:
        flight = self.flights.find(given.step)
        if flight is None:
            self.result.skipped["output"] += 1
            return
        placed = self.flights.placed(flight, given.answers)

        def call() -> Reaction:
            self.flights.land(flight)
            return self.engine.output(flight.handle, placed)

        self.call(replace(given, answers=placed), call, flight.step, given.answers)

    def call(
        self,
        given: Input,
        call: Callable[[], Reaction],
        step: int,
        answers: tuple[Answer, ...] | None = None,
    ) -> None:
        """Make a call, and judge what came of it."""
        at = len(self.watch.commands)
        if self.check:
            self.watch.before(given, self.state(), list(self.flights.requests()))
        if self.limits.max_calls is not None and len(self.result.calls) >= self.limits.max_calls:
            self.result.calls.append(Call(given, Reaction(), step, answers=answers, at=at))
            self.result.error = "ended before this call"
            raise Stop
        self._at(len(self.result.calls), given.kind)
        try:
            reaction = call()
        except Unsupported:
            self._at(-1, "")
            self.result.skipped[given.kind] += 1
            self.result.lacking[given.kind] += 1
            return
        except (InfrastructureError, MemoryError):
            raise
        except Exception as e:
            self.result.calls.append(Call(given, Reaction(), step, answers=answers, at=at))
            self.watch.raised(*_raised(e, given.kind))
            self.result.error = f"{type(e).__name__}: {e}"
            raise Stop from None
        finally:
            self._known = None
        self._at(-1, "")
        self._previous = given.kind
        self.flights.shown(reaction.emitted)
        free: Mapping[str, int] = {}
        used: Mapping[str, int] = {}
        if self.check:
            state = self.state()
            free = {name: pool.free for name, pool in state.pools.items()}
            used = {name: self._used(name, pool) for name, pool in state.pools.items()}
            self.watch.after(given, reaction, state, step, self.flights.outstanding)
        self.result.calls.append(Call(given, reaction, step, free, used, answers, at))
        if self.watch.violations and self.limits.stop_at_first:
            raise Stop

    def _used(self, name: str, pool: PoolState) -> int:
        """Return the used units of a pool: by the scheduler's own count, or all that are not free."""
        return self._in_pool.get(name, 0) - pool.free if pool.used is None else pool.used


def _next_chunk(engine: Any, given: Input) -> Reaction:
    """Hand over a chunk; one with a limit or an arrival of its own needs an adapter that takes it."""
    more = {"max_tokens": given.value, "arrive_ns": given.arrive_ns}
    told = {name: value for name, value in more.items() if value is not None}
    reaction: Reaction = engine.next_chunk(given.request, given.tokens or 0, given.last, **told)
    return reaction


def _raised(error: Exception, kind: str) -> tuple[str, str]:
    """Return what kind of exception the scheduler raised, and where, in words."""
    frames = traceback.extract_tb(error.__traceback__)
    where = frames[-1].name if frames else "?"
    what = f"{type(error).__name__} in {where} during {kind}"
    return what, f"{kind} raised {type(error).__name__} in {where}: {str(error)[:300]}"
