"""The hooks of one vLLM V1 scheduler: every input that reaches it and what it answers, told to a sink.

The wrappers are attributes of the scheduler, its KV cache manager and its block pool, not of their classes:
other schedulers of the process are untouched, and `Watch.detach` leaves nothing behind. A fault in here never
reaches the engine: the watch detaches and says so once.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from .described import flags_of
from .prefixes import PrefixBook
from .sink import Sink

__all__ = ["POOL", "Watch", "attach"]

POOL = 0
"""The pool of KV blocks: the only one."""

_MISSING = object()
_MOST_IN_FLIGHT = 64


def attach(scheduler: Any, sink: Sink, on_fault: Callable[[Exception], None]) -> Watch:
    """Hook a scheduler that was just built.

    Parameters
    ----------
    scheduler : vllm.v1.core.sched.scheduler.Scheduler
        Nothing has reached it yet.
    sink : Sink
        Hears of everything.
    on_fault : callable
        Called once, with what went wrong in a hook; after that the sink hears nothing more. What it raises
        goes through to whoever called the engine.

    Raises
    ------
    AttributeError
        The scheduler has not the methods that are hooked; nothing was changed then.
    """
    watch = Watch(scheduler, sink, on_fault)
    watch.attach()
    return watch


class Watch:
    """The hooks of one scheduler; made by `attach`."""

    def __init__(self, scheduler: Any, sink: Sink, on_fault: Callable[[Exception], None]) -> None:
        self.scheduler = scheduler
        self.sink = sink
        self.steps = 0
        self._on_fault = on_fault
        self._manager = scheduler.kv_cache_manager
        self._pool = self._manager.block_pool
        self._null = self._pool.null_block.block_id
        self._book: PrefixBook | None = None
        if self._pool.enable_caching:
            self._book = PrefixBook(self._pool.hash_block_size)
        self._by_arrival = getattr(scheduler.scheduler_config, "policy", "fcfs") != "fcfs"
        self._alive = False
        self._inside = ""
        """Kind of the input that is going on."""
        self._held: list[Callable[[], None]] = []
        """What an output brought about, told after what the model gave."""
        self._in_flight: deque[tuple[Any, int]] = deque(maxlen=_MOST_IN_FLIGHT)
        self._preempted: set[str] = set()
        self._replaced: list[tuple[Any, str, Any]] = []

    # Attaching

    def attach(self) -> None:
        """Put the wrappers on."""
        s, m, p = self.scheduler, self._manager, self._pool
        wrappers: list[tuple[Any, str, Callable[[Any], Any]]] = [
            (s, "add_request", self._add_request),
            (s, "finish_requests", self._finish_requests),
            (s, "schedule", self._schedule),
            (s, "update_from_output", self._update_from_output),
            (s, "set_pause_state", self._set_pause_state),
            (s, "reset_prefix_cache", self._reset_prefix_cache),
            (s, "_preempt_request", self._preempt_request),
            (s, "_free_request", self._free_request),
            (s, "_update_request_as_session", self._update_session),
            (p, "get_new_blocks", self._get_new_blocks),
            (p, "touch", self._touch),
            (p, "free_blocks", self._free_blocks),
        ]
        if self._book is not None:
            wrappers += [
                (m, "get_computed_blocks", self._get_computed_blocks),
                (p, "cache_full_blocks", self._cache_full_blocks),
            ]
        originals = [getattr(owner, name) for owner, name, _ in wrappers]
        for (owner, name, wrap), original in zip(wrappers, originals, strict=True):
            self._replaced.append((owner, name, vars(owner).get(name, _MISSING)))
            setattr(owner, name, functools.wraps(original)(wrap(original)))
        self._alive = True

    def detach(self) -> None:
        """Take the wrappers off."""
        self._alive = False
        while self._replaced:
            owner, name, before = self._replaced.pop()
            if before is _MISSING:
                vars(owner).pop(name, None)
            else:
                setattr(owner, name, before)

    def _fault(self, fault: Exception) -> None:
        if self._alive:
            self.detach()
            self._on_fault(fault)

    # Inputs

    def _enter(self, kind: str, **about: Any) -> bool:
        """Begin an input, unless it happens inside of another one; return whether one began."""
        if self._inside or not self._alive:
            return False
        try:
            self.sink.begin(kind, **about)
        except Exception as e:
            self._fault(e)
            return False
        self._inside = kind
        return True

    def _leave(self, told: Callable[..., None] | None = None, *args: Any) -> None:
        """End an input, after `told` has said what came out of it."""
        self._inside = ""
        held, self._held = self._held, []
        if not self._alive:
            return
        try:
            if told is not None:
                told(*args)
            for one in held:
                one()
            free = self._pool.get_num_free_blocks()
            self.sink.resources(POOL, free, self._pool.num_gpu_blocks - 1 - free)
            self.sink.end()
        except Exception as e:
            self._fault(e)

    def _add_request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def add_request(request: Any) -> Any:
            if self._inside or not self._alive:
                return original(request)
            opened = self._arrives(request)
            try:
                return original(request)
            finally:
                if opened:
                    self._leave()

        return add_request

    def _arrives(self, request: Any) -> bool:
        try:
            key = request.request_id
            if key not in self.scheduler.requests:
                opened = self._enter("submit", key=key)
                self._submit(key, request)
                return opened
        except Exception as e:
            self._inside = ""
            self._fault(e)
            return False
        if not request.resumable:  # the engine looks at nothing else of it
            return self._enter("next_chunk", key=key, tokens=0, word="last")
        return self._enter("next_chunk", key=key, tokens=request.num_prompt_tokens, value=request.max_tokens)

    def _submit(self, key: str, request: Any) -> None:
        self.sink.submit(
            key,
            prompt_tokens=request.num_prompt_tokens,
            max_tokens=request.max_tokens,
            priority=request.priority,
            flags=flags_of(request, by_arrival=self._by_arrival),
            arrive_ns=round(request.arrival_time * 1e9),
        )
        self._learn(request, len(request.block_hashes))

    def _finish_requests(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def finish_requests(request_ids: Any, finished_status: Any) -> Any:
            if self._inside or not self._alive:
                return original(request_ids, finished_status)
            if request_ids is not None and not isinstance(request_ids, str):
                request_ids = list(request_ids)
            opened = self._ends(request_ids, finished_status)
            try:
                return original(request_ids, finished_status)
            finally:
                if opened:
                    self._leave()

        return finish_requests

    def _ends(self, request_ids: list[str] | str | None, status: Any) -> bool:
        requests = self.scheduler.requests
        try:
            ids: Iterable[str]
            if request_ids is None:
                ids = requests
            elif isinstance(request_ids, str):
                ids = (request_ids,)
            else:
                ids = set(request_ids)  # as the engine does: the same set has the same order
            keys = [k for k in ids if k in requests and not requests[k].is_finished()]
            reason = _word(type(status).get_finished_reason(status))
        except Exception as e:
            self._fault(e)
            return False
        if not keys:
            return False
        word = None if reason == "abort" else reason
        if len(keys) == 1:
            return self._enter("abort", key=keys[0], word=word)
        return self._enter("abort", keys=keys, word=word)

    def _set_pause_state(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def set_pause_state(pause_state: Any) -> Any:
            name = getattr(pause_state, "name", "")
            if name == "UNPAUSED":
                opened = self._enter("resume")
            else:
                opened = self._enter("pause", word="keep" if name == "PAUSED_ALL" else "wait")
            try:
                return original(pause_state)
            finally:
                if opened:
                    self._leave()

        return set_pause_state

    def _reset_prefix_cache(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def reset_prefix_cache(reset_running_requests: bool = False, reset_connector: bool = False) -> Any:
            opened = self._enter("cache_reset", word="running" if reset_running_requests else None)
            try:
                return original(reset_running_requests, reset_connector)
            finally:
                if opened:
                    self._leave()

        return reset_prefix_cache

    def _schedule(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def schedule(throttle_prefills: bool = False) -> Any:
            opened = self._enter("step", step=self.steps, word="throttled" if throttle_prefills else None)
            if not opened:
                return original(throttle_prefills)
            self.steps += 1
            try:
                output = original(throttle_prefills)
            except BaseException:
                self._leave()
                raise
            self._leave(self._scheduled, output)
            return output

        return schedule

    def _scheduled(self, output: Any) -> None:
        """Tell what a step schedules, in the order in which the model gets it.

        Whatever is more than the next token of an answer counts as ``prefill``.
        """
        requests = self.scheduler.requests
        self._in_flight.append((output, self.steps - 1))
        rows: list[tuple[str, int, int, bool]] = [
            (
                key,
                n,
                (r := requests[key]).num_computed_tokens - n,
                n != 1 or r.num_computed_tokens <= r.num_prompt_tokens,
            )
            for key, n in output.num_scheduled_tokens.items()
        ]
        if self._preempted:
            for key, tokens, computed, _ in rows:
                if key in self._preempted:
                    self._preempted.discard(key)
                    self.sink.decision("resume", key, tokens, computed)
        self.sink.schedule(rows)

    def _update_from_output(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def update_from_output(scheduler_output: Any, model_runner_output: Any) -> Any:
            if self._inside or not self._alive:
                return original(scheduler_output, model_runner_output)
            opened = self._enter("output", step=self._step_of(scheduler_output))
            result: Any = {}
            try:
                result = original(scheduler_output, model_runner_output)
            finally:
                if opened:
                    self._leave(self._answered, scheduler_output, model_runner_output, result)
            return result

        return update_from_output

    def _step_of(self, output: Any) -> int | None:
        for i, (known, step) in enumerate(self._in_flight):
            if known is output:
                del self._in_flight[i]
                return step
        return None

    def _answered(self, output: Any, model_output: Any, result: Any) -> None:
        """Tell what the model gave, and where something else was shown."""
        given = [one for of_client in result.values() for one in of_client.outputs]
        shown = {one.request_id: len(one.new_token_ids) for one in given}
        words = {one.request_id: _word(one.finish_reason) for one in given if one.finish_reason is not None}
        index, sampled = model_output.req_id_to_index, model_output.sampled_token_ids
        rows: list[tuple[str, int, str | None]] = [
            (key, len(sampled[index[key]]) if sampled and key in index else 0, None)
            for key in output.num_scheduled_tokens
        ]
        other = [(key, shown.get(key, 0)) for key, tokens, _ in rows if shown.get(key, 0) != tokens]
        if words:
            rows = [(key, tokens, words.pop(key, None)) for key, tokens, _ in rows]
            rows += [(key, 0, word) for key, word in words.items()]
        self.sink.answers(rows)
        for key, seen in other:
            self.sink.decision("emit", key, seen)

    # Inside of an input

    def _preempt_request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def preempt_request(request: Any, *args: Any, **kwargs: Any) -> Any:
            self._preempted.add(request.request_id)
            self._decided("preempt", request.request_id)
            return original(request, *args, **kwargs)

        return preempt_request

    def _free_request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def free_request(request: Any, *args: Any, **kwargs: Any) -> Any:
            key = request.request_id
            self._preempted.discard(key)
            if self._book is not None:
                self._book.forget(key)
            if self._inside != "abort":  # there the input says so
                self._decided("finish", key)
            return original(request, *args, **kwargs)

        return free_request

    def _decided(self, kind: str, key: str) -> None:
        self._tell(self.sink.decision, kind, key)

    def _tell(self, method: Callable[..., None], *args: Any) -> None:
        if not (self._inside and self._alive):
            return
        if self._inside == "output":
            self._held.append(functools.partial(method, *args))
            return
        try:
            method(*args)
        except Exception as e:
            self._fault(e)

    def _get_new_blocks(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get_new_blocks(num_blocks: int) -> Any:
            blocks = original(num_blocks)
            if blocks:
                self._blocks("alloc", blocks)
            return blocks

        return get_new_blocks

    def _touch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def touch(blocks: Sequence[Any]) -> Any:
            self._blocks("share", blocks)
            return original(blocks)

        return touch

    def _free_blocks(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def free_blocks(ordered_blocks: Iterable[Any]) -> Any:
            blocks = list(ordered_blocks)
            self._blocks("free", blocks)
            return original(blocks)

        return free_blocks

    def _blocks(self, action: str, blocks: Sequence[Any]) -> None:
        if self._inside and self._alive:
            null = self._null
            units = [b.block_id for b in blocks if b.block_id != null]
            if units:
                self._tell(self.sink.blocks, action, POOL, units, _owner())

    # Content

    def _get_computed_blocks(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get_computed_blocks(request: Any) -> Any:
            self._learn(request, len(request.block_hashes))
            return original(request)

        return get_computed_blocks

    def _cache_full_blocks(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def cache_full_blocks(
            request: Any,
            blocks: Any,
            num_cached_blocks: int,
            num_full_blocks: int,
            block_size: int,
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            self._learn(request, num_full_blocks * block_size // self._pool.hash_block_size)
            return original(request, blocks, num_cached_blocks, num_full_blocks, block_size, *args, **kwargs)

        return cache_full_blocks

    def _update_session(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def update_request_as_session(session: Any, update: Any) -> Any:
            self._preempted.discard(session.request_id)  # it waits as a new one does
            if self._book is not None:
                kept = session.num_computed_tokens // self._pool.hash_block_size
                self._book.cut(session.request_id, kept)
            return original(session, update)

        return update_request_as_session

    def _learn(self, request: Any, units: int) -> None:
        """Tell which of the first `units` hash blocks of a request equal those of an earlier one."""
        book = self._book
        if book is None or not units or not (self._inside and self._alive):
            return
        try:
            key = request.request_id
            number = self.sink.number(key)
            for equal in book.learn(key, number, request.block_hashes, units):
                self._tell(self.sink.equal, *equal)
            if book.full():
                self._prune(book)
        except Exception as e:
            self._fault(e)

    def _prune(self, book: PrefixBook) -> None:
        live = {h for r in self.scheduler.requests.values() for h in r.block_hashes}
        groups = range(len(self.scheduler.kv_cache_config.kv_cache_groups))
        cached = self._pool.get_cached_block

        def wanted(block_hash: Hashable) -> bool:
            return block_hash in live or any(cached(block_hash, [g]) is not None for g in groups)

        book.prune(wanted)


def _owner() -> str | None:
    """Return the request for which a manager of vLLM asks the pool right now.

    The pool is not told. A wrapper around what is called for each request in each step would cost more than
    looking at the caller where blocks really change hands, which is rare.
    """
    frame = sys._getframe(3)  # of what called the wrapper: `_owner`, `_blocks` and the wrapper are ours
    key = frame.f_locals.get("request_id")
    return key if isinstance(key, str) else None


def _word(reason: Any) -> str:
    return str(reason.name).lower() if reason is not None else "error"
