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
        # looked up once: on the class of an enumeration each look costs as much as a comparison of ten others
        self._running = RequestStatus.RUNNING
        self._waiting = RequestStatus.WAITING
        self._preempted = RequestStatus.PREEMPTED
        self._between_chunks = RequestStatus.WAITING_FOR_STREAMING_REQ
        self._unpaused = PauseState.UNPAUSED
        self._managers = scheduler.kv_cache_manager.coordinator.single_type_managers
        self._block_pool = scheduler.kv_cache_manager.block_pool
        self._blocks = [b for b in self._block_pool.blocks if not b.is_null]
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
        return any(self._units(r.request_id) for r in self._scheduler.kv_holding_waiting)

    def fits(self, key: str) -> bool:
        """Return whether the free blocks would do for all known tokens of a request and one more.

        All KV groups take their blocks from one pool. Of a window that slides all of its blocks are counted,
        those that it has left behind included: at most that many are needed.
        """
        tokens = self._scheduler.requests[key].num_tokens + 1
        lacking = 0
        for manager in self._managers:
            lacking += max(0, -(-tokens // manager.block_size) - len(manager.req_to_blocks.get(key, ())))
        return bool(lacking <= self._block_pool.get_num_free_blocks())

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
        # called after every call of a run: generators and second passes over the requests tell in its time
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
            self._numbers[key]: RequestState(
                self._phase(request),
                request.num_computed_tokens,
                request.num_tokens,
                self._steps[key],
                {POOL_NAME: self._units(key)},
                where.get(key, ""),
            )
            for key, request in scheduler.requests.items()
        }
        sessions = scheduler.num_waiting_for_streaming_input
        paused = scheduler.pause_state != self._unpaused
        if paused:  # the count is of those that may go on; it says nothing about the others
            unfinished = sum(r.phase != "finished" for r in requests.values())
        else:
            unfinished = scheduler.get_num_unfinished_requests() + sessions
        pool = self._pool()
        return State(
            requests=requests,
            pools={POOL_NAME: pool},
            unfinished=unfinished,
            paused=paused,
            counters=self._counters(sessions, pool),
            faults=tuple(dict.fromkeys(self._faults(queues, where))),
        )

    def _phase(self, request: Any) -> str:
        status = request.status
        if status is self._running:
            return "prefill" if request.is_prefill_chunk else "decode"
        if status is self._waiting:
            return "waiting"
        if status is self._preempted:
            return "preempted"
        if status is self._between_chunks:
            return "chunk"
        return "finished" if request.is_finished() else "blocked"

    def _units(self, key: str) -> tuple[int, ...]:
        units: list[int] = []
        for manager in self._managers:
            units += [b.block_id for b in manager.req_to_blocks.get(key, ()) if not b.is_null]
        return tuple(units)

    def _pool(self) -> PoolState:
        pool = self._block_pool
        return PoolState(
            free=pool.get_num_free_blocks(),
            free_units=_walk(pool.free_block_queue, len(pool.blocks)),
            references={b.block_id: b.ref_cnt for b in self._blocks if b.ref_cnt},
        )

    def _counters(self, sessions: int, pool: PoolState) -> dict[str, int]:
        requests = self._scheduler.requests.values()
        references = pool.references or {}
        return {
            "sessions that wait for a chunk": sessions,
            "num_output_placeholders": min([r.num_output_placeholders for r in requests], default=0),
            "num_stale_output_tokens": min([r.num_stale_output_tokens for r in requests], default=0),
            "num_in_flight_tokens": min([r.num_in_flight_tokens for r in requests], default=0),
            "references of a block": min(references.values(), default=0),
        }

    def _faults(self, queues: Mapping[str, list[str]], where: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield what only vLLM's own names can say."""
        scheduler = self._scheduler
        alive = scheduler.requests
        if self._over_budget:
            yield "I9", "a step has more tokens than its budget"
        if len(queues["running"]) > scheduler.max_num_running_reqs:
            yield "I9", "more requests run than slots"
        if not where.keys() <= alive.keys():
            for queue, keys in queues.items():
                if any(key not in alive for key in keys):
                    yield "I3", f"the queue {queue} keeps a request that has ended"
        if len(where) < sum(map(len, queues.values())):
            yield "I1", "a request stands in two queues, or twice in one"
        waits = 0
        for key, request in alive.items():
            status, stands = request.status, where.get(key)
            if stands is not None and (status is self._running) != (stands == "running"):
                yield "I5", "the status of a request does not fit its queue"
            if request.is_finished():
                yield "I3", "a request that has ended is still known"
            if request.num_in_flight_tokens != self._tokens[key]:
                yield "I7", "the count of tokens in flight is not that of the steps in flight"
            if status is self._between_chunks:
                waits += 1
                if stands is None:
                    yield "I5", "a session that waits for a chunk stands in no queue"
            if len(request.prompt_token_ids) > request.num_tokens:
                yield "I6", "a request has lost tokens of its prompt"
        if waits != scheduler.num_waiting_for_streaming_input:
            yield "I7", "the count of sessions that wait for a chunk is wrong"
        for manager in self._managers:
            held = manager.req_to_blocks
            if not held.keys() <= alive.keys() and any(held[key] for key in held.keys() - alive.keys()):
                yield "I3", "a request that has ended keeps blocks"
            if not manager.num_cached_block.keys() <= alive.keys():
                yield "I3", "the count of cached blocks of a request that has ended is kept"
        if any(r.request_id not in alive for r in scheduler._inflight_prefills):
            yield "I3", "a request that has ended counts as one in prefill"
        if any(r.request_id not in alive for r in scheduler.deferred_waiting):
            yield "I3", "a request that has ended counts as one put off"


def _unsorted(queue: Any) -> list[Any]:
    """Return what stands in a queue; a priority queue sorts at every walk, which is not needed here."""
    heap = getattr(queue, "_heap", None)
    return list(queue) if heap is None else heap


def _walk(free: Any, most: int) -> tuple[int, ...]:
    """Return the units of the free list; a ring in it ends after `most` units more than there are."""
    block, end = free.fake_free_list_head.next_free_block, free.fake_free_list_tail
    units: list[int] = []
    while block is not None and block is not end and len(units) < 2 * most:
        units.append(block.block_id)
        block = block.next_free_block
    return tuple(units)
