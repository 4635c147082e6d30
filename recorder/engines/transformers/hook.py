"""Records transformers' continuous batching while it serves: wrappers that write what reached its scheduler.

Runs inside the engine. Whatever goes wrong in here is said once, and the recording of that scheduler stops;
the engine goes on.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...requests import PoolRow, SchedulerRecorder
from ...requests.spool import said
from . import watch
from .content import Content
from .geometry import config_of

__all__ = ["Recording", "start"]

ATTRIBUTE = "_tapedelay_recording"


def start(module: Any) -> None:
    """Let every scheduler that is built from now on be recorded.

    Parameters
    ----------
    module : module
        ``transformers.generation.continuous_batching``, just imported.

    Raises
    ------
    watch.Unknown
        This version of transformers does not have what is recorded.
    """
    processor = watch.module("continuous_api").ContinuousBatchProcessor
    scheduler = watch.module("scheduler").Scheduler
    watch.patch()
    watch.wrap(processor, "__init__", _built)
    watch.wrap(processor, "reset", _reset)
    watch.wrap(processor, "prepare_next_batch", _prepare)
    watch.wrap(processor, "update_batch", _update)
    watch.wrap(processor, "fail_all_requests", _fail)
    watch.wrap(scheduler, "add_waiting_request", _add)
    watch.wrap(scheduler, "clear_cancelled_requests", _cancel)
    watch.wrap(scheduler, "_process_candidates", _process)


class Recording:
    """The recording of one batch processor, and the sink of what its cache and scheduler do."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor
        self.cache = processor.cache
        self.scheduler = processor.scheduler
        self.pools = [PoolRow(*row) for row in watch.pools(self.cache)]
        self.recorder = SchedulerRecorder("transformers", _version(), config_of(processor), self.pools)
        self.content = Content() if self.cache.use_prefix_sharing else None
        self.live: set[str] = set()
        """Ids of the requests that the scheduler has."""
        self.stopped = not self.recorder.recording
        self.inside = ""
        """The input that is being written: `step`, `output`, `abort`, or none."""
        self.preparing = False
        self.steps = 0
        self.flying: list[int] = []
        if self.stopped:
            return
        watch.attach(self.cache, self.scheduler, processor.offloading_manager, self)
        setattr(self.scheduler, ATTRIBUTE, self)

    def stop(self, reason: object) -> None:
        """Say why, once, and record no more of this scheduler."""
        if self.stopped:
            return
        self.stopped = True
        with contextlib.suppress(Exception):
            watch.detach(self.cache, self.scheduler, self.processor.offloading_manager)
            delattr(self.scheduler, ATTRIBUTE)
        _say(f"transformers' scheduler is not recorded any more ({reason})")

    @contextlib.contextmanager
    def input(self, kind: str, begin: Callable[[], None]) -> Iterator[None]:
        """One input; `begin` writes its start."""
        self.inside = kind
        self.guard(begin)
        try:
            yield
        finally:
            self.guard(self._close)
            self.inside = ""

    def guard(self, call: Callable[..., None], *args: Any) -> None:
        """Call ours; a fault of ours stops the recording, never the engine."""
        if not self.stopped:
            try:
                call(*args)
            except watch.Unknown as e:
                self.stop(e)
            except Exception as e:
                self.stop(f"{type(e).__name__}: {e}")

    def _close(self) -> None:
        for allocator in self.cache.cache_allocators.values():
            free = watch.free_count(self.cache, allocator)
            _, units, reserved, _ = self.pools[allocator.index]
            self.recorder.resources(allocator.index, free, units - reserved - free)
        self.recorder.end()

    # --- the sink ---

    def blocks(self, action: str, pool: int, units: Sequence[int], request_id: str) -> None:
        """Write units that change hands."""
        if self.inside:
            self.guard(self._blocks, action, pool, units, request_id)

    def _blocks(self, action: str, pool: int, units: Sequence[int], request_id: str) -> None:
        self.recorder.blocks(action, pool, units, request_id)

    def complete(self, pool: int, allocator: Any, request_id: str) -> None:
        """Write which completed units others have as well."""
        self.guard(self._complete, allocator, request_id)

    def _complete(self, allocator: Any, request_id: str) -> None:
        if self.content is not None and request_id in self.live:
            number = self.recorder.number(request_id)
            rows = self.content.completed(number, request_id, allocator)
            for key, later, of, start, end in rows:
                if self.recorder.number(key) == later:  # else it has ended, and its id is used again
                    self.recorder.prefix(key, of, start, end)

    def ended(self, request_id: str) -> None:
        """Write the end of a request, where the model brought it about."""
        self.guard(self._ended, request_id)

    def _ended(self, request_id: str) -> None:
        if request_id in self.live and self.inside == "output":
            self.forget(request_id)
            self.recorder.decision("finish", request_id)

    def preempted(self, request_id: str) -> None:
        """Write a preemption."""
        self.guard(self._preempted, request_id)

    def _preempted(self, request_id: str) -> None:
        if request_id in self.live:
            self.recorder.decision("preempt", request_id)

    # --- inputs ---

    def forget(self, request_id: str) -> None:
        """Note that the engine has this request no more."""
        self.live.discard(request_id)
        if self.content is not None:
            self.content.forget(self.recorder.number(request_id))

    def submit(self, state: Any) -> None:
        """Write a request that arrives."""
        if state.num_children > 0:
            raise watch.Unknown("requests with several return sequences are not recorded")
        key = state.request_id
        self.live.add(key)
        self.recorder.begin("submit", key=key)
        rows: list[tuple[int, int, int]] = []
        if self.content is not None:
            page = next(iter(self.cache.cache_allocators.values())).tokens_per_page
            rows = self.content.arrived(self.recorder.number(key), key, state.initial_tokens, page)
        self.recorder.submit(
            key,
            prompt_tokens=len(state.initial_tokens),
            max_tokens=state.max_new_tokens,
            prefixes=rows,
        )
        self._close()

    def step_over(self, scheduled: bool) -> None:
        """Write what a step schedules, and close it."""
        batch = _batch(self.processor.inputs_and_outputs) if scheduled else ()
        rows = []
        for future in batch:
            state, tokens = future.state, future.query_length
            computed = state.position_offset - tokens
            rows.append((state.request_id, tokens, computed, computed < len(state.initial_tokens)))
        self.recorder.schedule(rows)
        if scheduled:
            self.flying.append(self.steps)
        self.steps += 1
        self._close()


