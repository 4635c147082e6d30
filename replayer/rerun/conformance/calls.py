"""Cases: what the calls return: decisions, tokens, units."""

from __future__ import annotations

from collections.abc import Iterator

from ....formats.requests.words import BLOCK_ACTIONS, DECISION_KINDS
from ..protocol import Answer, BlockChange, Decision, Reaction, State
from ..scenario import Ending, Input
from ..tokens import FIRST, Tokens
from .case import Case, Skip, Subject
from .watched import Trace, submit, trace

__all__ = ["call_cases"]

_SHIFT = 1_000


def call_cases() -> Iterator[Case]:
    """Yield the cases."""
    yield Case("calls/words", "events are Decision and BlockChange with words of the tables", _words)
    yield Case("calls/rows", "each step says what it schedules, and computed tokens add up", _rows)
    yield Case("calls/kinds", "prefill as long as the prompt is not computed, then decode", _kinds)
    yield Case(
        "calls/handle", "a step that schedules something gives a handle, other calls give none", _handle
    )
    yield Case("calls/tokens", "what is shown is what was given, each token once", _tokens)
    yield Case("calls/positions", "token values are those of the answer's position", _positions)
    yield Case("calls/stop", "an answer with the word stop ends the request", _stop)
    yield Case("calls/finish", "the end of a request is a decision, once", _finish)
    yield Case(
        "calls/abort", "an abort ends a request, and nothing of it is scheduled or shown after it", _abort
    )
    yield Case("calls/abort-again", "an abort of what has ended is taken", _abort_again)
    yield Case(
        "calls/units", "what is handed out, shared and freed adds up to what each request owns", _units
    )
    yield Case("calls/preempt", "a preemption is a decision, and the request is scheduled again", _preempt)


def _two(subject: Subject) -> Trace:
    m = subject.max_tokens
    return trace(subject, [submit(0, subject.long_tokens, m), submit(1, subject.prompt_tokens, m)])


def _words(subject: Subject) -> str:
    found = _two(subject)
    for call in found.calls:
        if not isinstance(call.reaction, Reaction) or not isinstance(call.after, State):
            return f"{call.kind} gives {type(call.reaction).__name__}, state() {type(call.after).__name__}"
        for event in call.reaction.events:
            if isinstance(event, Decision):
                if event.kind not in DECISION_KINDS or event.request not in (0, 1):
                    return f"{call.kind}: {event}"
            elif not isinstance(event, BlockChange):
                return f"{call.kind}: {event!r} is no event"
            elif event.action not in BLOCK_ACTIONS or event.pool not in found.built.pools:
                return f"{call.kind}: {event}"
    return found.wrong()


def _rows(subject: Subject) -> str:
    found = _two(subject)
    for request, prompt in ((0, subject.long_tokens), (1, subject.prompt_tokens)):
        computed = 0
        for row in found.rows(request):
            if not row.tokens or row.computed_tokens != computed:
                return f"R{request} has {computed} tokens computed, a step says {row}"
            computed += row.tokens
        least = prompt + subject.max_tokens - 1
        if computed < least:
            return f"R{request} ends with {computed} computed tokens, it needs {least}"
    return found.wrong()


def _kinds(subject: Subject) -> str:
    found = _two(subject)
    for request, prompt in ((0, subject.long_tokens), (1, subject.prompt_tokens)):
        for row in found.rows(request):
            right = "prefill" if (row.computed_tokens or 0) < prompt else "decode"
            if row.kind != right:
                return f"R{request} with {row.computed_tokens} of {prompt} tokens of its prompt: {row.kind}"
        if not found.rows(request):
            return f"R{request} is never scheduled"
    return found.wrong()


def _handle(subject: Subject) -> str:
    found = _two(subject)
    for call in found.calls:
        if call.kind == "step" and call.reaction.scheduled() and call.reaction.handle is None:
            return "a step schedules something and gives no handle"
        if call.kind != "step" and call.reaction.handle is not None:
            return f"{call.kind} gives a handle"
    return found.wrong()


def _tokens(subject: Subject) -> str:
    found = _two(subject)
    tokens = Tokens()
    for request, prompt in ((0, subject.long_tokens), (1, subject.prompt_tokens)):
        right = [tokens(request, prompt + n) for n in range(subject.max_tokens)]
        if found.emitted(request) != right:
            return f"R{request} shows {found.emitted(request)[:8]} in place of {right[:8]}"
    return found.wrong()


def _positions(subject: Subject) -> str:
    m = subject.max_tokens
    answer = Answer(0, 1, position=_SHIFT)
    inputs = [submit(0, subject.prompt_tokens, m), Input("step"), Input("output", answers=(answer,))]
    found = trace(subject, inputs)
    right = Tokens()(0, _SHIFT)
    return "" if found.emitted(0)[:1] == [right] else f"shown {found.emitted(0)[:1]} in place of {right}"


def _stop(subject: Subject) -> str:
    found = trace(
        subject, [submit(0, subject.prompt_tokens, 8)], endings=(Ending(0, 2, "stop"),)
    )  # it would go on for 8
    shown = found.emitted(0)
    if found.count("finish", 0) != 1:
        return f"{found.count('finish', 0)} decisions say that it ends"
    if [t for t in shown[2:] if t >= FIRST] or Tokens()(0, subject.prompt_tokens) not in shown:
        return f"it shows {shown} after a stop with its second token"
    return found.wrong()


