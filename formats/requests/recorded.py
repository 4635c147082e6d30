"""What a tape tells of its request schedulers, without deltas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from .carry import Answered, Scheduled

__all__ = ["Changed", "Decided", "RecordedInput", "RecordedPool", "RecordedRequest", "RecordedScheduler"]


class Decided(NamedTuple):
    """A decision that schedules nothing: preempt, resume, finish, reject."""

    kind: str
    request: int
    tokens: int | None = None
    computed_tokens: int | None = None


class Changed(NamedTuple):
    """Units of a pool that change hands at once, in the engine's order; `pool` is its name."""

    action: str
    pool: str
    units: tuple[int, ...]
    request: int | None = None


@dataclass(frozen=True, slots=True)
class RecordedPool:
    """A row of the table `pools`."""

    pool: int
    name: str
    units: int
    reserved: int
    tokens_per_unit: int | None


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A row of the table `requests`."""

    request: int
    prompt_tokens: int
    max_tokens: int | None
    priority: int | None
    flags: tuple[str, ...]
    reserve_tokens: int | None
    id_rank: int | None
    arrive_ns: int | None


@dataclass(frozen=True, slots=True)
class RecordedScheduler:
    """One scheduler of a tape.

    Attributes
    ----------
    scheduler : int
        Its id.
    engine, engine_version, config
        As in the table `schedulers`; `config` is parsed.
    pools : tuple of RecordedPool
    requests : mapping of int to RecordedRequest
        Its requests, first seen first.
    prefixes : tuple of (request, of, from_tokens, to_tokens)
    """

    scheduler: int
    engine: str
    engine_version: str | None
    config: Mapping[str, Any]
    pools: tuple[RecordedPool, ...]
    requests: Mapping[int, RecordedRequest]
    prefixes: tuple[tuple[int, int, int, int], ...]


@dataclass(frozen=True, slots=True)
class RecordedInput:
    """One input and all that it caused.

    Attributes
    ----------
    input, scheduler, kind, request, requests, step, tokens, decode_only, value, word, at_ns, arrive_ns, op
        As in the table `inputs`.
    events : tuple of (Decided or Changed)
        Decisions that schedule nothing, and units that change hands, in the engine's order.
    scheduled : tuple of Scheduled
        Of a ``step``: every request in it, in the scheduler's order.
    answers : tuple of Answered
        Of an ``output``: what each request of its step got.
    emitted : tuple of (int, int)
        Of an ``output``: request and tokens shown, where there were any.
    free : mapping of str to (int, int)
        Free and used units of the pools where that changed.
    """

    input: int
    scheduler: int
    kind: str
    request: int | None
    requests: tuple[int, ...]
    step: int | None
    tokens: int | None
    decode_only: bool
    value: int | None
    word: str | None
    at_ns: int | None
    arrive_ns: int | None
    op: int | None
    events: tuple[Decided | Changed, ...]
    scheduled: tuple[Scheduled, ...]
    answers: tuple[Answered, ...]
    emitted: tuple[tuple[int, int], ...]
    free: Mapping[str, tuple[int, int]]

    def aborted(self) -> tuple[int, ...]:
        """Return the requests that an ``abort`` names, in the engine's order."""
        return (*(() if self.request is None else (self.request,)), *self.requests)
