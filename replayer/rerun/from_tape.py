"""A recorded request scheduler as a scenario, with what it did at every input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...formats.errors import CannotJudge, InputError, UsageError
from ...formats.requests.counts import steps_of
from ...formats.requests.read import (
    Changed,
    Decided,
    RecordedInput,
    RecordedRequest,
    RecordedScheduler,
    read_inputs,
    read_schedulers,
)
from ...formats.shown import plural
from ...formats.tape import Tape
from .bounds import Alive, too_many_units
from .protocol import Answer, BlockChange, Decision, Pool, Submission
from .scenario import Ending, Input, Scenario
from .strict import Recorded

__all__ = ["Recording", "recording_of"]

MODEL_WORDS = frozenset({"stop"})
"""Why a request ends where only the model knows: with these words an answer ends it in other runs too."""

UNRECORDED = "unrecorded_"
"""So begin flags of requests that hang on something that is in no tape."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded scheduler.

    Attributes
    ----------
    scheduler : int
        Its id in the tape.
    scenario : Scenario
        What reached it, steps numbered, outputs with the answers that they had.
    recorded : tuple of Recorded
        What each input did.
    steps : int
        Steps that it made.
    """

    scheduler: int
    scenario: Scenario
    recorded: tuple[Recorded, ...]
    steps: int


def recording_of(tape: Tape, *, engine: str | None = None, scheduler: int | None = None) -> Recording:
    """Return a scheduler of a tape.

    Parameters
    ----------
    tape : Tape
    engine : str, optional
        Only one of this engine.
    scheduler : int, optional
        Its id, where there are several.

    Raises
    ------
    CannotJudge
        The tape has none, or none of that engine.
    UsageError
        It has several and none is named, or the named one is another engine's.
    InputError
        It has more tokens or units than a process can hold.
    """
    every = read_schedulers(tape)
    if not every:
        raise CannotJudge(
            "no request scheduler was recorded",
            expected="a tape of a program that served requests",
            where=tape.where,
            next_step="record a program with vllm, deepinfer or transformers: tapedelay record -- COMMAND",
        )
    fit = [s for s in every if scheduler is None or s.scheduler == scheduler]
    if not fit:
        raise UsageError(
            f"--scheduler {scheduler}",
            expected=f"one of {', '.join(str(s.scheduler) for s in every)}",
            where=tape.where,
            next_step="`tapedelay info` lists them",
        )
    mine = [s for s in fit if engine is None or s.engine == engine]
    if not mine:
        raise UsageError(
            f"--engine {engine}",
            expected=f"the engine that was recorded: {', '.join(sorted({s.engine for s in fit}))}",
            where=tape.where,
            next_step=f"say --engine {fit[0].engine}",
        )
    if len(mine) > 1:
        raise UsageError(
            f"{plural(len(mine), 'request scheduler')} in this tape",
            expected="one",
            where=tape.where,
            next_step=f"say --scheduler {mine[0].scheduler}",
        )
    found = mine[0]
    _refuse_unrecorded(found, tape)
    inputs = list(read_inputs(tape, found.scheduler))
    _refuse_endless(found, inputs, tape)
    _refuse_unanswered(inputs, tape)
    return Recording(
        found.scheduler,
        _scenario(found, inputs),
        tuple(map(_recorded, inputs)),
        steps_of(tape)[found.scheduler],
    )


def _refuse_unrecorded(found: RecordedScheduler, tape: Tape) -> None:
    """Raise where requests say that something decided about them that no tape holds."""
    words = Counter(w for r in found.requests.values() for w in r.flags if w.startswith(UNRECORDED))
    if words:
        named = ", ".join(
            f"{w.removeprefix(UNRECORDED)} ({plural(n, 'request')})" for w, n in sorted(words.items())
        )
        raise CannotJudge(
            f"some of its requests hang on what is not recorded: {named}",
            expected="requests whose decisions hang on recorded inputs alone",
            where=tape.where,
            next_step="record a run without them",
        )


def _refuse_unanswered(inputs: Iterable[RecordedInput], tape: Tape) -> None:
    """Raise where an output does not say of which step it is."""
    lost = sum(i.kind == "output" and i.step is None for i in inputs)
    if lost:
        raise CannotJudge(
            f"of {plural(lost, 'output')} it is not recorded which step they are of",
            expected="outputs with their steps",
            where=tape.where,
            next_step="record it again",
        )


def _refuse_endless(found: RecordedScheduler, inputs: Iterable[RecordedInput], tape: Tape) -> None:
    """Raise where there is more than the memory of a process can hold."""

    def refuse(what: str, expected: str) -> None:
        raise InputError(
            what,
            expected=expected,
            where=tape.where,
            next_step="look at its requests and pools with: tapedelay info --dump",
        )

    units = too_many_units(_pools(found))
    if units is not None:
        refuse(*units)
    alive = Alive(refuse)
    for given in inputs:
        if given.kind == "submit" and given.request is not None:
            request = found.requests[given.request]
            alive.arrives(request.request, max(request.prompt_tokens, request.reserve_tokens or 0))
        elif given.kind == "next_chunk" and given.request is not None:
            alive.grows(given.request, given.tokens or 0)
        elif given.kind == "abort":
            alive.gone(given.aborted())
        for answer in given.answers:
            alive.grows(answer.request, answer.tokens)
        ended = (e.request for e in given.events if isinstance(e, Decided) and e.kind in _ENDS)
        alive.gone(ended)


_ENDS = ("finish", "reject")


def _pools(found: RecordedScheduler) -> tuple[Pool, ...]:
    return tuple(Pool(p.name, p.units, p.reserved, p.tokens_per_unit) for p in found.pools)


def _scenario(found: RecordedScheduler, inputs: Iterable[RecordedInput]) -> Scenario:
    made = []
    shown = Counter[int]()
    endings: dict[int, Ending] = {}
    for given in inputs:
        made.append(_input(given, found.requests))
        for answer in given.answers:
            shown[answer.request] += answer.tokens
            if answer.word in MODEL_WORDS and answer.request not in endings:
                endings[answer.request] = Ending(answer.request, shown[answer.request], str(answer.word))
    return Scenario(
        engine=found.engine,
        engine_version=found.engine_version,
        config=dict(found.config),
        pools=_pools(found),
        inputs=tuple(made),
        prefixes=found.prefixes,
        endings=tuple(endings.values()),
    )


def _input(given: RecordedInput, requests: Mapping[int, RecordedRequest]) -> Input:
    request = given.request
    submission = None
    if given.kind == "submit" and request is not None:
        submission = _submission(requests[request])
        request = None
    answers = None
    if given.kind == "output":
        answers = tuple(Answer(a.request, a.tokens, a.word) for a in given.answers)
    last = given.kind == "next_chunk" and given.word == "last"
    return Input(
        kind=given.kind,
        request=None if given.kind == "abort" else request,
        requests=given.aborted() if given.kind == "abort" else (),
        tokens=given.tokens,
        value=given.value,
        word=None if last else given.word,
        decode_only=given.decode_only,
        last=last,
        submission=submission,
        arrive_ns=given.arrive_ns,
        step=given.step if given.kind in ("step", "output") else None,
        answers=answers,
    )


def _submission(request: RecordedRequest) -> Submission:
    return Submission(
        request=request.request,
        prompt_tokens=request.prompt_tokens,
        max_tokens=request.max_tokens,
        priority=request.priority,
        flags=request.flags,
        reserve_tokens=request.reserve_tokens,
        id_rank=request.id_rank,
        arrive_ns=request.arrive_ns,
    )


def _recorded(given: RecordedInput) -> Recorded:
    events: list[Decision | BlockChange] = []
    for event in given.events:
        if isinstance(event, Changed):
            events.append(BlockChange(event.action, event.pool, event.units, event.request))
        else:
            events.append(Decision(event.kind, event.request, event.tokens, event.computed_tokens))
    events += [
        Decision("prefill" if s.is_prefill else "decode", s.request, s.tokens, s.computed_tokens)
        for s in given.scheduled
    ]
    ended = tuple((a.request, a.word) for a in given.answers if a.word is not None)
    return Recorded(given.kind, tuple(events), given.free, ended, given.emitted)
