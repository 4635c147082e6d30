"""transformers' continuous batching as an `Engine`: its batch processor, called as its own loop calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ....recorder.engines.transformers import watch
from ..protocol import (
    Answer,
    BlockChange,
    Decision,
    Pool,
    PoolState,
    Reaction,
    RequestState,
    State,
    Submission,
    TokenSource,
    Unsupported,
)
from ..refusing import Refusing
from .build import build_processor

__all__ = ["END", "TransformersEngine"]

END = 1
"""The token that ends a request; synthetic tokens are larger."""

_PAUSE = "pause that reaches its scheduler: its loop stands still"


@dataclass(slots=True)
class _Step:
    """A step whose output is outstanding: the engine's batch."""

    number: int
    batch: list[Any]
    places: dict[str, int]
    """Of each request that gets a token: the position where it belongs."""


class TransformersEngine(Refusing):
    """One scheduler with its cache.

    Every request streams its tokens, so that each is seen when it comes; the scheduler does not look at that.

    Parameters
    ----------
    config : mapping
        As recorded.
    tokens : callable
        The tokens of every request.

    Attributes
    ----------
    pools : tuple of Pool
        Its pools, in the order of its attention types.
    """

    engine = "transformers"
    lacks = MappingProxyType({"pause": _PAUSE, "resume": _PAUSE})

    def __init__(self, config: Mapping[str, Any], tokens: TokenSource) -> None:
        watch.patch()
        self._tokens = tokens
        self._depth = 2 if config.get("use_async_batching") else 1
        self._processor = build_processor(config, self, self)
        self._cache = self._processor.cache
        self._scheduler = self._processor.scheduler
        self._offloading = self._processor.offloading_manager
        self._states = watch.module("requests").RequestState
        self.pools = tuple(Pool(*row) for row in watch.pools(self._cache))
        self._numbers: dict[str, int] = {}
        self._uses = 0
        self._shown: dict[int, int] = {}
        self._flying: list[_Step] = []
        self._steps = 0
        self._last: Mapping[str, int] = {}
        """`_Step.places` of the newest step."""
        self._waits: set[str] = set()
        """Ids of the requests that the output which is taken gives tokens."""
        self._given: tuple[list[Any], list[int]] = ([], [])
        self._events: list[Decision | BlockChange] = []
        self._emitted: list[tuple[int, tuple[int, ...]]] = []
        self._faults: dict[tuple[str, str], None] = {}
        self.guard = watch.Guard(_raise)
        self.offloading = False
        self.told: dict[int, dict[str, int]] = {}
        watch.attach(self._cache, self._scheduler, self._offloading, self)

    # --- inputs ---

    def submit(self, submission: Submission) -> Reaction:
        """Queue a request, as the loop does with what its input queue holds."""
        number = submission.request
        request_id = str(number)
        self._numbers[request_id] = number
        self._shown[number] = 0
        state = self._states(
            request_id=request_id,
            initial_tokens=[self._tokens(number, p) for p in range(submission.prompt_tokens)],
            max_new_tokens=submission.max_tokens,
            eos_token_id=END,
            streaming=True,
        )
        self._scheduler.add_waiting_request(state)
        return self._reaction()

    def abort(self, requests: Sequence[int]) -> Reaction:
        """Cancel requests. The loop does it right before a step is scheduled, the oldest outputs taken."""
        if self.must_answer():
            raise Unsupported(
                "transformers cancels a request only when the output of the step has been taken"
            )
        for number in requests:
            # One after the other: the engine goes through a set, whose order no rerun has.
            self._scheduler.set_request_cancellation(str(number))
            for state in self._scheduler.clear_cancelled_requests():
                self._offloading.free_request_cpu_cache(state)
        return self._reaction()

    def step(self, decode_only: bool = False) -> Reaction:
        """Schedule the next batch."""
        if decode_only:
            raise Unsupported("transformers has no steps that only decode")
        if self.must_answer():
            raise Unsupported("transformers schedules a step only when the output of the one before is taken")
        step = _Step(self._steps, [], {})
        self._flying.append(step)
        try:
            scheduled = self._processor.prepare_next_batch()
        except BaseException:
            self._flying.pop()
            raise
        finally:
            watch.tell_new(self._cache, self)
        if not scheduled:
            self._flying.pop()
            return self._reaction()
        self._steps += 1
        for future in step.batch:
            state, tokens = future.state, future.query_length
            computed = state.position_offset - tokens
            kind = "prefill" if computed < len(state.initial_tokens) else "decode"
            self._events.append(Decision(kind, self._numbers[state.request_id], tokens, computed))
        return self._reaction(step)

    def output(self, handle: Any, answers: Sequence[Answer]) -> Reaction:
        """Give the engine the tokens of its oldest step."""
        step = self._flying.pop(0)
        if step is not handle:
            raise Unsupported("transformers takes its outputs in the order of its steps")
        by_request = {a.request: a for a in answers}
        values = []
        for future in step.batch:
            if not future.has_new_token:
                continue
            state = future.state
            number = self._numbers[state.request_id]
            answer = by_request.get(number, Answer(number, 1))
            known = len(state.initial_tokens) + len(state.generated_tokens)
            position = known if answer.position is None else answer.position
            values.append(END if answer.word == "stop" else self._tokens(number, position))
        self._given = (step.batch, values)
        waits = [f.state for f in step.batch if f.has_new_token and self._lives(f.state)]
        before = [state.generated_len() for state in waits]
        self._waits = {state.request_id for state in waits}
        self._processor.update_batch()
        ended = tuple(
            (self._numbers[state.request_id], "stop" if state.generated_tokens[-1] == END else "length")
            for state, length in zip(waits, before, strict=True)
            if state.generated_len() > length and state.status.name == "FINISHED"
        )
        return self._reaction(ended=ended)

    def _lives(self, state: Any) -> bool:
        """Return whether the scheduler still has a request: one that is cancelled in flight has no end."""
        key = state.request_id
        return key in self._scheduler.active_requests or key in self._scheduler.waiting_requests

    def cache_reset(self, word: str) -> Reaction:
        """Begin a new session of the same processor, which forgets all requests."""
        if word != "session" or self._flying:
            raise Unsupported("transformers resets its cache only between two sessions")
        self._processor.reset()
        return self._reaction()

    def must_answer(self) -> bool:
        """Whether the oldest output has to come before any other input: the loop allows no more steps."""
        return len(self._flying) >= self._depth

    def stalled(self) -> str:
        """Say why nothing is scheduled, where it can be seen."""
        if self._scheduler.block_new_requests and not self._scheduler.active_requests:
            return "new requests are blocked until one ends, and none runs"
        return ""

    # --- what is visible ---

    def state(self) -> State:
        """Return what is visible between two calls."""
        scheduler = self._scheduler
        requests: dict[int, RequestState] = {}
        for state in scheduler.active_requests.values():
            done = state.position_offset >= len(state.initial_tokens)
            self._seen(requests, state, "decode" if done else "prefill", "running")
        for state in scheduler.waiting_requests.values():
            again = state.is_cpu_offloaded or state._true_initial_tokens
            self._seen(requests, state, "preempted" if again else "waiting", "waiting")
        pools = {
            pool.name: self._pool_state(allocator)
            for pool, allocator in zip(self.pools, self._cache.cache_allocators.values(), strict=True)
        }
        return State(
            requests=requests,
            pools=pools,
            unfinished=len(scheduler.active_requests) + len(scheduler.waiting_requests),
            counters={"free sectors": self._cache.pool.num_free_sectors},
            faults=(*self._faults, *self._wrong()),
        )

    def _seen(self, requests: dict[int, RequestState], state: Any, phase: str, queue: str) -> None:
        number = self._numbers[state.request_id]
        if number in requests:
            self._faults["I1", "a request stands in two queues"] = None
        requests[number] = RequestState(
            phase=phase,
            computed_tokens=state.position_offset,
            known_tokens=len(state.initial_tokens) + len(state.generated_tokens),
            in_flight=sum(any(f.state is state for f in step.batch) for step in self._flying),
            units={
                pool.name: tuple(allocator.block_table.get(state.request_id, ()))
                for pool, allocator in zip(self.pools, self._cache.cache_allocators.values(), strict=True)
            },
            queue=queue,
        )

    def _pool_state(self, allocator: Any) -> PoolState:
        shared = allocator.ledger.shared_ref_counts
        references = {u: shared.get(u, 1) for table in allocator.block_table.values() for u in table}
        return PoolState(
            free=watch.free_count(self._cache, allocator),
            free_units=tuple(watch.free_units(self._cache, allocator)),
            references={**shared, **references},
        )

    def _wrong(self) -> list[tuple[str, str]]:
        """Return what only the engine's own structures show."""
        found = []
        scheduler, allocators = self._scheduler, list(self._cache.cache_allocators.values())
        if sorted(scheduler.waiting_requests_order) != sorted(scheduler.waiting_requests):
            found.append(("I5", "the waiting queue and its order name other requests"))
        held = [s for a in allocators for s in watch.sectors(self._cache, a)] + self._cache.pool.free_sectors
        if len(held) != len(set(held)):
            found.append(("I1", "a sector is handed out twice"))
        for allocator in allocators:
            ledger = allocator.ledger
            if {h: b for b, h in ledger.block_to_hash.items()} != ledger.hash_to_block:
                found.append(("I6", "the two tables of unit contents disagree"))
            if not ledger.cached_blocks.keys() <= ledger.block_to_hash.keys():
                found.append(("I6", "a unit is kept for a content that nobody can find"))
        swapped = self._offloading._request_id_to_cpu_blocks
        if any(r not in scheduler.waiting_requests for r in swapped):
            found.append(("I3", "swap units are held by a request that does not wait"))
        pool = self._offloading._cpu_pool
        if pool is not None:
            for allocator in allocators:
                free = pool.count_free_blocks(allocator.index)
                if free < 0:
                    found.append(("I7", "the free count of the swap pool is negative"))
        return found

    def close(self) -> None:
        """Take the watch off."""
        watch.detach(self._cache, self._scheduler, self._offloading)

    # --- the sink of the watch ---

    def blocks(self, action: str, pool: int, units: Sequence[int], request_id: str) -> None:
        """Note units that change hands."""
        number = self._numbers.get(request_id)
        self._events.append(BlockChange(action, self.pools[pool].name, tuple(units), number))

    def complete(self, pool: int, allocator: Any, request_id: str) -> None:
        """Nothing to do: contents are given."""

    def ended(self, request_id: str) -> None:
        """Note the end of a request; one that is cancelled in flight has ended before."""
        if request_id in self._waits:
            self._events.append(Decision("finish", self._numbers[request_id]))

    def preempted(self, request_id: str) -> None:
        """Note a preemption."""
        self._events.append(Decision("preempt", self._numbers[request_id]))

    # --- what stands for the tensors of a batch ---

    compute_stream = None

    def prepare_batch_tensors(
        self, requests_in_batch: list[Any], use_decode_fast_path: bool = False, **kwargs: Any
    ) -> None:
        """Move the requests on as the engine's own does, and look at what the model would read and write."""
        newest = self._flying[-1]
        for future in requests_in_batch:
            state, length = future.state, future.query_length
            past = state.position_offset
            self._look(state, past, length)
            state.position_offset += length
            if not use_decode_fast_path:
                count = len(self.pools)
                self._cache.extend_read_and_write_indices(
                    state.request_id, past, length, [[] for _ in range(count)], [[] for _ in range(count)]
                )
            if future.has_new_token:
                state.tokens_to_process = [watch.module("requests").TMP_TOKEN_ID]
                newest.places[state.request_id] = state.position_offset
            newest.batch.append(future)
        self._last = newest.places

    def prepare_batch_update(self) -> tuple[list[Any], list[int], None]:
        """Return the batch whose tokens have been given, and these."""
        return (*self._given, None)

    def reset(self) -> None:
        """Forget the batches of a session."""
        self._flying.clear()

    def _look(self, state: Any, past: int, length: int) -> None:
        number = self._numbers[state.request_id]
        fed = list(state.tokens_to_process)
        if len(fed) != length:
            self._faults["I4", "a step computes another number of tokens than it has"] = None
        if self._depth > 1 and fed and state.request_id in self._last:
            # On the device the newest batch's token takes the place of the last one.
            if self._last[state.request_id] != past + length - 1:
                self._faults["I6", "a token is carried over to a position that is not its own"] = None
            fed.pop()
        temporary = watch.module("requests").TMP_TOKEN_ID
        for i, token in enumerate(fed):
            if token != temporary and token != self._tokens(number, past + i):
                self._faults["I6", "a step computes a token that does not stand at its position"] = None
        if fed == [temporary] and self._depth == 1:
            self._faults["I6", "a step computes a token that nobody has"] = None
        if length < 1:
            return
        for allocator in self._cache.cache_allocators.values():
            if hasattr(allocator, "sliding_window"):
                continue
            table, size, ledger = (
                allocator.block_table[state.request_id],
                allocator.tokens_per_page,
                allocator.ledger,
            )
            for unit in table[past // size : (past + length - 1) // size + 1]:
                if unit in ledger.shared_ref_counts or unit in ledger.block_to_hash:
                    self._faults["I4", "a step writes into a unit that others find by its content"] = None

    # --- what stands for the way to the users ---

    def deliver(self, output: Any) -> None:
        """Note what a user sees."""
        number = self._numbers[output.request_id]
        new = output.generated_tokens[self._shown[number] :]
        if output.error is None:
            self._shown[number] = len(output.generated_tokens)
            self._emitted.append((number, tuple(new)))

    def deliver_batch(self, outputs: list[Any]) -> None:
        """Note what users see."""
        for output in outputs:
            self.deliver(output)

    def fail_and_deliver(self, state: Any, error: Exception) -> None:
        """Note that the engine gives a request up."""
        self._faults["I5", f"a request is failed: {type(error).__name__}"] = None

    def _reaction(self, handle: Any = None, ended: tuple[tuple[int, str], ...] | None = None) -> Reaction:
        events, self._events = tuple(self._events), []
        emitted, self._emitted = tuple(self._emitted), []
        return Reaction(events, handle, emitted, ended=ended)


def _raise(fault: Exception) -> None:
    raise fault
