"""Faults planted into transformers' real scheduler: they prove that the checks bite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ....recorder.engines.transformers import watch

__all__ = ["FAULTS"]


@contextmanager
def _replaced(owner: Any, name: str, method: Callable[..., Any]) -> Iterator[None]:
    saved = owner.__dict__[name]
    setattr(owner, name, method)
    try:
        yield
    finally:
        setattr(owner, name, saved)


def _scheduler() -> Any:
    return watch.module("scheduler").Scheduler


def _ledger() -> Any:
    return watch.module("cache_allocators.cache_allocator").BlockLedger


def _kept_on_abort() -> AbstractContextManager[None]:
    """A cancelled request leaves its queue, its units stay."""

    def clear_cancelled_requests(self: Any) -> list[Any]:
        gone = []
        for request_id in self._requests_to_cancel:
            state = self.active_requests.pop(request_id, None) or self.waiting_requests.pop(request_id, None)
            if request_id in self.waiting_requests_order:
                self.waiting_requests_order.remove(request_id)
            gone += [state] if state is not None else []
        self._requests_to_cancel = set()
        return gone

    return _replaced(_scheduler(), "clear_cancelled_requests", clear_cancelled_requests)


def _not_dequeued_on_abort() -> AbstractContextManager[None]:
    """A cancelled request that waits is left in the queue."""

    def clear_cancelled_requests(self: Any) -> list[Any]:
        gone = []
        for request_id in self._requests_to_cancel:
            state = self.active_requests.pop(request_id, None)
            gone += [state] if state is not None else []
            self.cache.free_blocks(request_id)
        self._requests_to_cancel = set()
        return gone

    return _replaced(_scheduler(), "clear_cancelled_requests", clear_cancelled_requests)


def _freed_twice() -> AbstractContextManager[None]:
    """The last unit of a request that ends is given back twice."""
    original = _scheduler().finish_request

    def finish_request(self: Any, request_id: str) -> None:
        for allocator in self.cache.cache_allocators.values():
            for unit in allocator.block_table.get(request_id, ())[-1:]:
                if allocator.ledger.shared_ref_counts.get(unit, 1) == 1:
                    allocator.pool.free_blocks(allocator.index, [unit])
        original(self, request_id)

    return _replaced(_scheduler(), "finish_request", finish_request)


def _sharing_not_counted() -> AbstractContextManager[None]:
    """A unit that a second request uses is not counted for it."""

    def acquire(self: Any, block_id: int) -> None:
        self.cached_blocks.pop(block_id, None)

    return _replaced(_ledger(), "acquire", acquire)


def _token_doubled_on_preempt() -> AbstractContextManager[None]:
    """A preempted request is computed again with its last token twice."""
    states = watch.module("requests").RequestState
    original = states.create_equivalent_initial_request

    def create_equivalent_initial_request(self: Any) -> Any:
        state = original(self)
        state.initial_tokens.append(state.initial_tokens[-1])
        state.remaining_prefill_tokens.append(state.initial_tokens[-1])
        return state

    return _replaced(states, "create_equivalent_initial_request", create_equivalent_initial_request)


FAULTS: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "units-kept-on-abort": _kept_on_abort,
    "waiting-not-dequeued-on-abort": _not_dequeued_on_abort,
    "unit-freed-twice": _freed_twice,
    "sharing-not-counted": _sharing_not_counted,
    "token-doubled-on-preempt": _token_doubled_on_preempt,
}
