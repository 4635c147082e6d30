"""Cases: whole runs that are clean. One that is not may show a fault of the adapter, or of the engine."""

from __future__ import annotations

from collections.abc import Iterator

from ..drive import Moment
from ..scenario import Input
from .case import Case, Skip, Subject
from .watched import Trace, submit, trace

__all__ = ["run_cases"]

_PAIR = (Input("step"), Input("output"))


def run_cases() -> Iterator[Case]:
    """Yield the cases."""
    yield Case("runs/plain", "requests that arrive one after another run clean", _plain)
    yield Case("runs/shared", "requests with a common prefix run clean", _shared)
    yield Case("runs/judged", "judging changes nothing: the same calls with and without", _judged)
    yield Case("runs/aborts", "an abort before any call of a run leaves it clean", _aborts)
    yield Case("runs/tight", "a run with preemptions is clean", _tight)


def _says(found: Trace) -> str:
    if found.run.violations:
        first = found.run.violations[0]
        return f"{first.invariant}: {first.words}"
    return found.wrong()


def _inputs(subject: Subject) -> list[Input]:
    m = subject.max_tokens
    return [
        submit(0, subject.long_tokens, m),
        *_PAIR,
        submit(1, subject.prompt_tokens, m),
        *_PAIR,
        submit(2, subject.prompt_tokens, m),
    ]


def _plain(subject: Subject) -> str:
    return _says(trace(subject, _inputs(subject), check=True))


def _shared(subject: Subject) -> str:
    m, long = subject.max_tokens, subject.long_tokens
    inputs = [submit(0, long, m), *_PAIR * 3, submit(1, long, m), *_PAIR, submit(2, long, m)]
    common = min(subject.shared_tokens, long)
    return _says(trace(subject, inputs, prefixes=((1, 0, 0, common), (2, 0, 0, common)), check=True))


def _judged(subject: Subject) -> str:
    calls = []
    for check in (True, False):
        found = trace(subject, _inputs(subject), check=check)
        if found.run.violations:
            raise Skip("the run is not clean")
        calls.append([(c.kind, c.reaction.events) for c in found.calls])
    return "" if calls[0] == calls[1] else "they differ"


def _aborts(subject: Subject) -> str:
    count = len(trace(subject, _inputs(subject)).calls)
    for at in range(1, count):
        for request in (0, 1):
            seen = 0

            def insert(moment: Moment, at: int = at, request: int = request) -> list[Input]:
                nonlocal seen
                seen += 1
                return [Input("abort", requests=(request,))] if seen == at else []

            why = _says(trace(subject, _inputs(subject), hook=insert, check=True))
            if why:
                return f"R{request} aborted before call {at}: {why}"
    return ""


def _tight(subject: Subject) -> str:
    if subject.tight is None:
        raise Skip("no tight configuration is given")
    inputs = [submit(n, subject.prompt_tokens, subject.tight_tokens) for n in range(2)]
    found = trace(subject, inputs, config=subject.tight, check=True)
    if not any(c.decisions("preempt") for c in found.calls):
        return "nothing is preempted under the tight configuration"
    return _says(found)
