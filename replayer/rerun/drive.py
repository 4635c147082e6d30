"""Run a scenario on an engine's real scheduler: the loop, what each call did, and what is wrong with it.

Standard library only: it runs in the engine's own Python.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ...formats.errors import InfrastructureError
from .outside import fits
from .protocol import Answer, Decision, Driver, Engine, Pool, Reaction, State, Unsupported
from .results import Call, Hook, Limits, Moment, Run
from .scenario import Input, Scenario
from .watch import Watch

__all__ = ["Call", "Hook", "Limits", "Moment", "Run", "run", "understood"]

_T = TypeVar("_T")

_ASKED_MOST = 64
"""How often the drain tells the same request the same: a hook may block it or pause the scheduler again."""

_MOST_INSERTED = 1000
_STEPS_IN_VAIN = 8


def run(
    scenario: Scenario,
    driver: Driver,
    *,
    check: bool = True,
    limits: Limits | None = None,
    hook: Hook | None = None,
    drain: bool = True,
    at: Callable[[int, str], None] | None = None,
) -> Run:
    """Run a scenario.

    Parameters
    ----------
    scenario : Scenario
    driver : Driver
        The engine's adapter.
    check : bool
        Judge after every call.
    limits : Limits, optional
        When to give up.
    hook : callable, optional
        May insert inputs, see `Hook`.
    drain : bool
        Go on after the last input until everything has ended.
    at : callable, optional
        Told before each call into the engine its number and kind, and -1 after the last.

    Returns
    -------
    Run
        With what was found; an exception of the engine is a finding.

    Raises
    ------
    Unsupported
        The engine cannot be built with this configuration.
    InfrastructureError
        The adapter says that something beside the scheduler failed.
    """
    loop = _Loop(scenario, driver, check, limits or Limits(), hook, at or (lambda call, kind: None))
    return loop.run(drain)


def understood(make: Callable[[], _T]) -> _T:
    """Return what an adapter makes of a configuration.

    Raises
    ------
    Unsupported
        It makes nothing of it: a configuration comes from a file and may hold anything.
    """
    try:
        return make()
    except (Unsupported, InfrastructureError, MemoryError):
        raise
    except Exception as e:
        what = f"{type(e).__name__}: {str(e)[:200]}"
        raise Unsupported(f"nothing can be built with this configuration: {what}") from None


class _Stop(Exception):
    """The run is over."""


@dataclass(slots=True)
class _Flight:
    key: int
    step: int
    handle: Any
    scheduled: dict[int, Decision]
    answers: tuple[Answer, ...]


class _Loop:
    def __init__(
        self,
        scenario: Scenario,
        driver: Driver,
        check: bool,
        limits: Limits,
        hook: Hook | None,
        at: Callable[[int, str], None],
    ) -> None:
        self.result = Run(scenario)
        self._driver = driver
        self._limits = limits
        self._hook = hook
        self._check = check
        self._at = at
        self._tokens = scenario.tokens()
        self._endings = {e.request: e for e in scenario.endings}
        self._depth = understood(lambda: max(1, driver.depth(scenario.config)))
        self._flights: list[_Flight] = []
        self._submitted: set[int] = set()
        self._emitted: Counter[int] = Counter()
        self._known: State | None = None
        self._previous = ""
        self._refused: set[tuple[str, int | None]] = set()
        self._waiting_in_vain = 0

    def run(self, drain: bool) -> Run:
        scenario = self.result.scenario
        self._at(0, "build")
        self._engine: Engine = understood(lambda: self._driver.build(scenario.config, self._tokens))
        self._pools = self.result.pools = _pools(scenario.pools, self._state())
        self._at(-1, "")
        self._watch = Watch(
            self._pools,
            self._tokens,
            exempt=getattr(self._driver, "exempt", frozenset()),
            patience=understood(lambda: _patience(self._driver, scenario.config)),
            slack_steps=self._limits.slack_steps,
        )
        try:
            for given in scenario.inputs:
                try:
                    self._offer(given)
                finally:
                    self.result.given = len(self.result.calls)
            if drain:
                self._drain()
        except _Stop:
            pass
        finally:
            self.result.commands = self._watch.commands
            self.result.violations = self._watch.violations
            self._at(len(self.result.calls), "close")
            self._engine.close()
            self._at(-1, "")
        return self.result

    # --- one input ---

    def _offer(self, given: Input | None) -> None:
        """Let the hook insert what it wants, then make the call."""
        for _ in range(_MOST_INSERTED if self._hook is not None else 0):
            if not self._insert(given):
                break
        if given is not None:
            self._do(given)

    def _insert(self, coming: Input | None) -> bool:
        """Let the hook insert what it wants at this moment; return whether it did."""
        assert self._hook is not None
        moment = Moment(
            self._state(),
            coming,
            self._previous,
            tuple(r for f in self._flights for r in f.scheduled),
            len(self._flights),
            self._depth,
        )
        inserted = self._hook(moment)
        for given in inserted:
            try:
                self._do(given)
            finally:
                self.result.given = len(self.result.calls)
        return bool(inserted)

    def _do(self, given: Input) -> None:
        must_answer = getattr(self._engine, "must_answer", None)
        while given.kind != "output" and must_answer is not None and self._flights and must_answer():
            self._output(Input("output"))
        if given.kind == "step":
            while len(self._flights) >= self._depth:
                self._output(Input("output"))
            self._step(given)
        elif given.kind == "output":
            self._output(given)
        elif (applying := self._applying(given)) is not None:
            self._call(applying, self._calls(applying), -1)
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
            known = self._state().requests.get(given.request) if given.request is not None else None
            return given if known is not None and known.phase != "finished" else None
        return given

    def _calls(self, given: Input) -> Callable[[], Reaction]:
        """Return what makes the call."""
        engine = self._engine
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
        if self.result.steps >= self._limits.max_steps:
            self.result.error = f"more than {self._limits.max_steps} steps"
            self._watch.endless(self.result.steps)
            raise _Stop
        before = self._state()
        step = self.result.steps
        self.result.steps += 1

        def call() -> Reaction:
            reaction = self._engine.step(given.decode_only)
            if reaction.handle is not None:
                scheduled = reaction.scheduled()
                answers = reaction.answers
                if answers is None:
                    answers = self._expected(scheduled, before)
                key = step if given.step is None else given.step
                rows = {d.request: d for d in scheduled}
                self._flights.append(_Flight(key, step, reaction.handle, rows, answers))
            return reaction

        self._call(given, call, step)
        if self._watch.stuck:
            self._stuck()

    def _output(self, given: Input) -> None:
        flight = self._flight(given.step)
        if flight is None:
            self.result.skipped["output"] += 1
            return
        answers = flight.answers if given.answers is None else given.answers
        placed = tuple(self._placed(a, flight, given.answers is None) for a in answers)

        def call() -> Reaction:
            self._flights.remove(flight)
            return self._engine.output(flight.handle, placed)

        self._call(replace(given, answers=placed), call, flight.step, given.answers)

    def _call(
        self,
        given: Input,
        call: Callable[[], Reaction],
        step: int,
        answers: tuple[Answer, ...] | None = None,
    ) -> None:
        """Make a call, and judge what came of it."""
        at = len(self._watch.commands)
        if self._check:
            in_flight = [r for f in self._flights for r in f.scheduled]
            self._watch.before(given, self._state(), in_flight)
        if self._limits.max_calls is not None and len(self.result.calls) >= self._limits.max_calls:
            self.result.calls.append(Call(given, Reaction(), step, answers=answers, at=at))
            self.result.error = "ended before this call"
            raise _Stop
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
            self._watch.raised(*_raised(e, given.kind))
            self.result.error = f"{type(e).__name__}: {e}"
            raise _Stop from None
        finally:
            self._known = None
        self._at(-1, "")
        self._previous = given.kind
        for request, tokens in reaction.emitted:
            self._emitted[request] += len(tokens)
        free: Mapping[str, int] = {}
        if self._check:
            state = self._state()
            free = {name: pool.free for name, pool in state.pools.items()}
            outstanding = sum(1 for f in self._flights if f.scheduled)
            self._watch.after(given, reaction, state, step, outstanding)
        self.result.calls.append(Call(given, reaction, step, free, answers, at))
        if self._watch.violations and self._limits.stop_at_first:
            raise _Stop

    # --- answers ---

    def _flight(self, key: int | None) -> _Flight | None:
        if key is None:
            return self._flights[0] if self._flights else None
        return next((f for f in self._flights if f.key == key), None)

    def _expected(self, scheduled: Sequence[Decision], before: State) -> tuple[Answer, ...]:
        """Return what a model gives: a token for each request whose known tokens are all computed then."""
        made = []
        outstanding = Counter[int]()
        for flight in self._flights:
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

    def _placed(self, answer: Answer, flight: _Flight, ours: bool) -> Answer:
        """Return an answer with the position of its first token, and with its end where it has one."""
        decision = flight.scheduled.get(answer.request)
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

    def _state(self) -> State:
        if self._known is None:
            self._known = self._engine.state()
        return self._known

    # --- the end ---

    def _stuck(self) -> None:
        """Find a stall, unless what waits may wait for something from outside."""
        state = self._state()
        phases = {r.phase for r in state.requests.values()}
        if "chunk" in phases:
            return
        if "blocked" in phases and not fits(state, self._pools):
            return
        if self._watch.leaks:
            self._give_up(state)
        # An adapter may see why: two stalls for different reasons are two kinds of finding.
        stalled = getattr(self._engine, "stalled", None)
        why = "" if stalled is None else stalled()
        if why is None:
            return
        self._watch.stalled(state, why)
        if not self._limits.stop_at_first:
            return  # what comes next was recorded, and may help
        self.result.error = "no progress"
        raise _Stop

    def _give_up(self, state: State) -> None:
        """Abort what is left: units are missing, and what is held when all has ended shows it."""
        left = tuple(n for n, r in state.requests.items() if r.phase != "finished")
        self._call(Input("abort", requests=left), lambda: self._engine.abort(left), -1)
        for _ in range(self._limits.settle_steps):
            self._call(Input("step"), self._engine.step, self.result.steps)
        self._watch.idle(self._state())
        if self._watch.violations:
            raise _Stop

    def _drain(self) -> None:
        """Go on until everything has ended."""
        asked: Counter[tuple[str, int | None]] = Counter()
        while True:
            coming = self._coming(self._state())
            if coming is None and self._hook is not None:
                calls = len(self.result.calls)
                self._offer(None)
                if len(self.result.calls) > calls:
                    continue
            if coming is None:
                break
            skipped = self.result.skipped[coming.kind]
            self._offer(coming)
            if coming.kind not in ("step", "output"):
                asked[coming.kind, coming.request] += 1
                if asked[coming.kind, coming.request] > _ASKED_MOST:
                    self._watch.ignored(coming)
                    self.result.error = f"{coming.text()} has no effect"
                    raise _Stop
            if self.result.skipped[coming.kind] > skipped and coming.kind not in ("step", "output"):
                self._refused.add((coming.kind, coming.request))
            if self._waiting_in_vain > _STEPS_IN_VAIN:
                kinds = ", ".join(sorted({kind for kind, _ in self._refused}))
                self.result.error = f"the engine refuses {kinds}, without which it cannot be drained"
                raise _Stop
        for _ in range(self._limits.settle_steps):
            self._do(Input("step"))
            if self._flights:
                self._do(Input("output"))
        if self._check:
            self._watch.idle(self._state())
        self.result.drained = True

    def _coming(self, state: State) -> Input | None:
        """Return the next call on the way to the end; None at the end."""
        phases = [r.phase for r in state.requests.values()]
        working = any(p in ("waiting", "prefill", "decode", "preempted") for p in phases)
        if state.paused and ("resume", None) not in self._refused:
            return Input("resume")
        if state.paused:
            self._waiting_in_vain += 1
        if self._flights and (len(self._flights) >= self._depth or not working or self._idle_step()):
            return Input("output")
        if working and not self._watch.stuck:
            return Input("step")
        for phase, kind in (("blocked", "set_schedulable"), ("chunk", "next_chunk")):
            for number, request in state.requests.items():
                if request.phase == phase and (kind, number) not in self._refused:
                    return Input(kind, request=number, last=kind == "next_chunk")
        if not working and ("blocked" in phases or "chunk" in phases):
            self._waiting_in_vain += 1  # one that was aborted may leave in the next step
            return Input("step")
        return Input("step") if working else None

    def _idle_step(self) -> bool:
        """Whether the last call was a step that scheduled nothing: the next waits for an output."""
        last = self.result.calls[-1] if self.result.calls else None
        return last is not None and last.given.kind == "step" and not last.reaction.scheduled()


def _next_chunk(engine: Any, given: Input) -> Reaction:
    """Hand over a chunk; one with a limit or an arrival of its own needs an adapter that takes it."""
    more = {"max_tokens": given.value, "arrive_ns": given.arrive_ns}
    told = {name: value for name, value in more.items() if value is not None}
    reaction: Reaction = engine.next_chunk(given.request, given.tokens or 0, given.last, **told)
    return reaction


def _pools(recorded: Sequence[Pool], empty: State) -> tuple[Pool, ...]:
    """Return the pools as they are in a scheduler just built: a configuration may make them smaller."""
    known = {p.name: p for p in recorded}
    made = []
    for name, seen in empty.pools.items():
        pool = known.get(name, Pool(name, seen.free))
        made.append(replace(pool, units=seen.free + pool.reserved))
    return tuple(made)


def _raised(error: Exception, kind: str) -> tuple[str, str]:
    """Return what kind of exception the scheduler raised, and where, in words."""
    frames = traceback.extract_tb(error.__traceback__)
    where = frames[-1].name if frames else "?"
    what = f"{type(error).__name__} in {where} during {kind}"
    return what, f"{kind} raised {type(error).__name__} in {where}: {str(error)[:300]}"


def _patience(driver: Driver, config: Mapping[str, Any]) -> int:
    """Return how many steps in a row that schedule nothing, while work waits, prove a stall."""
    depends = getattr(driver, "patience_of", None)
    return int(depends(config)) if depends is not None else int(getattr(driver, "patience", 3))