def _finish(subject: Subject) -> str:
    found = _two(subject)
    for request in (0, 1):
        if found.count("finish", request) != 1:
            return f"R{request} has {found.count('finish', request)} decisions that say that it ends"
        ended = next(
            n for n, c in enumerate(found.calls) if any(d.request == request for d in c.decisions("finish"))
        )
        for call in found.calls[ended:]:
            state = call.after.requests.get(request)
            if state is not None and state.phase != "finished":
                return f"R{request} has ended and is in {state.phase}"
    return found.wrong()


def _abort(subject: Subject) -> str:
    m = subject.max_tokens
    for steps in range(4):
        pairs = [Input(k) for _ in range(steps) for k in ("step", "output")]
        inputs = [submit(0, subject.long_tokens, m), submit(1, subject.prompt_tokens, m), *pairs]
        found = trace(subject, [*inputs, Input("abort", requests=(0,))])
        at = next(n for n, c in enumerate(found.calls) if c.kind == "abort")
        for call in found.calls[at + 1 :]:
            if any(r == 0 and tokens for r, tokens in call.reaction.emitted):
                return f"aborted after {steps} steps, shown after that"
            if any(d.request == 0 for d in call.reaction.scheduled()):
                return f"aborted after {steps} steps, scheduled after that"
        state = found.calls[-1].after.requests.get(0)
        if state is not None and state.phase != "finished":
            return f"aborted after {steps} steps, in {state.phase} at the end"
        if found.wrong():
            return found.wrong()
    return ""


def _abort_again(subject: Subject) -> str:
    inputs = [submit(0, subject.prompt_tokens, 1), submit(1, subject.prompt_tokens, 1)]
    inputs += [Input(k) for _ in range(6) for k in ("step", "output")]
    inputs += [Input("abort", requests=(0,)), Input("abort", requests=(0, 1)), Input("abort", requests=(1,))]
    return trace(subject, inputs).wrong()


def _units(subject: Subject) -> str:
    m, shared = subject.max_tokens, subject.shared_tokens
    stories = [(subject.config, m, subject.long_tokens)]
    if subject.tight is not None:
        stories.append((subject.tight, subject.tight_tokens, subject.prompt_tokens))
    for config, produced, prompt in stories:
        common = min(shared, prompt)
        inputs = [submit(n, prompt, produced) for n in range(2)]
        inputs += [Input(k) for _ in range(3) for k in ("step", "output")]
        inputs += [submit(2, prompt, produced), Input("step"), Input("output"), Input("abort", requests=(1,))]
        found = trace(subject, inputs, config=config, prefixes=((2, 0, 0, common),))
        why = _owned(found) or found.wrong()
        if why:
            return why
    return ""


def _owned(found: Trace) -> str:
    """Replay the changes of units and compare them with what each request owns."""
    owners: dict[tuple[str, int], set[int | None]] = {}
    for n, call in enumerate(found.calls):
        for event in call.reaction.events:
            if not isinstance(event, BlockChange) or event.action not in ("alloc", "share", "free"):
                continue
            for unit in event.units:
                held = owners.setdefault((event.pool, unit), set())
                if event.action == "free":
                    if event.request not in held:
                        unit_name = f"{event.pool}{unit}"
                        return f"call {n} ({call.kind}): R{event.request} frees {unit_name} without owning it"
                    held.remove(event.request)
                else:
                    held.add(event.request)
        for number, request in call.after.requests.items():
            said = {(p, u) for p, units in request.units.items() for u in units}
            told = {unit for unit, held in owners.items() if number in held}
            if said != told:
                return f"call {n} ({call.kind}): R{number} owns {_some(said)}, the events say {_some(told)}"
    left = {unit for unit, held in owners.items() if held}
    return f"at the end {_some(left)} were never freed" if left else ""


def _some(units: set[tuple[str, int]]) -> str:
    return " ".join(f"{p}{u}" for p, u in sorted(units)[:8]) or "nothing"


def _preempt(subject: Subject) -> str:
    if subject.tight is None:
        raise Skip("no tight configuration is given")
    inputs = [submit(n, subject.prompt_tokens, subject.tight_tokens) for n in range(2)]
    found = trace(subject, inputs, config=subject.tight)
    at = next((n for n, c in enumerate(found.calls) if c.decisions("preempt")), None)
    seen = {r.phase for c in found.calls for r in c.after.requests.values()}
    if at is None:
        return "no decision says that a request is preempted" + " (one was)" * ("preempted" in seen)
    if "preempted" not in seen:
        return "a request is preempted, and none is ever in that phase"
    request = found.calls[at].decisions("preempt")[0].request
    if not any(d.request == request for c in found.calls[at + 1 :] for d in c.reaction.scheduled()):
        return f"R{request} is preempted and never scheduled again"
    if len(found.emitted(request)) != subject.tight_tokens:
        return f"R{request} shows {len(found.emitted(request))} of {subject.tight_tokens} tokens"
    return found.wrong()