def _batch(inputs_and_outputs: Any) -> Sequence[Any]:
    pairs = getattr(inputs_and_outputs, "io_pairs", None)
    holder = inputs_and_outputs if pairs is None else pairs[inputs_and_outputs.current_pair].host_io
    return holder.requests_in_batch  # type: ignore[no-any-return]


def _recording(scheduler: Any) -> Recording | None:
    recording: Recording | None = scheduler.__dict__.get(ATTRIBUTE)
    return None if recording is None or recording.stopped else recording


# --- the wrappers ---


def _built(method: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    result = method(self, *args, **kwargs)
    try:
        Recording(self)
    except Exception as e:
        _say(f"transformers' scheduler is not recorded ({type(e).__name__}: {e})")
    return result


def _reset(method: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    recording = _recording(self.scheduler)
    if recording is None:
        return method(self, *args, **kwargs)
    with recording.input("cache_reset", lambda: recording.recorder.begin("cache_reset", word="session")):
        result = method(self, *args, **kwargs)
    recording.flying.clear()
    return result


def _prepare(method: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    recording = _recording(self.scheduler)
    if recording is None:
        return method(self, *args, **kwargs)
    recording.preparing = True
    scheduled = False
    try:
        scheduled = bool(method(self, *args, **kwargs))
        return scheduled
    finally:
        recording.preparing = False
        if recording.inside == "step":
            recording.guard(recording.step_over, scheduled)
            recording.inside = ""


def _process(method: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    recording = _recording(self)
    if recording is not None and recording.preparing and not recording.inside:
        recording.inside = "step"
        recording.guard(lambda: recording.recorder.begin("step", step=recording.steps))
    return method(self, *args, **kwargs)


def _update(method: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    recording = _recording(self.scheduler)
    if recording is None or not recording.flying:
        return method(self, *args, **kwargs)
    step = recording.flying.pop(0)
    ios = self.inputs_and_outputs
    batch: list[tuple[Any, str | None, int]] = []

    def prepare_batch_update() -> Any:
        result = type(ios).prepare_batch_update(ios)
        recording.guard(lambda: batch.extend(_before(recording, result[0])))
        return result

    ios.prepare_batch_update = prepare_batch_update
    with recording.input("output", lambda: recording.recorder.begin("output", step=step)):
        try:
            return method(self, *args, **kwargs)
        finally:
            del ios.prepare_batch_update
            recording.guard(lambda: recording.recorder.answers(list(_answers(batch))))


def _before(recording: Recording, batch: Sequence[Any]) -> Iterator[tuple[Any, str | None, int]]:
    """Yield of each request of a batch: its state, its name if it is to get a token, its length."""
    for future in batch:
        key = future.state.request_id
        got = future.has_new_token and key in recording.live
        yield future.state, key if got else None, future.state.generated_len()


def _answers(batch: Sequence[tuple[Any, str | None, int]]) -> Iterator[tuple[str, int, str | None]]:
    for state, key, before in batch:
        if key is None:
            continue
        given = state.generated_len() - before
        word = None
        if given and state.status.name == "FINISHED":
            word = "stop" if state.generated_tokens[-1] in state._eos_token_ids else "length"
        yield key, given, word


def _fail(method: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    recording = _recording(self.scheduler)
    if recording is None:
        return method(self, *args, **kwargs)
    ids = [*self.scheduler.active_requests, *self.scheduler.waiting_requests]
    if not ids:
        return method(self, *args, **kwargs)
    return _abort(recording, ids, method, self, *args, **kwargs)


def _cancel(method: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    recording = _recording(self)
    ids = list(self._requests_to_cancel) if recording is not None else []
    ids = [i for i in ids if recording is not None and i in recording.live]
    if recording is None or not ids:
        return method(self, *args, **kwargs)
    return _abort(recording, ids, method, self, *args, **kwargs)


def _abort(recording: Recording, ids: list[str], method: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    one = ids[0] if len(ids) == 1 else None

    def begin() -> None:
        recording.recorder.begin("abort", key=one, keys=None if one is not None else ids)

    with recording.input("abort", begin):
        result = method(self, *args, **kwargs)
    for request_id in ids:
        recording.guard(recording.forget, request_id)
    return result


def _add(method: Any, self: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
    recording = _recording(self)
    # Within a step or an output the scheduler queues a request anew: that is no arrival.
    if recording is not None and not recording.inside:
        recording.guard(recording.submit, state)
    return method(self, state, *args, **kwargs)


def _version() -> str:
    import importlib.metadata

    return importlib.metadata.version("transformers")


def _say(text: str) -> None:
    said(os.environ.get("TAPEDELAY_SPOOL", ""), text)
