"""Faults to plant into the real scheduler, one method each: they prove that the checks bite.

Each is a mistake that a scheduler of this kind has had or could have: see the corpus of such bugs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

__all__ = ["FAULTS"]


@contextmanager
def _replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    original = owner.__dict__[name]
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def preempted_not_dequeued() -> Iterator[None]:
    """An abort leaves a preempted request in the waiting queue."""
    from vllm.v1.core.sched.request_queue import FCFSRequestQueue, PriorityRequestQueue
    from vllm.v1.request import RequestStatus

    def make(original: Any) -> Any:
        def remove_requests(self: Any, requests: Any) -> None:
            original(self, {r for r in requests if r.status != RequestStatus.PREEMPTED})

        return remove_requests

    with (
        _replaced(FCFSRequestQueue, "remove_requests", make),
        _replaced(PriorityRequestQueue, "remove_requests", make),
    ):
        yield


@contextmanager
def kept_on_abort() -> Iterator[None]:
    """The blocks of a request that is aborted between two chunks of its prompt stay."""
    from vllm.v1.core.sched.scheduler import Scheduler

    def make(original: Any) -> Any:
        def free_request_blocks(self: Any, request: Any) -> None:
            if not (request.is_finished() and request.is_prefill_chunk and request.num_computed_tokens):
                original(self, request)

        return free_request_blocks

    with _replaced(Scheduler, "_free_request_blocks", make):
        yield


@contextmanager
def stale_output() -> Iterator[None]:
    """A preemption does not note that output of the request is still on its way."""
    from vllm.v1.core.sched.scheduler import Scheduler

    def make(original: Any) -> Any:
        def preempt_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> None:
            original(self, request, *args, **kwargs)
            request.num_stale_output_tokens = 0

        return preempt_request

    with _replaced(Scheduler, "_preempt_request", make):
        yield


@contextmanager
def freed_twice() -> Iterator[None]:
    """The last block of a request that is aborted with output in flight is freed twice."""
    from vllm.v1.core.sched.scheduler import Scheduler

    def make(original: Any) -> Any:
        def free_request_blocks(self: Any, request: Any) -> None:
            late = request.is_finished() and request.num_in_flight_tokens > 0
            groups = self.kv_cache_manager.get_blocks(request.request_id).blocks if late else ()
            last = [blocks[-1] for blocks in groups if blocks]
            original(self, request)
            self.kv_cache_manager.block_pool.free_blocks(last)

        return free_request_blocks

    with _replaced(Scheduler, "_free_request_blocks", make):
        yield


@contextmanager
def counter_kept() -> Iterator[None]:
    """The abort of a session that waits for its next chunk leaves the count of such sessions."""
    from vllm.v1.core.sched.scheduler import Scheduler

    def make(original: Any) -> Any:
        def finish_requests(self: Any, request_ids: Any, finished_status: Any) -> Any:
            before = self.num_waiting_for_streaming_input
            try:
                return original(self, request_ids, finished_status)
            finally:
                self.num_waiting_for_streaming_input = before

        return finish_requests

    with _replaced(Scheduler, "finish_requests", make):
        yield


FAULTS: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "preempted-not-dequeued": preempted_not_dequeued,
    "kept-on-abort": kept_on_abort,
    "stale-output": stale_output,
    "freed-twice": freed_twice,
    "counter-kept": counter_kept,
}
"""By name."""
