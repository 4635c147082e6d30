"""Cases: what `state()` shows."""

from __future__ import annotations

from collections.abc import Iterator

from ..protocol import PHASES, State
from ..scenario import Input
from ..tokens import Tokens
from .case import Case, Skip, Subject
from .watched import Trace, submit, trace

__all__ = ["state_cases"]


def state_cases() -> Iterator[Case]:
    """Yield the cases."""
    yield Case("states/pure", "state() changes nothing", _pure)
    yield Case("states/arrival", "a request is there when it has arrived, with its prompt", _arrival)
    yield Case("states/phases", "phases are those of the protocol, in their order", _phases)
    yield Case("states/computed", "computed tokens are those that steps have scheduled", _computed)
    yield Case("states/known", "known tokens are the prompt and what was shown", _known)
    yield Case("states/in-flight", "steps whose output is outstanding are counted per request", _in_flight)
    yield Case("states/queues", "an unfinished request stands in a queue", _queues)
    yield Case("states/unfinished", "the count of unfinished requests is that of the requests", _unfinished)
    yield Case("states/free", "free units are all but those that somebody owns", _free)
    yield Case("states/walk", "a walk along the free list finds as many units as the counter says", _walk)
    yield Case("states/references", "references are those of the owners", _references)
    yield Case("states/end", "at the end everything is as in a scheduler just built", _end)


def _pure(subject: Subject) -> str:
    from ..protocol import Submission

    engine = subject.driver.build(subject.config, Tokens())
    try:
        engine.submit(Submission(0, subject.prompt_tokens, subject.max_tokens))
        engine.step()
        first = engine.state()
        return "" if all(engine.state() == first for _ in range(3)) else "two calls in a row differ"
    finally:
        engine.close()


def _story(subject: Subject) -> Trace:
    m = subject.max_tokens
    inputs = [submit(0, subject.long_tokens, m), Input("step"), submit(1, subject.prompt_tokens, m)]
    return trace(subject, inputs)


def _arrival(subject: Subject) -> str:
    found = _story(subject)
    for call in found.calls:
        if call.kind == "submit":
            s = call.args[0]
            state = call.after.requests.get(s.request)
            if state is None or state.known_tokens != s.prompt_tokens or state.computed_tokens:
                return f"R{s.request} with {s.prompt_tokens} tokens arrives, there is {state}"
            if state.phase not in ("waiting", "blocked"):
                return f"R{s.request} arrives and is in {state.phase}"
    return found.wrong()


_ORDER = ("waiting", "prefill", "decode", "finished")


def _phases(subject: Subject) -> str:
    found = _story(subject)
    for request in (0, 1):
        phases = [c.after.requests[request].phase for c in found.calls if request in c.after.requests]
        wrong = [p for p in phases if p not in PHASES]
        if wrong:
            return f"R{request} is in {wrong[0]!r}"
        known = [_ORDER.index(p) if p in _ORDER else -1 for p in phases]
        if known != sorted(known) or -1 in known:
            return f"R{request} is in {' -> '.join(dict.fromkeys(phases))}"
        rows = sum(1 for r in found.rows(request) if r.kind == "prefill")
        if rows > 1 and "prefill" not in phases:
            return f"the prompt of R{request} takes {rows} steps, and it is never in prefill"
        if "decode" not in phases:
            return f"R{request} is never in decode"
    return found.wrong()


def _computed(subject: Subject) -> str:
    found = _story(subject)
    for call in found.calls:
        for row in call.reaction.scheduled():
            state = call.after.requests.get(row.request)
            right = (row.computed_tokens or 0) + (row.tokens or 0)
            if state is None or state.computed_tokens != right:
                has = None if state is None else state.computed_tokens
                return f"R{row.request} has {has} computed tokens after a step up to {right}"
    return found.wrong()


def _known(subject: Subject) -> str:
    found = _story(subject)
    known: dict[int, int] = {}
    for n, call in enumerate(found.calls):
        if call.kind == "submit":
            known[call.args[0].request] = call.args[0].prompt_tokens
        for request, tokens in call.reaction.emitted:
            known[request] += len(tokens)
        for request, state in call.after.requests.items():
            if state.phase != "finished" and state.known_tokens != known[request]:
                return (
                    f"call {n}: R{request} has {state.known_tokens} known tokens, {known[request]} were given"
                )
    return found.wrong()


