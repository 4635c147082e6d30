"""Faults as engines had them, each planted into the toy scheduler for a while."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .pools import UnitPool
from .scheduler import Request, Row, Scheduler

__all__ = ["FAULTS", "Fault"]


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes
    ----------
    name : str
        What it is called.
    words : str
        What the scheduler does wrong.
    breaks : frozenset of str
        Invariants of which it breaks at least one; ``raises``, ``hangs`` and ``crashes`` besides.
    owner : type
        Class that is patched.
    methods : mapping of str to callable
        What stands for its methods.
    """

    name: str
    words: str
    breaks: frozenset[str]
    owner: type
    methods: dict[str, Callable[..., Any]]

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plant it; schedulers have it until the end of the context."""
        before = {name: getattr(self.owner, name) for name in self.methods}
        for name, method in self.methods.items():
            setattr(self.owner, name, method)
        try:
            yield
        finally:
            for name, method in before.items():
                setattr(self.owner, name, method)


_finish, _preempt, _release = Scheduler.finish, Scheduler.preempt, Scheduler.release
_late, _accept, _written = Scheduler.late, Scheduler.accept, Scheduler.written
_holds_back, _drop, _abort = Scheduler.holds_back, Scheduler.drop, Scheduler.abort
_admit = Scheduler._admit
_match, _schedule, _set_priority = Scheduler._match, Scheduler._schedule, Scheduler.set_priority
_forget_pending, _resume, _cache_reset = Scheduler.forget_pending, Scheduler.resume, Scheduler.cache_reset
_give = UnitPool.give


def _keeping(when: Callable[[Request], bool]) -> Callable[[Scheduler, Request], None]:
    """Return a `drop` that leaves a request's units behind."""

    def drop(self: Scheduler, request: Request) -> None:
        if when(request):
            request.kv, request.slot = [], []
        _drop(self, request)

    return drop


def _preempt_and_keep_the_list(self: Scheduler, request: Request) -> None:
    kv = list(request.kv)
    _preempt(self, request)
    if request.status == "preempted":
        request.kv = kv


def _step_forgets_the_list(self: Scheduler, request: Request) -> list[int]:
    if request.status == "preempted" and not request.computed:
        request.kv = []
    return _match(self, request)


def _preempt_and_keep_the_slot(self: Scheduler, request: Request) -> None:
    request.slot = []
    _preempt(self, request)


def _finish_and_stay_queued(self: Scheduler, request: Request) -> None:
    preempted = request.status == "preempted"
    _finish(self, request)
    if preempted:
        self.waiting.append(request)


def _prompts_wait_for_the_preempted(self: Scheduler, request: Request, decode_only: bool) -> bool:
    stalled = request.prefilling and any(r.status == "preempted" for r in self.waiting)
    return stalled or _holds_back(self, request, decode_only)


def _all_or_nothing(self: Scheduler, request: Request, budget: int, rows: list[Row]) -> bool:
    if request.status == "preempted" and self.units_for(len(request.tokens)) > self.kv.free_count:
        return False
    return _admit(self, request, budget, rows)


def _late_is_shown(self: Scheduler, request: Request, tokens: Sequence[int]) -> None:
    if tokens:
        self.emitted.append((request.number, tuple(tokens)))
    _late(self, request, tokens)


def _batch_counts_once(self: Scheduler, numbers: Sequence[int]) -> None:
    before = self.unfinished
    _abort(self, numbers)
    self.unfinished = max(self.unfinished, before - 1)


def _finish_at_once(self: Scheduler, request: Request) -> None:
    self.release(request)
    _finish(self, request)


def _forget_but_not_the_steps(self: Scheduler, request: Request) -> None:
    request.pending = max(request.pending, 0)
    _forget_pending(self, request)
    request.stale = 0


def _pending_twice(self: Scheduler, request: Request) -> None:
    self.tokens_in_flight -= request.pending if request.status != "finished" else 0
    _forget_pending(self, request)


def _give_whatever_the_references(self: UnitPool, units: Iterable[int]) -> None:
    given = list(units)
    for unit in given:
        self.references[unit] = min(self.references[unit], 1)
    _give(self, given)


def _drop_and_leave_the_count(self: UnitPool, units: Iterable[int]) -> None:
    given = list(units)
    before = self.free_count
    _give(self, given)
    if len(given) > 2:
        self.free_count = before + len(given) - 1


def _reset_makes_all_free(self: Scheduler, word: str) -> None:
    _cache_reset(self, word)
    pool = self.kv
    pool.free.clear()
    pool.free.extend(range(1, len(pool.references)))
    pool.free_count = len(pool.free)


def _resume_admits_nobody(self: Scheduler) -> None:
    if self.pause_word != "wait":
        _resume(self)


def _priority_and_out_of_the_queue(self: Scheduler, number: int, value: int) -> None:
    _set_priority(self, number, value)
    request = self.requests.get(number)
    if request is not None and request.status == "preempted" and request in self.waiting:
        self.waiting.remove(request)


