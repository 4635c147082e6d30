"""The hooks of one vLLM V1 scheduler: every input that reaches it and what it answers, told to a sink.

The wrappers are attributes of the scheduler, its KV cache manager and its block pool, not of their classes:
other schedulers of the process are untouched, and `Watch.detach` leaves nothing behind. A fault in here never
reaches the engine: the watch detaches and says so once.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from types import FrameType
from typing import Any

from ..hooked import Guard
from .described import flags_of
from .prefixes import PrefixBook
from .reading import StepReader, answered_in, end_word, filled_in, request_of
from .sink import Sink
from .wrapped import Wrapped

__all__ = ["POOL", "Watch", "attach"]

POOL = 0
"""The pool of KV blocks: the only one."""

_MISSING = object()
_MOST_IN_FLIGHT = 64
_CALLER = 2
"""Frames from a wrapper to the engine's code that called it: `Wrapped` is between."""


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
        self._guard = Guard(self._fault)
        self._hear = self._guard.hear
        self._inside = ""
        """Kind of the input that is going on."""
        self._thread = 0
        """The thread of that input."""
        self._events: list[tuple[Any, ...]] = []
        """What an input brought about: a method of the sink and what to call it with, at the input's end."""
        self._reader = StepReader(scheduler.requests)
        self._in_flight: deque[tuple[Any, int]] = deque(maxlen=_MOST_IN_FLIGHT)
        self._preempted: set[str] = set()
        self._full: list[tuple[Any, int]] = []
        """Requests of this input with blocks that became full, and how many tokens are in full ones."""
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
            # not by its __dict__: an object whose dictionary was looked at is slower from then on
            function = getattr(original, "__func__", None)
            of_class = function is not None and function is getattr(type(owner), name, None)
            own = isinstance(original, Wrapped) or not of_class
            self._replaced.append((owner, name, original if own else _MISSING))
            setattr(owner, name, Wrapped(original, wrap(original)))

    def detach(self) -> None:
        """Take the wrappers off."""
        self._guard.alive = False
        while self._replaced:
            owner, name, before = self._replaced.pop()
            if before is _MISSING:
                with contextlib.suppress(AttributeError):
                    delattr(owner, name)
            else:
                setattr(owner, name, before)

    def _fault(self, fault: Exception) -> None:
        self.detach()
        self._on_fault(fault)

    # Inputs

    def _enter(self, kind: str, **about: Any) -> bool:
        """Begin an input, unless it happens inside of another one; return whether one began."""
        if self._within():
            return False
        self.sink.begin(kind, **about)
        self._inside, self._thread = kind, threading.get_ident()
        return True

    def _within(self) -> bool:
        """Return whether an input is going on.

        Raises
        ------
        RuntimeError
            It is another thread's: what belongs to which cannot be told.
        """
        if self._inside and self._thread != threading.get_ident():
            raise RuntimeError("its calls come from two threads at once")
        return bool(self._inside)

    def _leave(self, told: Callable[..., None] | None = None, *args: Any) -> None:
        """End an input, after `told` has said what came out of it."""
        inside, self._inside = self._inside, ""
        self._hear(self._left, inside, told, *args)

    def _left(self, inside: str, told: Callable[..., None] | None, *args: Any) -> None:
        if told is not None and inside == "output":  # what it brings about comes after what the model gave
            told(*args)
        events, self._events = self._events, []
        for method, *about in events:
            method(*about)
        if told is not None and inside != "output":
            told(*args)
        self._learn_full()
        free = self._pool.get_num_free_blocks()
        self.sink.resources(POOL, free, self._pool.num_gpu_blocks - 1 - free)
        self.sink.end()

    def _input(self, original: Callable[..., Any], begin: Callable[..., Any]) -> Callable[..., Any]:
        """Return `original` as an input; `begin` takes what it is given and says whether one began."""

        def call(*args: Any, **kwargs: Any) -> Any:
            opened = self._hear(begin, *args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                if opened:
                    self._leave()

        return call

    def _add_request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._input(original, self._arrives)

    def _arrives(self, request: Any) -> bool:
        if self._within():
            return False
        key = request.request_id
        if key not in self.scheduler.requests:
            opened = self._enter("submit", key=key)
            self._submit(key, request)
            return opened
        if not request.resumable:  # the engine looks at nothing else of it
            return self._enter("next_chunk", key=key, tokens=0, word="last")
        return self._enter(
            "next_chunk",
            key=key,
            tokens=request.num_prompt_tokens,
            value=request.max_tokens,
            arrive_ns=_arrival(request),
        )

    def _submit(self, key: str, request: Any) -> None:
        self.sink.submit(
            key,
            prompt_tokens=request.num_prompt_tokens,
            max_tokens=request.max_tokens,
            priority=request.priority,
            flags=flags_of(request),
            arrive_ns=_arrival(request),
        )
        self._reader.changed()
        self._learn(request, len(request.block_hashes))
        self._prune()

    def _finish_requests(self, original: Callable[..., Any]) -> Callable[..., Any]:
        call = self._input(original, self._ends)

        def finish_requests(*args: Any, **kwargs: Any) -> Any:
            return call(*_kept(args), **kwargs)

        return finish_requests

    def _ends(self, request_ids: Iterable[str] | str | None, finished_status: Any) -> bool:
        if self._within():
            return False
        requests = self.scheduler.requests
        ids: Iterable[str]
        if request_ids is None:
            ids = requests
        elif isinstance(request_ids, str):
            ids = (request_ids,)
        else:
            ids = set(request_ids)  # as the engine does: the same set has the same order
        keys = [k for k in ids if k in requests and not requests[k].is_finished()]
        reason = end_word(type(finished_status).get_finished_reason(finished_status))
        if not keys:
            return False
        word = None if reason == "abort" else reason
        if len(keys) == 1:
            return self._enter("abort", key=keys[0], word=word)
        return self._enter("abort", keys=keys, word=word)

    def _set_pause_state(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._input(original, self._pauses)

    def _pauses(self, pause_state: Any) -> bool:
        if pause_state.name == "UNPAUSED":
            return self._enter("resume")
        return self._enter("pause", word="keep" if pause_state.name == "PAUSED_ALL" else "wait")

    def _reset_prefix_cache(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._input(original, self._resets)

    def _resets(self, reset_running_requests: bool = False, reset_connector: bool = False) -> bool:
        return self._enter("cache_reset", word="running" if reset_running_requests else None)

    def _schedule(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def schedule(*args: Any, **kwargs: Any) -> Any:
            opened = self._hear(self._steps, *args, **kwargs)
            if not opened:
                return original(*args, **kwargs)
            try:
                output = original(*args, **kwargs)
            except BaseException:
                self._leave()
                raise
            self._leave(self._scheduled, output)
            return output

        return schedule

    def _steps(self, throttle_prefills: bool = False) -> bool:
        opened = self._enter("step", step=self.steps, decode_only=throttle_prefills or None)
        self.steps += opened
        return opened

    def _scheduled(self, output: Any) -> None:
        """Tell what a step schedules, in the order in which the model gets it."""
        self._in_flight.append((output, self.steps - 1))
        step = self._reader.read(output)
        if self._preempted:
            for key, n, at in zip(step.keys, step.tokens, step.computed, strict=True):
                if key in self._preempted:
                    self._preempted.discard(key)
                    self.sink.decision("resume", key, n, at)
        self.sink.schedule_columns(*step)

    def _update_from_output(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def update_from_output(*args: Any, **kwargs: Any) -> Any:
            opened = self._hear(self._outputs, *args, **kwargs)
            if not opened:
                return original(*args, **kwargs)
            try:
                result = original(*args, **kwargs)
            except BaseException:
                self._leave(self._answered, *opened, {})
                raise
            self._leave(self._answered, *opened, result)
            return result

        return update_from_output

    def _outputs(self, scheduler_output: Any, model_runner_output: Any) -> tuple[Any, Any] | None:
        """Begin an output; return what it is of, None where it is part of another input."""
        if self._within():
            return None
        self._enter("output", step=self._step_of(scheduler_output))
        return scheduler_output, model_runner_output

    def _step_of(self, output: Any) -> int | None:
        for i, (known, step) in enumerate(self._in_flight):
            if known is output:
                del self._in_flight[i]
                return step
        return None

    def _answered(self, output: Any, model_output: Any, result: Any) -> None:
        """Tell what the model gave, and where something else was shown."""
        answered = answered_in(output, model_output, result)
        self.sink.answer_columns(answered.keys, answered.tokens, answered.words)
        for key, seen in answered.other:
            self.sink.decision("emit", key, seen)

    # Inside of an input

    def _before(self, original: Callable[..., Any], hear: Callable[..., None]) -> Callable[..., Any]:
        """Return `original`, told to `hear` before it is called."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._guard.alive:
                self._hear(hear, *args, **kwargs)
            return original(*args, **kwargs)

        return call

    def _preempt_request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._before(original, self._preempts)

    def _preempts(self, request: Any, *_: Any, **__: Any) -> None:
        self._preempted.add(request.request_id)
        self._tell(self.sink.decision, "preempt", request.request_id)

    def _free_request(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._before(original, self._frees)

    def _frees(self, request: Any, *_: Any, **__: Any) -> None:
        key = request.request_id
        self._preempted.discard(key)
        if self._book is not None:
            self._learn_full()
            self._book.forget(key)
        if self._inside != "abort":  # there the input says so
            self._tell(self.sink.decision, "finish", key)

    def _tell(self, method: Callable[..., None], *args: Any) -> None:
        if self._inside:
            self._events.append((method, *args))

    def _get_new_blocks(self, original: Callable[..., Any]) -> Callable[..., Any]:
        alloc, frame = self.sink.blocks, sys._getframe

        def get_new_blocks(*args: Any, **kwargs: Any) -> Any:
            blocks = original(*args, **kwargs)
            if blocks and self._inside:
                try:
                    units = [b.block_id for b in blocks]
                    self._events.append((alloc, "alloc", POOL, units, request_of(frame(_CALLER))))
                except BaseException as e:
                    self._guard.caught(e)
            return blocks

        return get_new_blocks

    def _touch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._changes("share", original)

    def _free_blocks(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._changes("free", original)

    def _changes(self, action: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            args = _kept(args)
            if self._inside:
                self._hear(self._blocks, action, sys._getframe(_CALLER), *args, **kwargs)
            return original(*args, **kwargs)

        return call

    def _blocks(self, action: str, caller: FrameType, blocks: Iterable[Any], *_: Any, **__: Any) -> None:
        null = self._null
        units = [b.block_id for b in blocks if b.block_id != null]
        if units:
            self._events.append((self.sink.blocks, action, POOL, units, request_of(caller)))

    # Content

    def _get_computed_blocks(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._before(original, self._looks_up)

    def _looks_up(self, request: Any, *_: Any, **__: Any) -> None:
        if self._inside:
            self._learn(request, len(request.block_hashes))

    def _cache_full_blocks(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def cache_full_blocks(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                try:
                    self._full.append(filled_in(args, kwargs))
                except BaseException as e:
                    self._guard.caught(e)
            return original(*args, **kwargs)

        return cache_full_blocks

    def _learn_full(self) -> None:
        """Look at the blocks that became full, all at once: they are many in a step."""
        if not self._full:
            return
        full, self._full = self._full, []
        unit = self._pool.hash_block_size
        for request, tokens in full:
            self._learn(request, tokens // unit)
        self._prune()

    def _update_session(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._before(original, self._goes_on)

    def _goes_on(self, session: Any, *_: Any, **__: Any) -> None:
        self._preempted.discard(session.request_id)  # it waits as a new one does
        self._reader.changed()
        if self._book is not None:
            self._learn_full()
            kept = session.num_computed_tokens // self._pool.hash_block_size
            self._book.cut(session.request_id, kept)

    def _learn(self, request: Any, units: int) -> None:
        """Tell which of the first `units` hash blocks of a request equal those of an earlier one."""
        if self._book is not None:
            for equal in self._book.learn(request.request_id, request.block_hashes, units, self.sink.number):
                self.sink.equal(*equal)

    def _prune(self) -> None:
        """Forget hashes where there are too many."""
        book = self._book
        if book is None or not book.full:
            return
        live = {h for r in self.scheduler.requests.values() for h in r.block_hashes}
        groups = range(len(self.scheduler.kv_cache_config.kv_cache_groups))
        cached = self._pool.get_cached_block

        def wanted(block_hash: Hashable) -> bool:
            return block_hash in live or any(cached(block_hash, [g]) is not None for g in groups)

        book.prune(wanted)


def _kept(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments that can be walked along more than once."""
    if args and isinstance(args[0], Iterator):
        return (list(args[0]), *args[1:])
    return args


def _arrival(request: Any) -> int:
    """Return what queues sort a request by, in ns of the wall clock."""
    return round(float(request.arrival_time) * 1e9)
