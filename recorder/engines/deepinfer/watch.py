"""Tells a recorder what one scheduler of DeepInfer does.

It asks the scheduler as little as it can: a step of many requests costs a few calls for each. Units are seen
through the build's ``_C.view``; where there is none only their number is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress, repeat
from operator import add, attrgetter, ne, neg, sub
from typing import Any, NamedTuple

from ...requests import SchedulerRecorder
from ..hooked import Guard

__all__ = ["WORDS", "Watch"]

_KV, _STATE = 0, 1
_KEY, _TOKENS, _AFTER = map(attrgetter, ("seq_id", "seqlen_q", "seqlen_k"))
WORDS = {
    "FINISHED_STOPPED": "stop",
    "FINISHED_LENGTH_CAPPED": "length",
    "FINISHED_ABORTED": "abort",
    "FINISHED_IGNORED": "ignored",
    "FINISHED_PREEMPTED": "preempted",
    "FINISHED_SO_FAILED": "error",
    "FINISHED_VE_FAILED": "error",
}
"""Why a request has ended, by its status."""
_DECIDED = {"FINISHED_IGNORED": "reject", "FINISHED_PREEMPTED": "finish"}
_IN_FLIGHT_MAX = 64
"""Steps whose output is awaited; no more than two are."""


class _Step(NamedTuple):
    """A step in flight.

    Attributes
    ----------
    number : int or None
        None: nobody knows which it is.
    keys : list of int
        Its requests, in the scheduler's order.
    after : list of int
        Their tokens computed after it.
    told : list of int
        Its requests, in the order that was told.
    rest : int
        After how many more tokens, at least, one of them has to end.
    """

    number: int | None
    keys: list[int]
    after: list[int]
    told: list[int]
    rest: int


_NO_STEP = _Step(None, [], [], [], 0)


def _difference(old: list[int], now: list[int]) -> tuple[list[int], list[int]]:
    """Return the units that are gone and those that are new, each in its list's order."""
    if now[: len(old)] == old:
        return [], now[len(old) :]
    before, after = set(old), set(now)
    return [u for u in old if u not in after], [u for u in now if u not in before]


