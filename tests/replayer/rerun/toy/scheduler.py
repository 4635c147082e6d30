"""The toy request scheduler. Units are not freed before the steps that use them are over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tapedelay.replayer.rerun.protocol import BlockChange, Decision

from .pools import UnitPool

__all__ = ["STOP", "Request", "Row", "Scheduler", "Step"]

STOP = -1
"""The token that ends an answer."""


@dataclass(eq=False)
class Request:
    """One request; its status is `waiting`, `running`, `preempted`, `chunk` (no input left) or `finished`."""

    number: int
    tokens: list[int]
    limit_each: int
    """Tokens to make, after each chunk."""
    priority: int = 0
    session: bool = False
    blocked: bool = False
    arrival: int = 0
    status: str = "waiting"
    prompt: int = 0
    """Tokens that have to be computed before it decodes."""
    computed: int = 0
    """Tokens whose units are written, those of steps in flight included."""
    pending: int = 0
    """Tokens that steps in flight are going to give."""
    made: int = 0
    limit: int = 0
    in_flight: int = 0
    stale: int = 0
    """Steps in flight, the oldest ones, whose tokens are of no use any more."""
    kv: list[int] = field(default_factory=list)
    slot: list[int] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)

    @property
    def wanted(self) -> int:
        """How many tokens can be computed now."""
        return (
            0 if self.made + self.pending >= self.limit else len(self.tokens) + self.pending - self.computed
        )

    @property
    def prefilling(self) -> bool:
        """Whether tokens are left that have to be computed before it decodes."""
        return self.computed < self.prompt


@dataclass(frozen=True)
class Row:
    """A request in a step."""

    request: Request
    count: int
    computed: int
    gives: bool
    """Whether the step gives a token for it."""


@dataclass(frozen=True)
class Step:
    """A step in flight."""

    rows: list[Row]


class Scheduler:
    """First come, first served, or by priority; running requests before waiting ones."""

    def __init__(self, config: Mapping[str, Any], source: Callable[[int, int], int]) -> None:
        self.unit_tokens = int(config["unit_tokens"])
        self.token_budget = int(config["token_budget"])
        self.max_running = int(config["max_running"])
        self.by_priority = bool(config.get("priority", False))
        slots = int(config.get("slots", 0))
        self.sharing = bool(config.get("sharing", False)) and not slots
        self.source = source
        self.events: list[Decision | BlockChange] = []
        self.emitted: list[tuple[int, tuple[int, ...]]] = []
        self.ends: list[tuple[int, str]] = []
        """Requests that an output has ended, or a turn of which, and why."""
        self._owner: int | None = None
        self.kv = UnitPool("kv", int(config["kv_units"]), 1, lambda a, u: self._block("kv", a, u))
        self.slots = UnitPool("state", slots, 0, lambda a, u: self._block("state", a, u)) if slots else None
        self.requests: dict[int, Request] = {}
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.pause_word = ""
        self.unfinished = 0
        self.tokens_in_flight = 0
        self._arrivals = 0

    # --- inputs ---

    def add(self, request: Request, reserve_tokens: int = 0) -> None:
        """A request arrives; one that could never finish is rejected."""
        request.prompt = len(request.tokens)
        request.limit = request.limit_each
        request.arrival = self._arrivals
        self._arrivals += 1
        if self.units_for(request.prompt + request.limit) > len(self.kv.references) - 1:
            self.events.append(Decision("reject", request.number))
            return
        self.requests[request.number] = request
        self.unfinished += 1
        self.waiting.append(request)
        reserve = self.units_for(reserve_tokens)
        if request.blocked and reserve <= self.kv.free_count:
            self._take(request, reserve)

    def abort(self, numbers: Sequence[int]) -> None:
        """Requests are no longer wanted; one that is unknown or over is ignored."""
        for number in numbers:
            request = self.requests.get(number)
            if request is not None and request.status != "finished":
                self.drop(request)

    def drop(self, request: Request) -> None:
        """End a request before its time."""
        self.finish(request)

    def set_schedulable(self, number: int) -> None:
        """A request that waited for something outside need not wait any longer."""
        if number in self.requests:
            self.requests[number].blocked = False

    def next_chunk(self, number: int, tokens: int, last: bool) -> None:
        """A session goes on for so many tokens; after its last chunk, which may be empty, it is over."""
        request = self.requests.get(number)
        if request is None or request.status == "finished" or not request.session:
            return
        more = request.limit - request.made + sum(request.chunks) + request.limit_each * len(request.chunks)
        if (
            self.units_for(len(request.tokens) + more + tokens + request.limit_each)
            > len(self.kv.references) - 1
        ):
            self.drop(request)  # it would outgrow the pool
            return
        request.session = not last
        if tokens:
            request.chunks.append(tokens)
        if request.status == "chunk":
            self.ended(request)

    def pause(self, word: str) -> None:
        """``wait``: nothing new is admitted; ``keep``: nothing is scheduled."""
        self.pause_word = word

    def resume(self) -> None:
        """Undo `pause`."""
        self.pause_word = ""

    def cache_reset(self, word: str) -> None:
        """Forget what units contain; ``running``: requests that are not in flight are preempted before."""
        if word == "running":
            for request in [r for r in self.running if not r.in_flight]:
                self.preempt(request)
        self.kv.forget_all()

    def set_priority(self, number: int, value: int) -> None:
        """Change a request's priority."""
        if number in self.requests:
            self.requests[number].priority = value

    # --- a step ---

    def step(self, decode_only: bool) -> Step | None:
        """Schedule; None where nothing is."""
        rows: list[Row] = []
        if self.pause_word != "keep":
            preempted = self._step_running(rows, decode_only)
            if not preempted and not decode_only and not self.pause_word:
                self._step_waiting(rows)
        return Step(rows) if rows else None

    def holds_back(self, request: Request, decode_only: bool) -> bool:
        """Whether a running request is left out of a step."""
        return decode_only and request.prefilling

    def _step_running(self, rows: list[Row], decode_only: bool) -> bool:
        preempted = False
        for request in list(self.running):
            count = min(request.wanted, self.token_budget - sum(r.count for r in rows))
            if request.status != "running" or count <= 0 or self.holds_back(request, decode_only):
                continue
            needed = self.units_for(request.computed + count) - len(request.kv)
            while needed > self.kv.free_count:
                victim = self._victim(request, rows)
                if victim is None:
                    break
                self.preempt(victim)
                preempted = True
            else:
                self._take(request, needed)
                self._schedule(request, count, rows)
        return preempted

    def _step_waiting(self, rows: list[Row]) -> None:
        for request in sorted(self.waiting, key=self._rank):
            budget = self.token_budget - sum(r.count for r in rows)
            if len(self.running) >= self.max_running or budget <= 0:
                return
            if request.blocked or not request.wanted:
                continue
            while not self._admit(request, budget, rows):
                holder = None if self.running else self._holder(request)
                if holder is None:
                    return
                self.preempt(holder)

    def _admit(self, request: Request, budget: int, rows: list[Row]) -> bool:
        shared = self._match(request)
        computed = request.computed + len(shared) * self.unit_tokens
        count = min(request.wanted - computed + request.computed, budget)
        needed = self.units_for(computed + count) - len(request.kv) - len(shared)
        if needed > self.kv.free_count - sum(self.kv.references[u] == 0 for u in shared):
            return False
        if self.slots is not None and not request.slot and not self.slots.free_count:
            return False
        self._owner = request.number
        for unit in shared:
            self.kv.touch(unit)
        if shared:
            self._block("kv", "read", shared)
        request.kv += shared
        request.computed = computed
        self._take(request, needed)
        if self.slots is not None and not request.slot:
            request.slot = self.slots.take(1)
        self.waiting.remove(request)
        if request.status == "preempted":
            self.events.append(Decision("resume", request.number))
        request.status = "running"
        self.running.append(request)
        self._schedule(request, count, rows)
        return True

    def _schedule(self, request: Request, count: int, rows: list[Row]) -> None:
        kind = "prefill" if request.prefilling else "decode"
        gives = request.computed + count == len(request.tokens) + request.pending
        rows.append(Row(request, count, request.computed, gives))
        self.events.append(Decision(kind, request.number, count, request.computed))
        request.computed += count
        request.in_flight += 1
        if gives:
            request.pending += 1
            self.tokens_in_flight += 1

    def _match(self, request: Request) -> list[int]:
        """Return the units that contain the beginning of a request which has none."""
        units: list[int] = []
        if self.sharing and not request.kv:
            for end in range(self.unit_tokens, len(request.tokens), self.unit_tokens):
                unit = self.kv.content.get(tuple(request.tokens[:end]))
                if unit is None:
                    break
                units.append(unit)
        return units

    # --- its output ---

    def output(self, step: Step, answers: Mapping[int, Sequence[int]]) -> None:
        """A step is over and gave tokens."""
        for row in step.rows:
            request = row.request
            request.in_flight -= 1
            if request.status == "finished":
                self.late(request, answers.get(request.number, ()))
                continue
            if request.stale:
                request.stale -= 1
                continue
            self.written(request, row.computed + row.count)
            if row.gives:
                request.pending -= 1
                self.tokens_in_flight -= 1
                self.accept(request, answers.get(request.number, ()))

    def late(self, request: Request, tokens: Sequence[int]) -> None:
        """A request that is over got its output."""
        if not request.in_flight:
            self.release(request)
            self.requests.pop(request.number, None)

    def accept(self, request: Request, tokens: Sequence[int]) -> None:
        """Take what a step gave for a request, but no more than it wants."""
        tokens = tokens[: request.limit - request.made]
        if tokens:
            request.tokens += tokens
            request.made += len(tokens)
            self.emitted.append((request.number, tuple(tokens)))
        if request.made >= request.limit or STOP in tokens:
            self.ends.append((request.number, "stop" if STOP in tokens else "length"))
            self.forget_pending(request)
            self.ended(request)

    def forget_pending(self, request: Request) -> None:
        """What is in flight for a request is of no use any more."""
        request.stale = request.in_flight
        self.tokens_in_flight -= request.pending
        request.pending = 0
        request.computed = min(request.computed, len(request.tokens))

    def ended(self, request: Request) -> None:
        """A request has no input left: it takes its next chunk, waits for one, or is over."""
        if not request.chunks and not request.session:
            self.finish(request)
            return
        self._unqueue(request)
        request.status = "chunk"
        request.limit = request.made
        if request.chunks:
            # The last token of a turn was never an input: the chunk stands in its place.
            request.tokens.pop()
            request.computed = min(request.computed, len(request.tokens))
            at = len(request.tokens)
            request.tokens += [self.source(request.number, at + n) for n in range(request.chunks.pop(0))]
            request.prompt = len(request.tokens)
            request.limit = request.made + request.limit_each
            request.status = "waiting"
            self.waiting.append(request)

    def written(self, request: Request, tokens: int) -> None:
        """Units of a request are filled up to a token."""
        if self.sharing:
            self._owner = request.number
            self._block("kv", "fill", request.kv[: self.units_for(tokens)])
            for n in range(min(tokens, len(request.tokens)) // self.unit_tokens):
                self.kv.remember(request.kv[n], tuple(request.tokens[: (n + 1) * self.unit_tokens]))

    # --- what is given back ---

    def finish(self, request: Request) -> None:
        """A request is over; what steps in flight use of it is given back after them."""
        self._unqueue(request)
        self.forget_pending(request)
        request.status = "finished"
        self.unfinished -= 1
        self.events.append(Decision("finish", request.number))
        if not request.in_flight:
            self.release(request)
            del self.requests[request.number]

    def preempt(self, request: Request) -> None:
        """Take everything from a request that is not in flight; it is computed again later."""
        self.events.append(Decision("preempt", request.number))
        self.release(request)
        request.computed = 0
        request.prompt = len(request.tokens)
        if request.status == "running":
            self._unqueue(request)
            request.status = "preempted"
            self.waiting.append(request)

    def release(self, request: Request) -> None:
        """Give back all units, the last ones first."""
        self._owner = request.number
        self.kv.give(reversed(request.kv))
        request.kv = []
        if self.slots is not None:
            self.slots.give(request.slot)
            request.slot = []

    def _victim(self, request: Request, rows: Sequence[Row]) -> Request | None:
        holder = self._holder(request)
        if holder is not None:
            return holder
        scheduled = {r.request.number for r in rows}
        worse = [
            r
            for r in self.running
            if not r.in_flight and r.number not in scheduled and self._rank(r) > self._rank(request)
        ]
        return max(worse, key=self._rank, default=None)

    def _holder(self, request: Request) -> Request | None:
        """Return a request that holds units without running."""
        idle = [
            r
            for r in self.requests.values()
            if r is not request and (r.kv or r.slot) and not r.in_flight and r.status in ("waiting", "chunk")
        ]
        return max(idle, key=self._rank, default=None)

    def _take(self, request: Request, count: int) -> None:
        self._owner = request.number
        request.kv += self.kv.take(max(count, 0))

    def _unqueue(self, request: Request) -> None:
        for queue in (self.waiting, self.running):
            if request in queue:
                queue.remove(request)

    def _rank(self, request: Request) -> tuple[int, int]:
        return (request.priority if self.by_priority else 0, request.arrival)

    def units_for(self, tokens: int) -> int:
        """Return how many units hold so many tokens."""
        return -(-tokens // self.unit_tokens)

    def _block(self, pool: str, action: str, units: list[int]) -> None:
        self.events.append(BlockChange(action, pool, tuple(units), self._owner))
