"""What is visible of a vLLM scheduler between two calls.

vLLM frees and hands out blocks while a step in flight still uses them, on purpose: the steps run one after
the other on one stream of the device. Only a KV connector makes it wait, and with one nothing is rerun.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ..protocol import PoolState, RequestState, State
from .told import POOL_NAME

__all__ = ["Seen"]


class Seen:
    """Reads the state of a scheduler, and keeps what is in flight beside it.

    Parameters
    ----------
    scheduler : object
        vLLM's scheduler.
    numbers : mapping of str to int
        The number of each request by the engine's id.
    """

    def __init__(self, scheduler: Any, numbers: Mapping[str, int]) -> None:
        from vllm.v1.core.sched.interface import PauseState
        from vllm.v1.request import RequestStatus

        self._scheduler = scheduler
        self._numbers = numbers
        self._statuses = RequestStatus
        self._pauses = PauseState
        self._steps: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._budget = scheduler.max_num_scheduled_tokens
        self._over_budget = False

    def launched(self, output: Any) -> None:
        """Count a step as in flight."""
        for key, tokens in output.num_scheduled_tokens.items():
            self._steps[key] += 1
            self._tokens[key] += tokens
        self._over_budget |= sum(output.num_scheduled_tokens.values()) > self._budget

    def landed(self, output: Any) -> None:
        """Count a step as answered."""
        for key, tokens in output.num_scheduled_tokens.items():
            self._steps[key] -= 1
            self._tokens[key] -= tokens

    def waiting_holds(self) -> bool:
        """Return whether a request that waits holds blocks."""
        return any(self._blocks(r.request_id) for r in self._scheduler.kv_holding_waiting)

    def stalled(self) -> str:
        """Return why nothing is scheduled any more, "" where that is not seen."""
        scheduler = self._scheduler
        queued = {
            r.request_id
            for queue in (
                scheduler.running,
                _unsorted(scheduler.waiting),
                _unsorted(scheduler.kv_holding_waiting),
            )
            for r in queue
        }
        if any(key not in queued for key in scheduler.requests):
            return "a request stands in no queue"
        if any(key not in scheduler.requests for key in queued):
            return "a request that has ended stands in a queue"
        if not scheduler.running and self.waiting_holds():
            return "only requests that wait hold blocks, and vLLM preempts none of those"
        return ""

    def state(self) -> State:
        """Return all that is visible."""
        scheduler = self._scheduler
        queues = {
            "running": [r.request_id for r in scheduler.running],
            "waiting": [r.request_id for r in _unsorted(scheduler.waiting)],
            "holding": [r.request_id for r in _unsorted(scheduler.kv_holding_waiting)],
        }
        where: dict[str, str] = {}
        for queue, keys in queues.items():
            for key in keys:
                where.setdefault(key, queue)
        requests = {
            self._numbers[key]: self._request(key, request, where.get(key, ""))
            for key, request in scheduler.requests.items()
        }
        sessions = scheduler.num_waiting_for_streaming_input
        paused = scheduler.pause_state != self._pauses.UNPAUSED
        if paused:  # the count is of those that may go on; it says nothing about the others
            unfinished = sum(r.phase != "finished" for r in requests.values())
        else:
            unfinished = scheduler.get_num_unfinished_requests() + sessions
        return State(
            requests=requests,
            pools={POOL_NAME: self._pool()},
            unfinished=unfinished,
            paused=paused,
            counters=dict(self._counters(sessions)),
            faults=tuple(dict.fromkeys(self._faults(queues))),
        )

    def _request(self, key: str, request: Any, queue: str) -> RequestState:
        return RequestState(
            phase=self._phase(request),
            computed_tokens=request.num_computed_tokens,
            known_tokens=request.num_tokens,
            in_flight=self._steps[key],
            units={POOL_NAME: self._blocks(key)},
            queue=queue,
        )

    def _phase(self, request: Any) -> str:
        status, statuses = request.status, self._statuses
        if status == statuses.RUNNING:
            return "prefill" if request.is_prefill_chunk else "decode"
        if status == statuses.WAITING:
            return "waiting"
        if status == statuses.PREEMPTED:
            return "preempted"
        if status == statuses.WAITING_FOR_STREAMING_REQ:
            return "chunk"
        return "finished" if request.is_finished() else "blocked"

    def _managers(self) -> Any:
        return self._scheduler.kv_cache_manager.coordinator.single_type_managers

    def _blocks(self, key: str) -> tuple[int, ...]:
        return tuple(
            b.block_id for m in self._managers() for b in m.req_to_blocks.get(key, ()) if not b.is_null
        )

    def _pool(self) -> PoolState:
        pool = self._scheduler.kv_cache_manager.block_pool
        return PoolState(
            free=pool.get_num_free_blocks(),
            free_units=tuple(_walk(pool.free_block_queue, len(pool.blocks))),
            references={b.block_id: b.ref_cnt for b in pool.blocks if b.ref_cnt and not b.is_null},
        )

    def _counters(self, sessions: int) -> Iterator[tuple[str, int]]:
        yield "sessions that wait for a chunk", sessions
        names = ("num_output_placeholders", "num_stale_output_tokens", "num_in_flight_tokens")
        for name in names:
            yield name, min((getattr(r, name) for r in self._scheduler.requests.values()), default=0)
        pool = self._scheduler.kv_cache_manager.block_pool
        yield "references of a block", min(b.ref_cnt for b in pool.blocks if not b.is_null)

    def _faults(self, queues: Mapping[str, list[str]]) -> Iterator[tuple[str, str]]:
        """Yield what only vLLM's own names can say."""
        scheduler, statuses = self._scheduler, self._statuses
        alive = scheduler.requests
        if self._over_budget:
            yield "I9", "a step has more tokens than its budget"
        if len(queues["running"]) > scheduler.max_num_running_reqs:
            yield "I9", "more requests run than slots"
        standing = Counter(key for keys in queues.values() for key in keys)
        for queue, keys in queues.items():
            if any(key not in alive for key in keys):
                yield "I3", f"the queue {queue} keeps a request that has ended"
        if any(n > 1 for n in standing.values()):
            yield "I1", "a request stands in two queues, or twice in one"
        for key, request in alive.items():
            runs = request.status == statuses.RUNNING
            if standing[key] and runs != (key in queues["running"]):
                yield "I5", "the status of a request does not fit its queue"
            if request.is_finished():
                yield "I3", "a request that has ended is still known"
            if request.num_in_flight_tokens != self._tokens[key]:
                yield "I7", "the count of tokens in flight is not that of the steps in flight"
            if not standing[key] and request.status == statuses.WAITING_FOR_STREAMING_REQ:
                yield "I5", "a session that waits for a chunk stands in no queue"
            if len(request.prompt_token_ids) > request.num_tokens:
                yield "I6", "a request has lost tokens of its prompt"
        waits = sum(r.status == statuses.WAITING_FOR_STREAMING_REQ for r in alive.values())
        if waits != scheduler.num_waiting_for_streaming_input:
            yield "I7", "the count of sessions that wait for a chunk is wrong"
        for manager in self._managers():
            if any(blocks and key not in alive for key, blocks in manager.req_to_blocks.items()):
                yield "I3", "a request that has ended keeps blocks"
            if any(key not in alive for key in manager.num_cached_block):
                yield "I3", "the count of cached blocks of a request that has ended is kept"
        if any(r.request_id not in alive for r in scheduler._inflight_prefills):
            yield "I3", "a request that has ended counts as one in prefill"
        if any(r.request_id not in alive for r in scheduler.deferred_waiting):
            yield "I3", "a request that has ended counts as one put off"


def _unsorted(queue: Any) -> list[Any]:
    """Return what stands in a queue; a priority queue sorts at every walk, which is not needed here."""
    heap = getattr(queue, "_heap", None)
    return list(queue) if heap is None else heap


def _walk(free: Any, most: int) -> Iterator[int]:
    """Yield the units of the free list; a ring in it ends after `most` units more than there are."""
    block, end = free.fake_free_list_head.next_free_block, free.fake_free_list_tail
    for _ in range(2 * most):
        if block is None or block is end:
            return
        yield block.block_id
        block = block.next_free_block
