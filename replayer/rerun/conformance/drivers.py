"""Cases: the driver itself, and that what it builds is its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ....formats.requests.words import INPUT_KINDS
from ..protocol import Driver, Engine, Submission, Unsupported
from ..scenario import Input
from ..tokens import Tokens
from .case import Case, Skip, Subject
from .watched import Trace, submit, trace

__all__ = ["driver_cases"]


def driver_cases() -> Iterator[Case]:
    """Yield the cases."""
    yield Case("driver/identity", "name, version, inputs and shrinks are words that stay the same", _identity)
    yield Case("driver/depth", "at least one step can be in flight, and depth() does not change", _depth)
    yield Case(
        "driver/smaller",
        "smaller() gives configurations with less, in which a request finishes alone; none is changed",
        _smaller,
    )
    yield Case("driver/faults", "a planted fault is gone after its context", _faults)
    yield Case("driver/independent", "two schedulers at once do not disturb each other", _independent)
    yield Case("driver/repeatable", "the same inputs give the same calls, decisions and units", _repeatable)
    yield Case("driver/close", "close() can be called twice", _close)
    yield Case("driver/refuses", "an input that the engine does not have raises Unsupported", _refuses)


def _identity(subject: Subject) -> str:
    d = subject.driver
    if not isinstance(d, Driver):
        return f"{type(d).__name__} is no Driver"
    if not d.name or not isinstance(d.name, str) or not d.version() or d.version() != d.version():
        return f"name {d.name!r}, version {d.version()!r}"
    unknown = set(d.inputs) - {*INPUT_KINDS, "decode_only"}
    missing = {"submit", "abort", "step", "output"} - set(d.inputs)
    if unknown or missing:
        return f"inputs: {sorted(unknown)} are none, {sorted(missing)} are missing"
    return "" if all(isinstance(k, str) for k in d.shrinks) else f"shrinks {d.shrinks!r}"


def _depth(subject: Subject) -> str:
    first, second = (subject.driver.depth(subject.config) for _ in range(2))
    return "" if first == second and first >= 1 else f"depth {first}, then {second}"


def _smaller(subject: Subject) -> str:
    submission = Submission(0, subject.long_tokens, subject.max_tokens)
    if not subject.driver.shrinks:
        raise Skip("nothing of its configuration can be smaller")
    for key in subject.driver.shrinks:
        before = dict(subject.config)
        found = subject.driver.smaller(subject.config, key, [submission])
        if dict(subject.config) != before:
            return f"smaller() with {key} has changed the configuration that it was given"
        for config in found:
            why = _runs_alone(subject, before, config, key, submission)
            if why:
                return why
    return ""


def _runs_alone(
    subject: Subject, before: Mapping[str, Any], config: Mapping[str, Any], key: str, submission: Submission
) -> str:
    if config.get(key) == before.get(key):
        return f"no less of {key}: {config.get(key)!r} as before"
    old, new = before.get(key), config.get(key)
    if isinstance(old, int) and (not isinstance(new, int) or new > old):
        return f"{key} grows from {old} to {new}"
    alone = trace(subject, [Input("submit", submission=submission)], config=config)
    if alone.wrong() or len(alone.emitted(0)) != subject.max_tokens:
        return f"with {key} {new} a request does not finish alone: {alone.wrong() or 'it is cut short'}"
    return ""


def _story(subject: Subject) -> list[Input]:
    p, m = subject.prompt_tokens, subject.max_tokens
    return [
        submit(0, subject.long_tokens, m),
        Input("step"),
        Input("output"),
        submit(1, p, m),
        Input("step"),
        Input("output"),
        Input("abort", requests=(0,)),
        submit(2, p, m),
    ]


def _shape(found: Trace) -> list[object]:
    return [(c.kind, c.args if c.kind == "abort" else (), c.reaction.events, c.after) for c in found.calls]


def _faults(subject: Subject) -> str:
    faults = subject.driver.faults()
    if not faults:
        raise Skip("no faults can be planted")
    before = _shape(trace(subject, _story(subject)))
    for name, plant in faults.items():
        with plant():
            pass
        if _shape(trace(subject, _story(subject))) != before:
            return f"after {name} was planted and removed, runs differ"
    return ""


def _independent(subject: Subject) -> str:
    def begin() -> Engine:
        return subject.driver.build(subject.config, Tokens())

    first = begin()
    fresh = first.state()
    first.submit(Submission(0, subject.prompt_tokens, subject.max_tokens))
    first.step()
    busy = first.state()
    second = begin()
    try:
        if second.state() != fresh:
            return "a scheduler that was just built has something of another one"
        second.submit(Submission(0, subject.long_tokens, subject.max_tokens))
        second.step()
        return "" if first.state() == busy else "a scheduler changes while another one is used"
    finally:
        first.close()
        second.close()


def _repeatable(subject: Subject) -> str:
    runs = [_shape(trace(subject, _story(subject))) for _ in range(3)]
    for n, other in enumerate(runs[1:], 2):
        for at, (one, two) in enumerate(zip(runs[0], other, strict=False)):
            if one != two:
                return f"run {n} differs from the first at call {at}"
        if len(other) != len(runs[0]):
            return f"run {n} has {len(other)} calls, the first {len(runs[0])}"
    return ""


def _close(subject: Subject) -> str:
    engine = subject.driver.build(subject.config, Tokens())
    engine.close()
    engine.close()
    return ""


def _refuses(subject: Subject) -> str:
    engine = subject.driver.build(subject.config, Tokens())
    engine.submit(Submission(0, subject.prompt_tokens, subject.max_tokens))
    calls = {
        "set_schedulable": lambda: engine.set_schedulable(0),
        "next_chunk": lambda: engine.next_chunk(0, 1, False),
        "pause": lambda: engine.pause("wait"),
        "resume": lambda: engine.resume(),
        "cache_reset": lambda: engine.cache_reset(""),
        "priority": lambda: engine.priority(0, 1),
    }
    absent = [k for k in calls if k not in subject.driver.inputs]
    if not absent:
        raise Skip("the engine has every input")
    try:
        for kind in absent:
            try:
                calls[kind]()
            except Unsupported:
                continue
            return f"{kind} is not among its inputs, and is taken"
    finally:
        engine.close()
    return ""