def _in_flight(subject: Subject) -> str:
    found = _story(subject)
    flights: list[list[int]] = []
    for n, call in enumerate(found.calls):
        if call.kind == "step" and call.reaction.handle is not None:
            flights.append([d.request for d in call.reaction.scheduled()])
        elif call.kind == "output":
            flights.pop(0)
        for request, state in call.after.requests.items():
            right = sum(request in f for f in flights)
            if state.in_flight != right:
                why = f"{right} steps of R{request} are in flight, state() says {state.in_flight}"
                return f"call {n} ({call.kind}): {why}"
    return found.wrong()


def _queues(subject: Subject) -> str:
    found = _story(subject)
    for n, call in enumerate(found.calls):
        for request, state in call.after.requests.items():
            if not state.queue and state.phase in ("waiting", "prefill", "decode", "preempted"):
                if call.kind == "step" and state.in_flight:
                    continue  # some take a request out of its queue until its output comes
                return f"call {n} ({call.kind}): R{request} in {state.phase} stands in no queue"
    return found.wrong()


def _unfinished(subject: Subject) -> str:
    found = _story(subject)
    for n, call in enumerate(found.calls):
        alive = sum(r.phase != "finished" for r in call.after.requests.values())
        if call.after.unfinished != alive:
            return f"call {n} ({call.kind}): {call.after.unfinished} unfinished, there are {alive}"
    return found.wrong()


def _owned(state: State) -> dict[str, dict[int, int]]:
    owned: dict[str, dict[int, int]] = {}
    for request in state.requests.values():
        for pool, units in request.units.items():
            for unit in units:
                counts = owned.setdefault(pool, {})
                counts[unit] = counts.get(unit, 0) + 1
    return owned


def _free(subject: Subject) -> str:
    found = _story(subject)
    for n, call in enumerate(found.calls):
        owned = _owned(call.after)
        for name, pool in call.after.pools.items():
            right = found.built.pools[name].free - len(owned.get(name, {}))
            if pool.free != right:
                return f"call {n} ({call.kind}): {pool.free} units of {name} are free, {right} should be"
    if not any(_owned(c.after) for c in found.calls):
        return "no request ever owns a unit"
    return found.wrong()


def _walk(subject: Subject) -> str:
    found = _story(subject)
    seen = False
    for n, call in enumerate(found.calls):
        for name, pool in call.after.pools.items():
            if pool.free_units is not None:
                seen = True
                if len(pool.free_units) != pool.free:
                    why = f"{name} says {pool.free}, the walk finds {len(pool.free_units)}"
                    return f"call {n} ({call.kind}): {why}"
    if not seen:
        raise Skip("no free list can be walked")
    return found.wrong()


def _references(subject: Subject) -> str:
    found = _story(subject)
    seen = False
    for n, call in enumerate(found.calls):
        owned = _owned(call.after)
        for name, pool in call.after.pools.items():
            if pool.references is None:
                continue
            seen = True
            counts = owned.get(name, {})
            wrong = [u for u, c in counts.items() if pool.references.get(u, 0) != c]
            if wrong:
                u = wrong[0]
                why = f"{name}{u} has {pool.references.get(u, 0)} references, {counts[u]} owners"
                return f"call {n} ({call.kind}): {why}"
    if not seen:
        raise Skip("no references are visible")
    return found.wrong()


def _end(subject: Subject) -> str:
    found = _story(subject)
    if found.wrong():
        return found.wrong()
    last = found.calls[-1].after
    alive = [n for n, r in last.requests.items() if r.phase != "finished"]
    if alive or last.unfinished:
        return f"{last.unfinished} unfinished requests, R{alive[0] if alive else '?'} is there"
    for name, pool in last.pools.items():
        if pool.free != found.built.pools[name].free:
            return f"{pool.free} units of {name} are free, there were {found.built.pools[name].free}"
    return ""
