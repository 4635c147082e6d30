"""The adapter of the toy scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from tapedelay.formats.requests.words import INPUT_KINDS
from tapedelay.replayer.rerun.protocol import (
    Answer,
    PoolState,
    Reaction,
    RequestState,
    State,
    Submission,
    TokenSource,
    Unsupported,
)

from .faults import FAULTS
from .pools import UnitPool
from .scheduler import STOP, Request, Scheduler, Step

__all__ = ["ToyDriver", "ToyEngine"]

INPUTS = frozenset(INPUT_KINDS) | {"decode_only"}


class ToyEngine:
    """One toy scheduler. The flag ``session``: takes chunks; ``blocked``: waits for `set_schedulable`."""

    def __init__(self, config: Mapping[str, Any], tokens: TokenSource) -> None:
        self.scheduler = Scheduler(config, tokens)
        self.tokens = tokens
        self.depth = int(config.get("depth", 1))
        self.flying: list[Step] = []
        self._priority = bool(config.get("priority", False))

    def submit(self, submission: Submission) -> Reaction:
        """A request arrives."""
        unknown = set(submission.flags) - {"session", "blocked"}
        if unknown:
            raise Unsupported(f"no such flag: {', '.join(sorted(unknown))}")
        number, prompt = submission.request, submission.prompt_tokens
        room = self.scheduler.unit_tokens * (len(self.scheduler.kv.references) - 1)
        limit = submission.max_tokens if submission.max_tokens is not None else max(room - prompt, 1)
        request = Request(
            number,
            [self.tokens(number, p) for p in range(prompt)],
            limit,
            priority=submission.priority or 0,
            session="session" in submission.flags,
            blocked="blocked" in submission.flags,
        )
        self.scheduler.add(request, submission.reserve_tokens or 0)
        return self._reaction()

    def abort(self, requests: Sequence[int]) -> Reaction:
        """Requests are no longer wanted."""
        self.scheduler.abort(requests)
        return self._reaction()

    def set_schedulable(self, request: int) -> Reaction:
        """A blocked request may be scheduled."""
        self.scheduler.set_schedulable(request)
        return self._reaction()

    def next_chunk(self, request: int, tokens: int, last: bool) -> Reaction:
        """A session goes on."""
        self.scheduler.next_chunk(request, tokens, last)
        return self._reaction()

    def pause(self, word: str) -> Reaction:
        """Pause: ``wait`` or ``keep``."""
        if word not in ("wait", "keep"):
            raise Unsupported(f"no pause {word!r}; there is wait, keep")
        self.scheduler.pause(word)
        return self._reaction()

    def resume(self) -> Reaction:
        """Undo `pause`."""
        self.scheduler.resume()
        return self._reaction()

    def cache_reset(self, word: str) -> Reaction:
        """Forget contents; ``running`` preempts before."""
        self.scheduler.cache_reset(word)
        return self._reaction()

    def priority(self, request: int, value: int) -> Reaction:
        """Change a priority."""
        if not self._priority:
            raise Unsupported("this configuration has no priorities")
        self.scheduler.set_priority(request, value)
        return self._reaction()

    def step(self, decode_only: bool = False) -> Reaction:
        """Schedule."""
        if len(self.flying) >= self.depth:
            raise Unsupported(f"{self.depth} steps are in flight already")
        step = self.scheduler.step(decode_only)
        if step is not None:
            self.flying.append(step)
        return self._reaction(step)

    def output(self, handle: Any, answers: Sequence[Answer]) -> Reaction:
        """The oldest step in flight is over."""
        if not self.flying or handle is not self.flying[0]:
            raise Unsupported("outputs come in the order of the steps")
        self.flying.pop(0)
        given = {a.request: self._given(a) for a in answers}
        self.scheduler.output(handle, given)
        words = {a.request: a.word for a in answers}
        for number, word in words.items():
            if word not in (None, "length", "stop"):
                self.scheduler.abort([number])
        ended = tuple(self.scheduler.ends)
        self.scheduler.ends.clear()
        return replace(self._reaction(), ended=ended)

    def _given(self, answer: Answer) -> list[int]:
        at = answer.position or 0
        tokens = [self.tokens(answer.request, at + n) for n in range(answer.tokens)]
        if answer.word == "stop" and tokens:
            tokens[-1] = STOP
        return tokens

    def state(self) -> State:
        """Return what is visible."""
        s = self.scheduler
        pools = {"kv": _pool(s.kv)}
        if s.slots is not None:
            pools["state"] = _pool(s.slots)
        return State(
            {n: _request(r, s) for n, r in s.requests.items()},
            pools,
            s.unfinished,
            bool(s.pause_word),
            {"tokens in flight": s.tokens_in_flight, "unfinished": s.unfinished},
        )

    def close(self) -> None:
        """Nothing is held."""

    def _reaction(self, handle: Step | None = None) -> Reaction:
        s = self.scheduler
        reaction = Reaction(tuple(s.events), handle, tuple(s.emitted))
        s.events.clear()
        s.emitted.clear()
        return reaction


def _pool(pool: UnitPool) -> PoolState:
    references = {u: n for u, n in enumerate(pool.references) if n}
    return PoolState(pool.free_count, tuple(pool.free), references)


def _request(request: Request, scheduler: Scheduler) -> RequestState:
    units = {"kv": tuple(request.kv)}
    if scheduler.slots is not None:
        units["state"] = tuple(request.slot)
    queue = next(
        (n for n, q in (("running", scheduler.running), ("waiting", scheduler.waiting)) if request in q), ""
    )
    phase = request.status
    if phase == "waiting" and request.blocked:
        phase = "blocked"
    elif phase == "waiting" and request.computed:
        phase = "prefill"
    elif phase == "running":
        phase = "prefill" if request.prefilling else "decode"
    return RequestState(phase, request.computed, len(request.tokens), request.in_flight, units, queue)


class ToyDriver:
    """Builds toy schedulers."""

    name = "toy"
    inputs = INPUTS
    shrinks: tuple[str, ...] = ("kv_units", "token_budget", "max_running", "slots", "depth")
    session_flag = "session"
    blocked_flag = "blocked"
    words: Mapping[str, tuple[str, ...]] = {"pause": ("wait", "keep"), "cache_reset": ("", "running")}

    def version(self) -> str:
        """Return the version."""
        return "1.0"

    def depth(self, config: Mapping[str, Any]) -> int:
        """Return how many steps may be in flight."""
        return int(config.get("depth", 1))

    def smaller(
        self, config: Mapping[str, Any], key: str, submissions: Sequence[Submission]
    ) -> list[Mapping[str, Any]]:
        """Return configurations with less of something, in which every request can still finish alone."""
        now = int(config.get(key, 0))
        least = 1
        if key == "kv_units":
            most = max((s.prompt_tokens + (s.max_tokens or 1) for s in submissions), default=1)
            least = -(-most // int(config["unit_tokens"])) + 1
        sizes = sorted({least, (least + now) // 2} - {now}, reverse=True)
        return [{**config, key: size} for size in sizes if least <= size < now]

    def build(self, config: Mapping[str, Any], tokens: TokenSource) -> ToyEngine:
        """Build one."""
        return ToyEngine(config, tokens)

    def faults(self) -> Mapping[str, Callable[[], AbstractContextManager[None]]]:
        """Return the faults that can be planted."""
        return {name: fault.planted for name, fault in FAULTS.items()}