def _remember_before_it_is_written(self: Scheduler, request: Request, count: int, rows: list[Row]) -> None:
    _schedule(self, request, count, rows)
    if self.sharing:
        for n in range(min(len(request.kv), len(request.tokens) // self.unit_tokens)):
            self.kv.remember(request.kv[n], tuple(request.tokens[: (n + 1) * self.unit_tokens]))


def _abort_raises(self: Scheduler, numbers: Sequence[int]) -> None:
    for number in numbers:
        if self.requests[number].status == "finished":
            raise KeyError(number)
    _abort(self, numbers)


def _drop_hangs(self: Scheduler, request: Request) -> None:
    while request.status == "chunk":
        time.sleep(0.05)
    _drop(self, request)


def _drop_crashes(self: Scheduler, request: Request) -> None:
    if request.status == "preempted":
        os.abort()
    _drop(self, request)


def _victims_in_flight(self: Scheduler, request: Request, rows: Sequence[Row]) -> Request | None:
    scheduled = {r.request.number for r in rows}
    worse = [r for r in self.running if r.number not in scheduled and self._rank(r) > self._rank(request)]
    return max(worse, key=self._rank, default=None)


def _finish_twice_counted(self: Scheduler, request: Request) -> None:
    blocked = request.blocked
    _finish(self, request)
    self.unfinished -= blocked


def _schedulable_for_the_others(self: Scheduler, number: int) -> None:
    if number in self.requests and not self.requests[number].kv:
        self.requests[number].blocked = False


def _forget_a_token(self: Scheduler, request: Request) -> None:
    _preempt(self, request)
    if request.made and request.status == "preempted":
        request.tokens.pop()
        request.made -= 1


def _fault(
    name: str, words: str, breaks: str, owner: type = Scheduler, **methods: Callable[..., Any]
) -> Fault:
    return Fault(name, words, frozenset(breaks.split()), owner, methods)


FAULTS: dict[str, Fault] = {
    f.name: f
    for f in (
        _fault(
            "kept-mid-prefill",
            "an abort between two chunks of a prompt leaves the units behind",
            "I3",
            drop=_keeping(lambda r: r.prefilling and r.computed > 0),
        ),
        _fault(
            "kept-in-chunk",
            "an abort of a session that waits for its next chunk leaves the units behind",
            "I3",
            drop=_keeping(lambda r: r.status == "chunk"),
        ),
        _fault(
            "kept-reserved",
            "an abort of a request that is not schedulable leaves its reserved units behind",
            "I3",
            drop=_keeping(lambda r: r.blocked),
        ),
        _fault(
            "freed-twice",
            "a preempted request keeps its list of units; its abort frees them again",
            "I1 I7",
            preempt=_preempt_and_keep_the_list,
            _match=_step_forgets_the_list,
        ),
        _fault(
            "slot-kept",
            "a preempted request keeps its state slot and takes another one later",
            "I3 I9",
            preempt=_preempt_and_keep_the_slot,
        ),
        _fault(
            "dead-in-queue",
            "an aborted preempted request stays in the queue and is scheduled again",
            "I3 I8",
            finish=_finish_and_stay_queued,
        ),
        _fault(
            "preempted-blocks",
            "no prompt goes on while a preempted request waits for all of its units",
            "I5",
            _admit=_all_or_nothing,
            holds_back=_prompts_wait_for_the_preempted,
        ),
        _fault("late-shown", "what comes after an abort is shown", "I8", late=_late_is_shown),
        _fault("count-kept", "an abort of several requests counts as one", "I3 I7", abort=_batch_counts_once),
        _fault(
            "freed-in-flight", "an abort frees units that a step in flight uses", "I2", finish=_finish_at_once
        ),
        _fault(
            "preempted-in-flight",
            "a request in flight is preempted",
            "I2 I6 I7",
            _victim=_victims_in_flight,
        ),
        _fault(
            "stale-taken",
            "what was in flight at the end of a chunk is taken for the next one",
            "I6 I7",
            forget_pending=_forget_but_not_the_steps,
        ),
        _fault(
            "pending-twice",
            "tokens in flight are taken off twice at an abort",
            "I7",
            forget_pending=_pending_twice,
        ),
        _fault(
            "shared-freed",
            "a unit is free as soon as one of its owners gives it back",
            "I1",
            owner=UnitPool,
            give=_give_whatever_the_references,
        ),
        _fault(
            "free-count",
            "the counter of free units loses one where three are freed at once",
            "I1 I3 I7",
            owner=UnitPool,
            give=_drop_and_leave_the_count,
        ),
        _fault(
            "reset-frees-all",
            "a cache reset makes the units of running requests free",
            "I1",
            cache_reset=_reset_makes_all_free,
        ),
        _fault(
            "resume-lost",
            "after a pause that let the running go on nothing is admitted",
            "I5",
            resume=_resume_admits_nobody,
        ),
        _fault(
            "priority-lost",
            "a preempted request whose priority changes leaves the queue",
            "I5",
            set_priority=_priority_and_out_of_the_queue,
        ),
        _fault(
            "schedulable-lost",
            "a request that reserved units stays unschedulable",
            "I5",
            set_schedulable=_schedulable_for_the_others,
        ),
        _fault(
            "token-again",
            "a preempted request forgets its last token and shows it again",
            "I6",
            preempt=_forget_a_token,
        ),
        _fault(
            "remembered-early",
            "units are found by their content before it is written",
            "I10",
            _schedule=_remember_before_it_is_written,
        ),
        _fault(
            "counted-twice",
            "the end of a request that is not schedulable counts twice",
            "I7",
            finish=_finish_twice_counted,
        ),
        _fault("raises", "an abort of what is over already raises", "raises", abort=_abort_raises),
        _fault(
            "hangs", "an abort of a session that waits for a chunk does not return", "hangs", drop=_drop_hangs
        ),
        _fault("crashes", "an abort of a preempted request ends the process", "crashes", drop=_drop_crashes),
    )
}
"""By name. Without one the scheduler keeps all invariants."""
