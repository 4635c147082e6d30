"""Records transformers' continuous batching while it serves: hooks that write what reached its scheduler.

Runs inside the engine. Whatever goes wrong in here is said once, and the recording of that scheduler stops;
the engine goes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import compress
from operator import attrgetter, lt, sub
from typing import Any, NamedTuple

from ...requests import PoolRow, SchedulerRecorder
from ..hooked import Guard, Hook, Hooks, either, say
from . import watch
from .content import Content
from .geometry import config_of

__all__ = ["HOOKS", "Recording", "start"]

ATTRIBUTE = "_tapedelay_recording"


_STATE, _TOKENS, _HAS_TOKEN = map(attrgetter, ("state", "query_length", "has_new_token"))
_ID, _AFTER, _PROMPT, _GENERATED = map(
    attrgetter, ("request_id", "position_offset", "initial_tokens", "generated_tokens")
)


class Got(NamedTuple):
    """The requests of a batch that are to get a token: their states, ids, and how many they have so far."""

    states: list[Any]
    keys: list[str]
    before: list[int]


class Flying(NamedTuple):
    """A batch whose output is awaited: its step, rows, states and ids, and `Recording.changes` then."""

    step: int
    batch: Sequence[Any]
    states: list[Any]
    keys: list[str]
    changes: int


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
    watch.patch()
    watch.put(HOOKS)


class Recording:
    """The recording of one batch processor, and the sink of what its cache and scheduler do.

    It does not keep the processor, which lets go of its memory when nobody does.
    """

    def __init__(self, processor: Any) -> None:
        self.cache = processor.cache
        self.scheduler = processor.scheduler
        self.guard = Guard(self._stop)
        self.offloading = False
        self.told: dict[int, dict[str, int]] = {}
        self._watched = self.cache, self.scheduler, processor.offloading_manager
        self.pools = [PoolRow(*row) for row in watch.pools(self.cache)]
        self.recorder = SchedulerRecorder("transformers", _version(), config_of(processor), self.pools)
        self.content = Content() if self.cache.use_prefix_sharing else None
        self.live: set[str] = set()
        """Ids of the requests that the scheduler has."""
        self.gone: set[str] = set()
        """Ids of those that were cancelled with a batch in flight: the engine still updates them."""
        self.over: set[str] = set()
        """Ids of those that have ended with the output that is going on."""
        self.inside = ""
        """The input that is being written: `step`, `output`, `abort`, `cache_reset`, or none."""
        self.last: tuple[list[str], list[int], list[bool]] = ([], [], [])
        """Of the last step: requests, tokens computed after it, prefills; empty if it had one of these."""
        self.preparing = False
        self.steps = 0
        self.flying: list[Flying] = []
        self.changes = 0
        """How often a request was forgotten."""

    def listen(self) -> None:
        """Hear what happens from now on."""
        setattr(self.scheduler, ATTRIBUTE, self)
        watch.attach(*self._watched, self)

    def _stop(self, fault: Exception) -> None:
        """Say why, and record no more of this scheduler."""
        with contextlib.suppress(Exception):
            vars(self.scheduler).pop(ATTRIBUTE, None)
            watch.detach(*self._watched)
        say("transformers'", fault)

    def enter(self, kind: str, **about: Any) -> None:
        """Begin an input."""
        self.inside = kind
        self.recorder.begin(kind, **about)

    def leave(self) -> None:
        """End an input."""
        self.inside = ""
        for allocator in self.cache.cache_allocators.values():
            free = watch.free_count(self.cache, allocator)
            _, units, reserved, _ = self.pools[allocator.index]
            self.recorder.resources(allocator.index, free, units - reserved - free)
        self.recorder.end()

    # --- the sink ---

    def blocks(self, action: str, pool: int, units: Sequence[int], request_id: str) -> None:
        """Write units that change hands."""
        if self.inside:
            self.recorder.blocks(action, pool, units, request_id)

    def complete(self, pool: int, allocator: Any, request_id: str) -> None:
        """Write which completed units others have as well."""
        if self.content is not None and request_id in self.live:
            number = self.recorder.number(request_id)
            rows = self.content.completed(number, request_id, allocator)
            for key, later, of, start, end in rows:
                if self.recorder.number(key) == later:  # else it has ended, and its id is used again
                    self.recorder.prefix(key, of, start, end)

    def ended(self, request_id: str) -> None:
        """Write the end of a request, where the model brought it about."""
        if request_id in self.live and self.inside == "output":
            self.forget(request_id)
            self.over.add(request_id)
            self.recorder.decision("finish", request_id)

    def preempted(self, request_id: str) -> None:
        """Write a preemption."""
        self.last = [], [], []  # what it has to compute again is a prompt
        if request_id in self.live:
            self.recorder.decision("preempt", request_id)

    # --- inputs ---

    def forget(self, request_id: str) -> None:
        """Note that the engine has this request no more."""
        self.live.discard(request_id)
        self.changes += 1
        if self.content is not None:
            self.content.forget(self.recorder.number(request_id))

    def submit(self, state: Any) -> None:
        """Write a request that arrives."""
        if state.num_children > 0:
            raise watch.Unknown("requests with several return sequences are not recorded")
        key = state.request_id
        self.live.add(key)
        self.gone.discard(key)
        self.last = [], [], []  # an id may come again
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
        self.leave()

    def scheduled(self, batch: Sequence[Any]) -> None:
        """Write what a step schedules, and close it."""
        watch.tell_new(self.cache, self)
        states, tokens = list(map(_STATE, batch)), list(map(_TOKENS, batch))
        keys, after = list(map(_ID, states)), list(map(_AFTER, states))
        computed = list(map(sub, after, tokens))
        known, then, prefill = self.last
        if computed == then and keys == known:  # all of them decode on
            computed = then
        else:
            prefill = list(map(lt, computed, map(len, map(_PROMPT, states))))
        self.last = ([], [], []) if True in prefill else (keys, after, prefill)
        self.recorder.schedule_columns(keys, tokens, computed, prefill, after)
        if batch:
            self.flying.append(Flying(self.steps, batch, states, keys, self.changes))
        self.steps += 1
        self.leave()

    def answered(self, got: Got) -> None:
        """Write what the model gave, and close the output."""
        states, keys, before = got
        tokens = list(map(sub, map(len, map(_GENERATED, states)), before))
        words: dict[str, str] = {}
        if self.over:
            for state, key, given in zip(states, keys, tokens, strict=True):
                if key in self.over and given and state.status.name == "FINISHED":
                    stops = state.generated_tokens[-1] in state._eos_token_ids
                    words[key] = "stop" if stops else "length"
            self.over.clear()
        self.recorder.answer_columns(keys, tokens, words)
        self.leave()


def _batch(inputs_and_outputs: Any) -> Sequence[Any]:
    """Return the batch that was prepared last, or the one whose outputs are taken next."""
    pairs = getattr(inputs_and_outputs, "io_pairs", None)
    holder = inputs_and_outputs if pairs is None else pairs[inputs_and_outputs.current_pair].host_io
    return holder.requests_in_batch  # type: ignore[no-any-return]


# --- the hooks ---


class _Builder:
    """Listens to the building of one processor."""

    offloading = False

    def __init__(self, processor: Any) -> None:
        self.guard = Guard(lambda fault: say("transformers'", fault))


def _built(builder: _Builder, processor: Any, note: None, result: None, *_: Any, **__: Any) -> None:
    recording = Recording(processor)
    if recording.recorder.recording:
        recording.guard.hear(recording.listen)


def _resets(recording: Recording, processor: Any) -> None:
    recording.enter("cache_reset", word="session")


def _reset(recording: Recording, processor: Any, note: None) -> None:
    recording.leave()
    recording.flying.clear()
    recording.gone.clear()


def _prepares(recording: Recording, processor: Any) -> None:
    recording.preparing = True


def _processes(recording: Recording, scheduler: Any, *_: Any, **__: Any) -> None:
    if recording.preparing and not recording.inside:
        recording.enter("step", step=recording.steps)


def _prepared(recording: Recording, processor: Any, note: None, scheduled: bool) -> None:
    recording.preparing = False
    if recording.inside == "step":
        recording.scheduled(_batch(processor.inputs_and_outputs) if scheduled else ())


def _not_prepared(recording: Recording, processor: Any, note: None) -> None:
    _prepared(recording, processor, note, False)


def _updates(recording: Recording, processor: Any) -> Got | None:
    if not recording.flying:
        return None
    flying, batch = recording.flying.pop(0), _batch(processor.inputs_and_outputs)
    states, keys = flying.states, flying.keys
    if batch is not flying.batch or recording.changes != flying.changes or not all(map(_HAS_TOKEN, batch)):
        states = list(map(_STATE, compress(batch, map(_HAS_TOKEN, batch))))
        keys = list(map(_ID, states))
        known = recording.live | recording.gone
        if not known.issuperset(keys):
            states = [state for state, key in zip(states, keys, strict=True) if key in known]
            keys = list(map(_ID, states))
    recording.enter("output", step=flying.step)
    if not recording.flying:
        recording.gone.clear()
    return Got(states, keys, list(map(len, map(_GENERATED, states))))


def _updated(recording: Recording, processor: Any, got: Got | None) -> None:
    if got is not None:
        recording.answered(got)


def _fails(recording: Recording, processor: Any, error: Any) -> list[str]:
    scheduler = recording.scheduler
    return _abort(recording, [*scheduler.active_requests, *scheduler.waiting_requests])


def _cancels(recording: Recording, scheduler: Any) -> list[str]:
    return _abort(recording, [i for i in list(scheduler._requests_to_cancel) if i in recording.live])


def _abort(recording: Recording, ids: list[str]) -> list[str]:
    """Begin an abort of these, if there are any."""
    if ids:
        alone = len(ids) == 1
        recording.enter("abort", key=ids[0] if alone else None, keys=None if alone else ids)
    return ids


def _aborted(recording: Recording, where: Any, ids: list[str]) -> None:
    if ids:
        recording.leave()
    for request_id in ids:
        recording.forget(request_id)
    if recording.flying:
        recording.gone.update(ids)


def _adds(recording: Recording, scheduler: Any, state: Any) -> None:
    # Within a step or an output the scheduler queues a request anew: that is no arrival.
    if not recording.inside:
        recording.submit(state)


def _of_scheduler(scheduler: Any) -> Recording | None:
    recording: Recording | None = getattr(scheduler, ATTRIBUTE, None)
    return recording


def _of_processor(processor: Any) -> Recording | None:
    scheduler = getattr(processor, "scheduler", None)  # not by its __dict__: that would make it slower
    return None if scheduler is None else _of_scheduler(scheduler)


_PROCESSOR, _SCHEDULER = ("continuous_api", "ContinuousBatchProcessor"), ("scheduler", "Scheduler")
HOOKS: Hooks = {
    (*_PROCESSOR, "__init__"): (Hook(after=_built), _Builder),
    (*_PROCESSOR, "reset"): (either(_resets, _reset), _of_processor),
    (*_PROCESSOR, "prepare_next_batch"): (Hook(_prepares, _prepared, _not_prepared), _of_processor),
    (*_PROCESSOR, "update_batch"): (either(_updates, _updated), _of_processor),
    (*_PROCESSOR, "fail_all_requests"): (either(_fails, _aborted), _of_processor),
    (*_SCHEDULER, "add_waiting_request"): (Hook(before=_adds), _of_scheduler),
    (*_SCHEDULER, "clear_cancelled_requests"): (either(_cancels, _aborted), _of_scheduler),
    (*_SCHEDULER, "_process_candidates"): (Hook(before=_processes), _of_scheduler),
}
"""By module, class and method."""


def _version() -> str:
    import importlib.metadata

    return importlib.metadata.version("transformers")
