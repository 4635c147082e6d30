"""Cases: the inputs that only some engines have. What an engine does not have is skipped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..drive import Moment
from ..protocol import BlockChange, State
from ..scenario import Input
from ..tokens import Tokens
from .case import Case, Skip, Subject
from .watched import Seen, Trace, submit, trace

__all__ = ["input_cases"]

_PAIR = (Input("step"), Input("output"))


def input_cases() -> Iterator[Case]:
    """Yield the cases."""
    yield Case("inputs/batch", "an abort of several requests ends each of them", _batch)
    yield Case("inputs/decode-only", "a decode-only step computes no prompt", _decode_only)
    yield Case(
        "inputs/depth", "as many steps as depth() says can be in flight, and tokens stay right", _in_flight
    )
    yield Case("inputs/pause", "state() says that it is paused; what arrives then waits for resume", _pause)
    yield Case("inputs/blocked", "a blocked request waits for set_schedulable", _blocked)
    yield Case(
        "inputs/session",
        "a session waits for its next chunk, goes on with it, and ends with the last",
        _session,
    )
    yield Case("inputs/session-abort", "a session that is aborted while it waits is gone", _session_abort)
    yield Case("inputs/priority", "the request with the lower value is scheduled first", _priority)
    yield Case("inputs/prefix", "equal tokens are found again, and only those that are equal", _prefix)
    yield Case(
        "inputs/cache-reset", "what was computed before a cache reset is not found after it", _cache_reset
    )


def _batch(subject: Subject) -> str:
    m = subject.max_tokens
    inputs = [submit(0, subject.long_tokens, m), submit(1, subject.prompt_tokens, m), *_PAIR]
    found = trace(subject, [*inputs, submit(2, subject.prompt_tokens, m), Input("abort", requests=(0, 1))])
    at = next(n for n, c in enumerate(found.calls) if c.kind == "abort")
    for request in (0, 1):
        if any(d.request == request for c in found.calls[at:] for d in c.reaction.scheduled()):
            return f"R{request} is scheduled after a batch abort"
    if len(found.emitted(2)) != m:
        return "a request that was not aborted does not finish"
    return found.wrong()


def _decode_only(subject: Subject) -> str:
    if "decode_only" not in subject.driver.inputs:
        raise Skip("the engine has no decode-only steps")
    inputs = [submit(0, subject.prompt_tokens, 8), *_PAIR, submit(1, subject.long_tokens, subject.max_tokens)]
    inputs += [Input("step", decode_only=True), Input("output")] * 3
    found = trace(subject, inputs)
    for call in found.calls:
        if call.kind == "step" and call.args and call.args[0]:
            prompts = [d for d in call.reaction.scheduled() if d.kind == "prefill"]
            if prompts:
                return f"a decode-only step computes the prompt of R{prompts[0].request}"
    return found.wrong()


def _in_flight(subject: Subject) -> str:
    depth = subject.driver.depth(subject.config)
    if depth < 2:
        raise Skip("one step in flight at most under this configuration")
    most = 0

    def fill(moment: Moment) -> list[Input]:
        nonlocal most
        most = max(most, moment.flights)
        more = moment.coming is not None and moment.coming.kind == "output" and moment.flights < depth
        return [Input("step")] if more and moment.previous == "step" else []

    inputs = [submit(n, subject.prompt_tokens, 8) for n in range(2)]
    found = trace(subject, [*inputs, *_PAIR * 4], hook=fill)
    if most < depth:
        return f"{most} steps are in flight, depth() says {depth}"
    for request in (0, 1):
        right = [Tokens()(request, subject.prompt_tokens + n) for n in range(8)]
        if found.emitted(request) != right:
            return f"R{request} shows other tokens with {depth} steps in flight"
    return found.wrong()


def _words(subject: Subject, kind: str, usual: Sequence[str]) -> Sequence[str]:
    words = getattr(subject.driver, "words", {})
    return words.get(kind, usual) or usual


def _pause(subject: Subject) -> str:
    if not {"pause", "resume"} <= subject.driver.inputs:
        raise Skip("the engine has no pause")
    m = subject.max_tokens
    for word in _words(subject, "pause", ("wait",)):
        inputs = [submit(0, subject.prompt_tokens, m), *_PAIR, Input("pause", word=word or None)]
        inputs += [submit(1, subject.prompt_tokens, m), *_PAIR, *_PAIR, Input("resume")]
        found = trace(subject, inputs)
        paused = False
        for call in found.calls:
            paused = call.kind == "pause" or (paused and call.kind != "resume")
            if call.after.paused != paused:
                return f"pause {word}: after {call.kind} state() says paused={call.after.paused}"
            if paused and any(d.request == 1 for d in call.reaction.scheduled()):
                return f"pause {word}: a request that arrives in the pause is scheduled before resume"
        if len(found.emitted(1)) != m:
            return f"pause {word}: a request that arrives in the pause does not finish after resume"
        if found.wrong():
            return found.wrong()
    return ""


def _blocked(subject: Subject) -> str:
    if "set_schedulable" not in subject.driver.inputs or not subject.blocked:
        raise Skip("the engine has no blocked requests, or their flag is not given")
    m = subject.max_tokens
    inputs = [submit(0, subject.prompt_tokens, m, subject.blocked), submit(1, subject.prompt_tokens, m)]
    found = trace(subject, [*inputs, *_PAIR * 3, Input("set_schedulable", request=0)])
    for call in found.calls:
        if call.kind == "set_schedulable":
            break
        if any(d.request == 0 for d in call.reaction.scheduled()):
            return "a blocked request is scheduled"
        if call.after.requests[0].phase != "blocked":
            return f"a blocked request is in {call.after.requests[0].phase}"
    if len(found.emitted(0)) != m:
        return "it does not finish after set_schedulable"
    return found.wrong()


def _begin_session(subject: Subject) -> list[Input]:
    if "next_chunk" not in subject.driver.inputs or not subject.session:
        raise Skip("the engine has no sessions, or their flag is not given")
    m = subject.max_tokens
    return [submit(0, subject.prompt_tokens, m, subject.session), *_PAIR * (m + 6)]


def _waits(calls: Sequence[Seen]) -> bool:
    state: State | None = calls[-1].after if calls else None
    return state is not None and 0 in state.requests and state.requests[0].phase == "chunk"


def _session(subject: Subject) -> str:
    begin = _begin_session(subject)
    inputs = [*begin, Input("next_chunk", request=0, tokens=4), *_PAIR * 8]
    found = trace(subject, [*inputs, Input("next_chunk", request=0, last=True)])
    chunks = [n for n, c in enumerate(found.calls) if c.kind == "next_chunk"]
    if not chunks or not _waits(found.calls[: chunks[0]]):
        return "a session that has shown its tokens is not in the phase chunk"
    if not any(d.request == 0 for c in found.calls[chunks[0] :] for d in c.reaction.scheduled()):
        return "nothing is scheduled after the next chunk"
    if found.count("finish", 0) != 1:
        return f"{found.count('finish', 0)} decisions say that it ends"
    last = found.calls[-1].after.requests.get(0)
    if last is not None and last.phase != "finished":
        return f"after its last chunk it is in {last.phase}"
    return found.wrong()


def _session_abort(subject: Subject) -> str:
    found = trace(subject, [*_begin_session(subject), Input("abort", requests=(0,))])
    at = next(n for n, c in enumerate(found.calls) if c.kind == "abort")
    if not _waits(found.calls[:at]):
        return "a session that has shown its tokens is not in the phase chunk"
    left = found.calls[at].after.requests.get(0)
    if left is not None and left.phase != "finished":
        return f"after its abort it is in {left.phase}"
    free = {n: p.free for n, p in found.built.pools.items()}
    last = {n: p.free for n, p in found.calls[-1].after.pools.items()}
    return found.wrong() if last == free else f"its units are not free again: {last} in place of {free}"


def _priority(subject: Subject) -> str:
    m = subject.max_tokens
    inputs = [submit(n, subject.prompt_tokens, m, priority=1) for n in range(3)]
    found = trace(subject, [*inputs, Input("priority", request=1, value=0), *_PAIR])
    order = list(dict.fromkeys(d.request for c in found.calls for d in c.reaction.scheduled()))
    return found.wrong() if order[:1] == [1] else f"requests are first scheduled in the order {order}"


def _again(subject: Subject, common: int, *between: Input) -> Trace:
    m, prompt = subject.max_tokens, max(subject.shared_tokens + 1, subject.prompt_tokens)
    inputs = [submit(0, prompt, m), *_PAIR * (m + 8), *between, submit(1, prompt, m)]
    return trace(subject, inputs, prefixes=((1, 0, 0, common),) if common else ())


def _found(found: Trace) -> int:
    rows = found.rows(1)
    return (rows[0].computed_tokens or 0) if rows else 0


def _prefix(subject: Subject) -> str:
    equal, other = _again(subject, subject.shared_tokens), _again(subject, 0)
    if _found(other):
        return f"{_found(other)} tokens are found though none are equal"
    if not _found(equal):
        raise Skip("this configuration finds no equal tokens again")
    if _found(equal) > subject.shared_tokens:
        return f"{_found(equal)} tokens are found, {subject.shared_tokens} are equal"
    kinds = {
        e.action
        for c in equal.calls
        for e in c.reaction.events
        if isinstance(e, BlockChange) and e.request == 1
    }
    if "share" not in kinds:
        return "units that are found again are not told as share"
    return equal.wrong() or other.wrong()


def _cache_reset(subject: Subject) -> str:
    if "cache_reset" not in subject.driver.inputs:
        raise Skip("the engine has no cache reset")
    if not _found(_again(subject, subject.shared_tokens)):
        raise Skip("this configuration finds no equal tokens again")
    for word in _words(subject, "cache_reset", ("",)):
        found = _again(subject, subject.shared_tokens, Input("cache_reset", word=word or None))
        if _found(found):
            return f"{_found(found)} tokens are found after a cache reset"
        if found.wrong():
            return found.wrong()
    return ""