class Watch:
    """One scheduler.

    Parameters
    ----------
    guard : Guard
        Takes what goes wrong in here.
    recorder : SchedulerRecorder
        Told everything.
    managers : sequence of BlockManager
        Blocks, then state slots where there are any.
    units : sequence of int
        How many each has, unit 0 included.
    view : module or None
        ``deepinfer._C.view``.
    eos : int
        The token that ends a request.
    max_model_len : int
        Most tokens of a request.
    """

    def __init__(
        self,
        guard: Guard,
        recorder: SchedulerRecorder,
        managers: Sequence[Any],
        units: Sequence[int],
        view: Any,
        eos: int,
        max_model_len: int,
    ) -> None:
        self.guard = guard
        self._to = recorder
        self._managers, self._units, self._view = managers, units, view
        self._eos, self._max_model_len = eos, max_model_len
        self._sequences: dict[int, Any] = {}
        self._by_request: dict[str, list[int]] = {}
        self._held: dict[int, list[list[int]]] = {}
        self._counts: dict[int, int] = {}
        """How many blocks of each request are in `_held`."""
        self._ends_at: dict[int, int] = {}
        """How long each request can become."""
        self._order: tuple[list[int], list[int], int] = ([], [], 0)
        """The last decode step: its requests in the order that is told, their lengths, and `_Step.rest`."""
        self._running: set[int] = set()
        self._releases: set[int] = set()
        self._flying: dict[int, _Step] = {}
        """Steps in flight, by the identity of the scheduler's outputs."""
        self._answering = _NO_STEP
        self._steps = 0
        self._decode_step = 0
        self._preempted = 0
        self._unfinished = 0
        self._open = False

    # --- inputs, each called around the engine's own method ---

    def reserved(self, sequence: Any) -> None:
        """Note a request whose units were handed out before it is added."""
        self._held[sequence.seq_id] = [[], []]

    def submit(self, sequence: Any, unfinished: int) -> None:
        """Tell of a request that was added."""
        self._settle()
        key = sequence.seq_id
        flags = [] if sequence.schedulable else ["blocked"]
        if key in self._held:
            flags.append("reserved")
        limit = int(sequence.sampling_params.max_tokens)
        self._to.begin("submit", key=key)
        self._to.submit(key, prompt_tokens=sequence.get_prompt_len(), max_tokens=limit, flags=flags)
        self._sequences[key] = sequence
        self._by_request.setdefault(sequence.request_id, []).append(key)
        length = sequence.get_len()
        self._order = [], [], 0  # an id may come again
        self._ends_at[key] = min(length + limit, self._max_model_len + 1)
        self._unfinished = unfinished
        self._moved((key,))
        self._end()

    def abort(self, requests: Iterable[str]) -> bool:
        """Begin an abort; return whether it is about requests that are known."""
        self._settle()
        keys = [k for r in requests for k in self._by_request.get(r, ())]
        if keys:
            alone = len(keys) == 1
            self._to.begin("abort", key=keys[0] if alone else None, keys=None if alone else keys)
        return bool(keys)

    def aborted(self) -> None:
        """End an abort."""
        self._moved(())
        self._end()

    def set_schedulable(self, request: str) -> None:
        """Tell that a request may be scheduled now."""
        self._settle()
        for key in self._by_request.get(request, ()):
            self._to.begin("set_schedulable", key=key)
            self._end()

    def step(self, decode_step: int) -> None:
        """Begin a step."""
        self._settle()
        changed = decode_step != self._decode_step
        self._to.begin("step", step=self._steps, decode_only=True if changed else None)
        self._steps += 1

    def failed(self) -> None:
        """End an input whose call raised."""
        self._end()

    def scheduled(self, scheduler: Any, metadata: Sequence[Any], outputs: Any) -> None:
        """Tell what a step is."""
        self._decode_step = scheduler.decode_step
        prompt = bool(outputs.prompt_run)
        keys, after = list(map(_KEY, metadata)), list(map(_AFTER, metadata))
        if not prompt and outputs.num_batched_tokens == len(keys):  # each has one at least
            tokens = [1] * len(keys)
        else:
            tokens = list(map(_TOKENS, metadata))
        finished = [s.seq_id for s in outputs.finished_seqs]
        self._releases.update(finished)
        left = self._left(scheduler, len(keys) if prompt else len(finished))
        others = {*left, *self._preempting(scheduler)}
        grown = self._grown(keys, metadata)
        if others:
            grown += [k for k in self._sequences if k in others]
        self._moved(grown)
        for key in left:
            self._forget(key)
        told, rest = self._schedule(keys, tokens, after, prompt)
        if not prompt:
            self._running = set(keys)
        if len(self._flying) >= _IN_FLIGHT_MAX:
            del self._flying[next(iter(self._flying))]
        self._flying[id(outputs)] = _Step(self._steps - 1, keys, after, told, rest)
        self._maybe_end()

    def output(self, outputs: Any) -> None:
        """Begin an output."""
        self._settle()
        self._answering = self._flying.pop(id(outputs), _NO_STEP)
        self._to.begin("output", step=self._answering.number)

    def answered(self, outputs: Any, pushed: Sequence[int], tokens: Sequence[int], unfinished: int) -> None:
        """Tell what the model gave, and who has ended with it."""
        step = self._answering
        if outputs.prompt_run:
            self._running.update(k for k, count in zip(step.keys, pushed, strict=True) if count)
        words: dict[int, str] = {}
        ended: list[int] = []
        if step.rest <= max(pushed, default=0) or 0 in pushed or self._eos in tokens:
            for key, after, count, token in zip(step.keys, step.after, pushed, tokens, strict=True):
                if count and after + count < self._ends_at.get(key, 0) and token != self._eos:
                    continue
                word = self._end_of(key)
                if word is not None:
                    words[key] = word
                    if count and key in self._ends_at:
                        ended.append(key)
        if pushed.count(1) == len(pushed) == len(step.told):  # the same requests, in the order that is known
            self._to.answer_columns(step.told, list(pushed), words)
        else:
            self._to.answer_columns(step.keys, list(pushed), words)
        for key in ended:
            self._to.decision("finish", key)
        self._unfinished = unfinished
        self._moved(())
        self._maybe_end()

    def freed(self, sequence: Any) -> None:
        """Tell that the engine has freed a request that has ended."""
        key = sequence.seq_id
        self._moved((key,))
        self._forget(key)
        if key in self._releases:
            self._releases.discard(key)
            if not self._releases and self._open:
                self._end()

    # --- inside ---

    def _schedule(
        self, keys: list[int], tokens: list[int], after: list[int], prompt: bool
    ) -> tuple[list[int], int]:
        """Tell the requests of a step; return their order, and `_Step.rest`."""
        if prompt:
            computed, rest = list(map(sub, after, tokens)), self._rest(keys, after)
        else:
            keys, tokens, computed, after, rest = self._sorted(keys, tokens, after)
        self._to.schedule_columns(keys, tokens, computed, [prompt] * len(keys), after)
        return keys, rest

    def _rest(self, keys: list[int], after: list[int]) -> int:
        return min(map(sub, map(self._ends_at.get, keys, repeat(0)), after), default=0)

    def _sorted(
        self, keys: list[int], tokens: list[int], after: list[int]
    ) -> tuple[list[int], list[int], list[int], list[int], int]:
        """Return a decode step by falling length: requests, tokens, computed before and after, `_Step.rest`.

        The scheduler's sort leaves the order of equals open: that order is none of its decisions, and changes
        with every step. Where all have become longer by one, the order is that of the step before.
        """
        order, before, rest = self._order
        if len(order) == len(keys) == tokens.count(1):
            lengths = list(map(add, before, tokens))
            if list(map(dict(zip(keys, after, strict=True)).get, order)) == lengths:
                self._order = order, lengths, rest - 1
                return order, tokens, before, lengths, rest - 1
        rows = sorted(zip(map(neg, after), keys, tokens, strict=True))
        order, lengths = [row[1] for row in rows], [-row[0] for row in rows]
        tokens = [row[2] for row in rows]
        self._order = order, lengths, self._rest(order, lengths)
        return order, tokens, list(map(sub, lengths, tokens)), lengths, self._order[2]

    def _end_of(self, key: int) -> str | None:
        """Return why a request has ended; None: it has not."""
        sequence = self._sequences.get(key)
        return None if sequence is None else WORDS.get(sequence.status.name)

    def _left(self, scheduler: Any, accounted: int) -> list[int]:
        """Return the requests that the scheduler has ended itself, where its count says so."""
        now = scheduler.get_num_unfinished_seqs()
        missing = self._unfinished - now - accounted
        self._unfinished = now
        if missing <= 0:
            return []
        left = []
        standing = {s.seq_id for s in (*scheduler.waiting, *scheduler.running)}
        for key, sequence in self._sequences.items():
            name = sequence.status.name
            if key in standing or key in self._releases or name not in WORDS:
                continue
            left.append(key)
            if name in _DECIDED:
                self._to.decision(_DECIDED[name], key)
        return left

    def _preempting(self, scheduler: Any) -> list[int]:
        """Tell who was preempted in this step, in the scheduler's order."""
        count = scheduler.get_num_preempted_seqs()
        if count == self._preempted:
            return []
        self._preempted = count
        waiting = [s.seq_id for s in scheduler.waiting]
        preempted = [k for k in reversed(waiting) if k in self._running]
        for key in preempted:
            self._to.decision("preempt", key)
        return preempted

    def _grown(self, keys: Sequence[int], metadata: Sequence[Any]) -> list[int]:
        """Return whose count of blocks is another one than it was."""
        if self._view is None:
            return []
        now, before = map(self._view.block_count, metadata), map(self._counts.get, keys, repeat(0))
        return list(compress(keys, map(ne, now, before)))

    def _moved(self, keys: Iterable[int]) -> None:
        """Tell the units that changed hands: what came back, then what went out; and what is free now."""
        allocations = []
        for key in keys if self._view is not None else ():
            sequence = self._sequences.get(key)
            if sequence is None:
                continue
            now = self._owned(sequence)
            old = self._held.get(key) or [[], []]
            for pool in range(len(self._managers)):
                gone, new = _difference(old[pool], now[pool])
                if gone:
                    self._to.blocks("free", pool, gone, key)
                if new:
                    allocations.append((pool, new, key))
            self._held[key] = now
            self._counts[key] = len(now[_KV])
        for pool, new, key in allocations:
            self._to.blocks("alloc", pool, new, key)
        for pool, manager in enumerate(self._managers):
            free = manager.get_num_free_blocks()
            self._to.resources(pool, free, self._units[pool] - 1 - free)

    def _owned(self, sequence: Any) -> list[list[int]]:
        """Return the units of a request; the number of its slot stays behind when it is given back."""
        blocks = self._view.block_table(sequence)
        slot = sequence.state_id
        return [blocks, [slot] if blocks and slot != -1 else []]

    def _forget(self, key: int) -> None:
        sequence = self._sequences.pop(key, None)
        self._held.pop(key, None)
        self._counts.pop(key, None)
        self._ends_at.pop(key, None)
        self._running.discard(key)
        if sequence is not None:
            keys = self._by_request.get(sequence.request_id, [])
            if key in keys:
                keys.remove(key)
            if not keys:
                self._by_request.pop(sequence.request_id, None)

    # An input stays open while requests that have ended wait to be freed: that is part of it.

    def _maybe_end(self) -> None:
        if self._releases:
            self._open = True
        else:
            self._end()

    def _settle(self) -> None:
        if self._open:
            self._end()

    def _end(self) -> None:
        self._open = False
        self._to.end()
