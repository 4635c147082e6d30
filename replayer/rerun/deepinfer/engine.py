"""One scheduler of DeepInfer, with what ``LLMEngine.step()`` does around it.

The order of calls is that of ``LLMEngine.step``, ``Worker.execute_step`` and ``LLMEngine.pre_sampler_sync``:
schedule; the output of the step before, where steps overlap; finished requests are freed; the output of this
step, unless it overlaps the next one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....recorder.engines.deepinfer.watch import WORDS
from ..environment import environment
from ..protocol import (
    Answer,
    BlockChange,
    Decision,
    PoolState,
    Reaction,
    RequestState,
    State,
    Submission,
    TokenSource,
    Unsupported,
)
from ..refusing import Refusing
from .config import BLOCKED, RESERVED, Config, fuller_than_watermark

__all__ = ["DeepInferEngine"]

_NO_TOKEN = 0
"""Given for rows that produce no token (a chunk of a prompt); shown nowhere unless the scheduler is wrong."""


@dataclass(eq=False, slots=True)
class _Step:
    """A step that was scheduled: what the scheduler returned, and what is left to do."""

    number: int
    outputs: Any
    metadata: list[Any]
    computed: dict[int, int]
    """Of each request, in order: tokens computed when the step is over."""
    prompt: bool
    to_free: list[int] = field(default_factory=list)


class DeepInferEngine(Refusing):
    """A scheduler and its two block managers.

    Parameters
    ----------
    config : Config
    tokens : TokenSource
        Content of the requests.
    """

    engine = "DeepInfer"

    def __init__(self, config: Config, tokens: TokenSource) -> None:
        # torch first: the extension needs its libraries
        import numpy
        import torch
        from deepinfer._C import engine, view
        from deepinfer.sampling_params import SamplingParams

        self._numpy, self._torch, self._cpp, self._view = numpy, torch, engine, view
        self._sampling = SamplingParams
        self._config, self._tokens = config, tokens
        self._managers = {"kv": engine.BlockManager(config.num_blocks)}
        if config.num_states:
            self._managers["state"] = engine.BlockManager(config.num_states)
        with environment("DEEPINFER_USE_NEXTN_DECODE", str(config.nextn)):
            self._scheduler = engine.Scheduler(
                config.block_size, self._managers["kv"], self._managers.get("state"), config.eos_token_id,
                _group(), _Settings(config), config.truncate_len, config.lookahead_tokens,
                config.prefill_max_sum_seqlen_k, None, [], config.cp_size, config.vocab_size, False,
            )  # fmt: skip
        self._pool = engine.SequenceMetadataPool()
        self._known: dict[int, Any] = {}
        """Sequences that the scheduler has, or that a step in flight or a pending release has."""
        self._held: dict[int, dict[str, list[int]]] = {}
        self._preempted: set[int] = set()
        self._freed: set[int] = set()
        """Those among `_known` that have ended and are freed."""
        self._flying: list[_Step] = []
        self._releases: list[_Step] = []
        self._steps = 0

    # --- inputs ---

    def submit(self, submission: Submission) -> Reaction:
        """Add a request; with ``reserved`` its units are handed out first, if there are enough."""
        self._between_steps()
        number = submission.request
        length = submission.prompt_tokens
        prompt = self._numpy.fromiter(
            (self._tokens(number, p) for p in range(length)), dtype=self._numpy.int32, count=length
        )
        limit = submission.max_tokens if submission.max_tokens is not None else self._config.max_model_len
        sequence = self._cpp.Sequence(
            seq_id=number, prompt_token_ids=prompt, compressed_prompt_token_ids=prompt,
            multi_modal_data={"image": 1} if BLOCKED in submission.flags else None,
            block_size=self._config.block_size, request_id=str(number), user_id="",
            sampling_params=self._sampling(max_tokens=limit, eos_id=self._config.eos_token_id, seq_seed=0),
            arrival_time=0.0, golden_token_ids=None,
        )  # fmt: skip
        if RESERVED in submission.flags:
            self._scheduler.try_allocate_seq(sequence)
        self._scheduler.add_sequence(sequence)
        self._known[number] = sequence
        return Reaction(tuple(self._moved((number,))))

    def abort(self, requests: Sequence[int]) -> Reaction:
        """Abort requests, in this order."""
        self._between_steps()
        self._scheduler.abort_sequence([str(r) for r in requests])
        return Reaction(tuple(self._moved(requests)))

    def set_schedulable(self, request: int) -> Reaction:
        """Let a request that waits for its images be scheduled."""
        self._between_steps()
        self._scheduler.set_schedulable(str(request))
        return Reaction(tuple(self._moved((request,))))

    def step(self, decode_only: bool = False) -> Reaction:
        """Schedule a step; free what has finished, unless an older step is in flight."""
        self._between_steps()
        if decode_only:
            self._scheduler.decode_step = self._config.quiet_decode_step()
        running = {s.seq_id for s in self._scheduler.running}
        waiting = {s.seq_id for s in self._scheduler.waiting}
        metadata, outputs = self._scheduler.schedule(self._pool)
        numbers = tuple(s.seq_id for s in outputs.scheduled_seqs)
        computed = {r: row.seqlen_k for r, row in zip(numbers, metadata, strict=True)}
        step = _Step(self._steps, outputs, metadata, computed, bool(outputs.prompt_run))
        step.to_free = [s.seq_id for s in outputs.finished_seqs]
        self._steps += 1
        now_waiting = [s.seq_id for s in self._scheduler.waiting]
        preempted = [r for r in reversed(now_waiting) if r in running]
        events = self._left(
            waiting.difference(now_waiting, numbers), running.difference(numbers, now_waiting)
        )
        events += [Decision("preempt", r) for r in preempted]
        self._preempted.update(preempted)
        events += self._moved(numbers)
        kind = "prefill" if step.prompt else "decode"
        rows = [(r, m.seqlen_q, m.seqlen_k) for r, m in zip(numbers, metadata, strict=True)]
        if not step.prompt:  # sorted by length; the order of equal ones is left open, by an unstable sort
            rows.sort(key=lambda row: (-row[2], row[0]))
        events += [Decision(kind, r, tokens, after - tokens) for r, tokens, after in rows]
        if step.prompt:
            self._preempted.difference_update(numbers)
        self._flying.append(step)
        self._releases.append(step)
        events += self._release()
        self._forget()
        return Reaction(tuple(events), handle=step)

    def output(self, handle: _Step, answers: Sequence[Answer]) -> Reaction:
        """Give a step its tokens, then free what the step after it found finished."""
        self._flying.remove(handle)
        given = {a.request: a for a in answers}
        values = [self._value(given.get(r)) for r in handle.computed]
        before = {r: self._known[r].status for r in handle.computed}
        torch = self._torch
        count = len(values)
        self._cpp.process_MTPInfo(handle.outputs, False, torch.zeros((count, 0), dtype=torch.int32), None)
        _, pushed = self._scheduler.process_outputs(
            handle.outputs, torch.empty(0, dtype=torch.int32), torch.tensor(values, dtype=torch.int32), None
        )
        shown = [
            (r, (self._known[r].data.get_last_token_id(),))
            for r, tokens in zip(handle.computed, pushed.tolist(), strict=True)
            if tokens
        ]
        self._pool.release(handle.metadata)
        events: list[Decision | BlockChange] = [
            Decision("finish", r)
            for r in handle.computed
            if _over(self._known[r]) and not _over_status(before[r])
        ]
        ended = tuple((r, word) for r in handle.computed if (word := self._why(r)) is not None)
        events += self._moved(tuple(handle.computed))
        events += self._release()
        self._forget()
        return Reaction(tuple(events), emitted=tuple(shown), ended=ended)

    def close(self) -> None:
        """Forget everything."""
        self._known.clear()
        self._flying.clear()
        self._releases.clear()

    # --- what is visible ---

    def must_answer(self) -> bool:
        """Return whether a prompt step is in flight: its output comes before anything else can reach it.

        Its requests stand in no queue until then, so that an abort would not find them; ``LLMEngine.step``
        returns only after the output of a prompt step.
        """
        return any(s.prompt for s in self._flying)

    def stalled(self) -> str | None:
        """Return why nothing moves, as far as the head of the queue tells; None: by design.

        A request that cannot be scheduled yet holds up those behind it on purpose (``_has_prefill_waiting``):
        they wait for its images.
        """
        waiting = list(self._scheduler.waiting)
        if not waiting:
            return ""
        head, behind = waiting[0], waiting[1:]
        if not head.schedulable and not _over(head):
            return None
        if not self._view.block_table(head):
            if any(self._view.block_table(s) for s in behind):
                return "the request at the head of the queue waits for blocks that one behind it holds"
            return ""
        free = self._managers["kv"].get_num_free_blocks()
        if not self._scheduler.running and fuller_than_watermark(self._config.num_blocks, free):
            return "the cache is fuller than the watermark for prompts, and nothing runs"
        return ""

    def state(self) -> State:
        """Return what is visible of the scheduler."""
        queues = {s.seq_id: "running" for s in self._scheduler.running}
        queues |= {s.seq_id: "waiting" for s in self._scheduler.waiting}
        flights: dict[int, int] = {}
        computed: dict[int, int] = {}
        for step in self._flying:
            for r, tokens in step.computed.items():
                flights[r] = flights.get(r, 0) + 1
                if r not in self._preempted:  # what it had computed is gone
                    computed[r] = tokens
        requests = {
            r: RequestState(
                self._phase(r, sequence, queues.get(r, "")),
                max(sequence.num_cached_tokens, computed.get(r, 0)),
                sequence.get_len(),
                flights.get(r, 0),
                {pool: tuple(units) for pool, units in self._units(sequence).items()},
                queues.get(r, "in flight" if flights.get(r) else ""),
            )
            for r, sequence in self._known.items()
        }
        # Its counter has requests that have ended and stand in a queue, and misses prompts in flight.
        unfinished = int(self._scheduler.get_num_unfinished_seqs())
        unfinished -= sum(1 for r in queues if r in requests and requests[r].phase == "finished")
        unfinished += sum(1 for q in requests.values() if q.queue == "in flight" and q.phase != "finished")
        pools = {
            name: PoolState(
                manager.get_num_free_blocks(),
                tuple(self._view.free_units(manager)),
                dict(self._view.references(manager)),
            )
            for name, manager in self._managers.items()
        }
        counters = {
            "preempted": int(self._scheduler.get_num_preempted_seqs()),
            "aborted": int(self._scheduler.get_num_aborted_seqs()),
        }
        return State(requests, pools, unfinished, counters=counters, faults=tuple(self._faults(queues)))

    def _phase(self, request: int, sequence: Any, queue: str) -> str:
        if _over(sequence):
            return "finished"
        if queue == "running":
            return "decode"
        if not sequence.schedulable:
            return "blocked"
        if request in self._preempted:
            return "preempted"
        return "prefill" if sequence.num_cached_tokens or queue != "waiting" else "waiting"

    def _faults(self, queues: dict[int, str]) -> Iterator[tuple[str, str]]:
        standing = len(self._scheduler.running) + len(self._scheduler.waiting)
        if standing != len(queues):
            yield "I1", "a request stands twice in the queues"
        if len(self._scheduler.running) > self._config.max_num_seqs:
            yield "I9", "more requests run than max_num_seqs"

    def _units(self, sequence: Any) -> dict[str, list[int]]:
        """Return what a request owns; the slot's number stays behind when its units are given back."""
        blocks = self._view.block_table(sequence)
        units = {"kv": blocks}
        if "state" in self._managers:
            units["state"] = [sequence.state_id] if blocks and sequence.state_id != -1 else []
        return units

    # --- what one call did ---

    def _moved(self, first: Sequence[int]) -> list[Decision | BlockChange]:
        """Return the units that changed hands since the last call: what came back, then what went out."""
        frees: list[BlockChange] = []
        allocations: list[BlockChange] = []
        for r in dict.fromkeys((*first, *self._known)):
            sequence = self._known.get(r)
            if sequence is None:
                continue
            now, before = self._units(sequence), self._held.get(r, {})
            for pool, units in now.items():
                old = before.get(pool, [])
                if units == old:
                    continue
                gone = tuple(u for u in old if u not in units)
                new = tuple(u for u in units if u not in old)
                frees += [BlockChange("free", pool, gone, r)] * bool(gone)
                allocations += [BlockChange("alloc", pool, new, r)] * bool(new)
            self._held[r] = now
        return [*frees, *allocations]

    def _left(self, queue: set[int], running: set[int]) -> list[Decision | BlockChange]:
        """Return the requests that the scheduler has ended itself: prompts too long, preempted for good."""
        ended = [r for r in (*sorted(queue), *sorted(running)) if r in self._known and _over(self._known[r])]
        kinds = {"FINISHED_IGNORED": "reject", "FINISHED_PREEMPTED": "finish"}
        names = [(r, self._known[r].status.name) for r in ended]
        return [Decision(kinds[name], r) for r, name in names if name in kinds]

    def _release(self) -> list[Decision | BlockChange]:
        """Free the finished requests of every step that no older step in flight holds up."""
        events: list[Decision | BlockChange] = []
        while self._releases:
            step = self._releases[0]
            if any(other.number < step.number for other in self._flying):
                break
            for r in step.to_free:
                self._scheduler.free_seq(self._known[r])
                events += self._moved((r,))
                self._freed.add(r)
            step.to_free = []
            self._releases.pop(0)
        return events

    def _why(self, request: int) -> str | None:
        """Return why a request has ended; None: it has not, or it was freed before."""
        return None if request in self._freed else WORDS.get(self._known[request].status.name)

    def _forget(self) -> None:
        """Forget the sequences that nobody has any more."""
        kept = {s.seq_id for s in (*self._scheduler.running, *self._scheduler.waiting)}
        kept.update(r for step in self._flying for r in step.computed)
        kept.update(r for step in self._releases for r in step.to_free)
        for r in self._known.keys() - kept:
            del self._known[r]
            self._held.pop(r, None)
            self._preempted.discard(r)
            self._freed.discard(r)

    def _value(self, answer: Answer | None) -> int:
        """Return the token that a request gets."""
        if answer is None or answer.tokens == 0:
            return _NO_TOKEN
        if answer.tokens > 1:
            raise Unsupported("DeepInfer's scheduler is rerun without draft tokens: one token per step")
        if answer.word == "stop":
            return self._config.eos_token_id
        sequence = self._known[answer.request]
        at = answer.position if answer.position is not None else sequence.get_len()
        return self._tokens(answer.request, at)

    def _between_steps(self) -> None:
        if self.must_answer():
            raise Unsupported("nothing reaches DeepInfer between a prompt step and its output")


class _Settings:
    """What the scheduler reads of its ``scheduler_config``."""

    def __init__(self, config: Config) -> None:
        self.max_model_len = config.max_model_len
        self.runtime_max_model_len = config.runtime_max_model_len or config.max_model_len + 16
        self.max_num_batched_tokens = config.max_num_batched_tokens
        self.max_num_seqs = config.max_num_seqs
        self.stop_preempted_request = config.stop_preempted_request
        self.chunked_prefill = config.chunked_prefill
        self.engine_type = config.engine_type
        self.prefill_attempt_interval = config.prefill_attempt_interval
        self.prefill_any_attempt_interval = config.prefill_any_attempt_interval


def _over(sequence: Any) -> bool:
    return _over_status(sequence.status)


@functools.cache  # an enumeration of the extension: its names take longer than all else that is looked at
def _over_status(status: Any) -> bool:
    return str(status.name).startswith("FINISHED")


_groups: list[Any] = []


def _group() -> Any:
    """Return the process group of one rank that the scheduler votes in."""
    if not _groups:
        import torch.distributed as dist

        if not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        _groups.append(dist.new_group(ranks=[0], backend="gloo"))
    return _groups[0]
