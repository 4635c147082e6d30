"""What vLLM's objects say of a step and of its output, by columns: there may be hundreds of requests in each.

`map` with `attrgetter` reads a column several times faster than a loop does.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, repeat
from operator import attrgetter, le, sub
from types import FrameType
from typing import Any, NamedTuple

__all__ = ["Answered", "answered_in", "end_word", "request_of", "scheduled_in"]

_COMPUTED, _PROMPT = attrgetter("num_computed_tokens"), attrgetter("num_prompt_tokens")
_OUTPUTS, _ID, _TOKENS, _REASON = map(attrgetter, ("outputs", "request_id", "new_token_ids", "finish_reason"))


def scheduled_in(
    output: Any, requests: Mapping[str, Any]
) -> tuple[list[str], list[int], list[int], list[bool]]:
    """Return requests, tokens, tokens computed before and whether it is a prefill, of a step that was made.

    Parameters
    ----------
    output : vllm.v1.core.sched.output.SchedulerOutput
        The step, in the order in which the model gets it.
    requests : mapping of str to vllm.v1.request.Request
        The scheduler's own, after the step.

    Notes
    -----
    Whatever is more than the next token of an answer counts as a prefill.
    """
    keys, tokens = list(output.num_scheduled_tokens), list(output.num_scheduled_tokens.values())
    found = list(map(requests.__getitem__, keys))
    after = list(map(_COMPUTED, found))
    is_prefill = list(map(le, after, map(_PROMPT, found)))
    if tokens.count(1) != len(tokens):
        is_prefill = [n != 1 or p for n, p in zip(tokens, is_prefill, strict=True)]
    return keys, tokens, list(map(sub, after, tokens)), is_prefill


class Answered(NamedTuple):
    """What the model gave for a step, and where something else was shown.

    Attributes
    ----------
    keys, tokens : list
        The requests, and how many tokens each got.
    words : dict of str to str
        Of those that end: why.
    other : list of (str, int)
        Requests of which not as many tokens were shown, and how many were.
    """

    keys: list[str]
    tokens: list[int]
    words: dict[str, str]
    other: list[tuple[str, int]]


def answered_in(output: Any, model_output: Any, result: Mapping[int, Any]) -> Answered:
    """Return what an output brings.

    Parameters
    ----------
    output : vllm.v1.core.sched.output.SchedulerOutput
        The step that it answers.
    model_output : vllm.v1.outputs.ModelRunnerOutput
        What the model gave.
    result : mapping of int to vllm.v1.engine.EngineCoreOutputs
        What the scheduler shows, for each client.
    """
    given = list(chain.from_iterable(map(_OUTPUTS, result.values())))
    ids, reasons = list(map(_ID, given)), list(map(_REASON, given))
    keys = list(output.num_scheduled_tokens)
    tokens = _counts(model_output, keys)
    emitted = list(map(len, map(_TOKENS, given)))
    if ids != keys:
        emitted = list(map(dict(zip(ids, emitted, strict=True)).get, keys, repeat(0)))
    other: list[tuple[str, int]] = []
    if emitted != tokens:
        other = [(k, e) for k, n, e in zip(keys, tokens, emitted, strict=True) if e != n]
    words: dict[str, str] = {}
    if reasons.count(None) != len(reasons):
        words = {key: end_word(r) for key, r in zip(ids, reasons, strict=True) if r is not None}
        late = [key for key in words if key not in output.num_scheduled_tokens]
        keys, tokens = keys + late, tokens + [0] * len(late)
    return Answered(keys, tokens, words, other)


def _counts(model_output: Any, keys: list[str]) -> list[int]:
    """Return how many tokens the model gave each request; none where it did not run."""
    index, sampled = model_output.req_id_to_index, model_output.sampled_token_ids
    if not sampled:
        return [0] * len(keys)
    if list(index) == keys and list(index.values()) == list(range(len(sampled))):  # as they were scheduled
        return list(map(len, sampled))
    try:
        return list(map(len, map(sampled.__getitem__, map(index.__getitem__, keys))))
    except KeyError:
        return [len(sampled[index[key]]) if key in index else 0 for key in keys]


def request_of(caller: FrameType) -> str | None:
    """Return the request for which a manager of vLLM asks the pool right now.

    The pool is not told. A wrapper around what is called for each request in each step would cost more than
    looking at the caller where blocks really change hands, which is rare.
    """
    key = caller.f_locals.get("request_id")
    return key if isinstance(key, str) else None


def end_word(reason: Any) -> str:
    """Return a known word for why a request ends."""
    return str(reason.name).lower() if reason is not None else "error"
