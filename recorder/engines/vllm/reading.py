"""What vLLM's objects say of a step and of its output, by columns: there may be hundreds of requests in each.

`map` with `attrgetter` reads a column several times faster than a loop does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, repeat
from operator import add, attrgetter, le, sub
from types import FrameType
from typing import Any, NamedTuple

__all__ = ["Answered", "Scheduled", "StepReader", "answered_in", "end_word", "filled_in", "request_of"]

_FILLED = ("request", "blocks", "num_cached_blocks", "num_full_blocks", "block_size")
_COMPUTED, _PROMPT = attrgetter("num_computed_tokens"), attrgetter("num_prompt_tokens")
_OUTPUTS, _ID, _TOKENS, _REASON = map(attrgetter, ("outputs", "request_id", "new_token_ids", "finish_reason"))


class Scheduled(NamedTuple):
    """What a step schedules: requests, tokens, those computed before, whether a prefill, computed after.

    Whatever is more than the next token of an answer counts as a prefill.
    """

    keys: list[str]
    tokens: list[int]
    computed: list[int]
    is_prefill: list[bool]
    after: list[int]


class StepReader:
    """Reads the steps of one scheduler, each after it was made.

    Parameters
    ----------
    requests : mapping of str to vllm.v1.request.Request
        The scheduler's own.
    """

    def __init__(self, requests: Mapping[str, Any]) -> None:
        self._requests = requests
        self._last: tuple[list[str], list[int], list[bool]] = ([], [], [])
        """Of the last step: requests, tokens computed after it, prefills; empty if there was one of these."""

    def changed(self) -> None:
        """Note that a request got another prompt: it may stand where another one stood."""
        self._last = [], [], []

    def read(self, output: Any) -> Scheduled:
        """Return what a step schedules, in the order in which the model gets it.

        Parameters
        ----------
        output : vllm.v1.core.sched.output.SchedulerOutput
        """
        keys, tokens = list(output.num_scheduled_tokens), list(output.num_scheduled_tokens.values())
        one_each = tokens.count(1) == len(tokens)
        known, after, is_prefill = self._last
        if one_each and keys == known:
            cached = output.scheduled_cached_reqs
            if cached.num_computed_tokens == after and cached.req_ids == keys:  # one token on, all of them
                step = Scheduled(keys, tokens, after, is_prefill, list(map(add, after, tokens)))
                self._last = keys, step.after, is_prefill
                return step
        found = list(map(self._requests.__getitem__, keys))
        after = list(map(_COMPUTED, found))
        is_prefill = list(map(le, after, map(_PROMPT, found)))
        if not one_each:
            is_prefill = [n != 1 or p for n, p in zip(tokens, is_prefill, strict=True)]
        self._last = ([], [], []) if True in is_prefill else (keys, after, is_prefill)
        return Scheduled(keys, tokens, list(map(sub, after, tokens)), is_prefill, after)


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
    ids, reasons, shown = list(map(_ID, given)), list(map(_REASON, given)), list(map(_TOKENS, given))
    keys = list(output.num_scheduled_tokens)
    sampled = _sampled(model_output, keys)
    tokens = list(map(len, sampled))
    other: list[tuple[str, int]] = []
    counts = list(map(len, shown))
    if ids != keys or counts != tokens:
        emitted = dict(zip(ids, counts, strict=True))
        other = [
            (k, e) for k, n, e in zip(keys, tokens, map(emitted.get, keys, repeat(0)), strict=True) if e != n
        ]
    words: dict[str, str] = {}
    if reasons.count(None) != len(reasons):
        words = {key: end_word(r) for key, r in zip(ids, reasons, strict=True) if r is not None}
        late = [key for key in words if key not in output.num_scheduled_tokens]
        keys, tokens = keys + late, tokens + [0] * len(late)
    return Answered(keys, tokens, words, other)


def _sampled(model_output: Any, keys: list[str]) -> list[Sequence[int]]:
    """Return the tokens that the model gave each request; none where it did not run."""
    index: Mapping[str, int] = model_output.req_id_to_index
    sampled: list[Sequence[int]] = model_output.sampled_token_ids
    if not sampled:
        return [()] * len(keys)
    if list(index) == keys and list(index.values()) == list(range(len(sampled))):  # as they were scheduled
        return sampled
    return [sampled[index[key]] if key in index else () for key in keys]


def filled_in(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, int]:
    """Return whose blocks became full, and how many tokens are in full ones.

    Parameters
    ----------
    args, kwargs
        What the pool's `cache_full_blocks` is called with.
    """
    if args:
        kwargs = {**dict(zip(_FILLED, args, strict=False)), **kwargs}
    return kwargs["request"], kwargs["num_full_blocks"] * kwargs["block_size"]


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
