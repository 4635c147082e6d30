"""What the hooks of an engine's request scheduler tell, as inputs with all that they caused.

No method raises into the engine: a fault is said once, and the recorder stays out from then on. Neither text
nor token values nor hashes reach it; the engine's request ids are renumbered here and stay here.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from ...formats.requests.carry import Carry, Step
from ...formats.requests.words import ANSWER_WORDS, BLOCK_ACTIONS, DECISION_KINDS, INPUT_KINDS
from .layout import ANSWER, BLOCK, DECISION, INPUT, INT_MAX, SCHEDULER
from .numbers import Key, Numbers
from .spool import Writer, said, writer

__all__ = ["PoolRow", "SchedulerRecorder"]

Scalar = bool | int | float | str | None
_WORD = re.compile(r"[A-Za-z0-9_.+,-]{0,120}")
_DECISIONS = {k: i for i, k in enumerate(DECISION_KINDS)}
_ANSWERS: dict[str | None, int | None] = {None: None, **{k: i for i, k in enumerate(ANSWER_WORDS)}}
_ACTIONS = {k: i for i, k in enumerate(BLOCK_ACTIONS)}
_INPUTS = {k: i for i, k in enumerate(INPUT_KINDS)}
_STEP, _OUTPUT, _SUBMIT = (INPUT_KINDS.index(k) for k in ("step", "output", "submit"))
_OUTERMOST = ("step", "output")
"""Inputs that are part of no other: one that is open still has lost its end."""


class PoolRow(NamedTuple):
    """A pool of units, as in the table `pools`."""

    name: str
    units: int
    reserved: int = 0
    tokens_per_unit: int | None = None


class SchedulerRecorder:
    """Records one request scheduler; without a recording every call returns at once.

    Calls come from one thread at a time. What happens between `begin` and `end` belongs to that input; an
    input inside of another one (the engine's own abort in an output) is part of it.

    Parameters
    ----------
    engine, engine_version : str
        Known words.
    config : mapping of str to bool, int, float, str or None
        What the scheduler was built with; texts are words of letters, digits and ``_.+,-`` (others become
        ``other``).
    pools : sequence of PoolRow
        Its pools; calls name them by their place here.
    """

    def __init__(
        self, engine: str, engine_version: str, config: Mapping[str, Scalar], pools: Sequence[PoolRow]
    ) -> None:
        self._off = True
        self._depth = 0
        try:
            self._writer: Writer | None = writer()
            if self._writer is None:
                return
            from msgpack import packb

            self._pack = packb
            self._scheduler = self._writer.next_scheduler()
            self._head: list[Any] | None = [
                SCHEDULER,
                self._scheduler,
                _word(engine),
                _word(engine_version),
                {_word(k): _scalar(v) for k, v in config.items()},
                [[_word(p[0]), *map(_whole, p[1:])] for p in (PoolRow(*p) for p in pools)],
            ]
            self._pools = len(pools)
            self._carry = Carry()
            self._numbers = Numbers()
            self._thread = 0
            self._input: list[Any] = []
            self._step = -1
            self._steps = 0
            self._prefixes: list[Any] = []
            self._events: list[Any] = []
            self._scheduled = Step([], [], [], [])
            self._after: list[int] | None = None
            self._answered: tuple[list[int], list[int]] = ([], [])
            self._words: dict[int, str] = {}
            self._resources: dict[int, tuple[int, int]] = {}
            self._changed: dict[int, tuple[int, int]] = {}
            self._off = False
        except Exception as e:
            self._give_up(e)

    @property
    def recording(self) -> bool:
        """Whether calls are still recorded."""
        return not self._off

    # --- requests ---

    def number(self, key: Key) -> int:
        """Return the number of one of the engine's request ids (-1 without a recording)."""
        if self._off:
            return -1
        try:
            return self._numbers.of(key)
        except Exception as e:
            self._give_up(e)
            return -1

    def submit(
        self,
        key: Key,
        *,
        prompt_tokens: int,
        max_tokens: int | None = None,
        priority: int | None = None,
        flags: Iterable[str] = (),
        reserve_tokens: int | None = None,
        arrive_ns: int | None = None,
        prefixes: Iterable[tuple[int, int, int]] = (),
    ) -> None:
        """Tell of a request that arrives; an input of its own where none is open.

        Parameters
        ----------
        key : str or int
            The engine's id; one that was used by a request that has ended is a new request.
        prompt_tokens, max_tokens, priority, reserve_tokens
            As in the table `requests`.
        flags : iterable of str
            Known words.
        arrive_ns : int, optional
            What the scheduler sorts by, as nanoseconds of the wall clock.
        prefixes : iterable of (of_number, from_tokens, to_tokens)
            Whole units that it has in common with earlier requests.
        """
        if self._off:
            return
        try:
            alone = not self._depth
            if alone:
                self._begin("submit", key, None, None, None, None, None, None, None)
            self._submit(key, prompt_tokens, max_tokens, priority, flags, reserve_tokens, arrive_ns, prefixes)
            if alone:
                self._end()
        except Exception as e:
            self._give_up(e)

    def prefix(self, key: Key, of: int, from_tokens: int, to_tokens: int) -> None:
        """Tell that positions of a request equal those of the earlier request with number `of`."""
        if self._off:
            return
        try:
            self._prefixes.append([self._numbers.of(key), int(of), int(from_tokens), int(to_tokens)])
        except Exception as e:
            self._give_up(e)

    def equal(self, request: int, of: int, from_tokens: int, to_tokens: int) -> None:
        """Tell the same of two requests by number: the first one's id may be forgotten.

        The tape's readers want the lower number as `of`.
        """
        if self._off:
            return
        try:
            self._prefixes.append([int(request), int(of), int(from_tokens), int(to_tokens)])
        except Exception as e:
            self._give_up(e)

    # --- inputs ---

    def begin(
        self,
        kind: str,
        *,
        key: Key | None = None,
        keys: Iterable[Key] | None = None,
        tokens: int | None = None,
        value: int | None = None,
        word: str | None = None,
        decode_only: bool | None = None,
        step: int | None = None,
        arrive_ns: int | None = None,
    ) -> None:
        """Begin an input; `end` must follow, whatever the engine does.

        Parameters
        ----------
        kind : str
            One of `INPUT_KINDS`.
        key, keys
            The request, or those of a batch in the engine's order.
        tokens, value, word, decode_only
            As in the table `inputs`.
        step : int, optional
            Of ``step`` its number, counted here if left out; of ``output`` the step that it answers, if left
            out the oldest one that scheduled anything and has no output yet.
        arrive_ns : int, optional
            Of a ``next_chunk``: what the scheduler sorts by from then on, as nanoseconds of the wall clock.
        """
        if self._off:
            return
        try:
            self._begin(kind, key, keys, tokens, value, word, decode_only, step, arrive_ns)
        except Exception as e:
            self._give_up(e)

    def end(self) -> None:
        """End the input: it is written now."""
        if self._off:
            return
        try:
            self._end()
        except Exception as e:
            self._give_up(e)

    # --- what an input causes ---

    def blocks(self, action: str, pool: int, units: Iterable[int], key: Key | None = None) -> None:
        """Tell that units of a pool change hands; cheap, for hooks in the engine's pools."""
        if self._off:
            return
        try:
            number = None if key is None else self._numbers.of(key)
            self._events.append((BLOCK, _ACTIONS[action], pool, number, *units))
        except Exception as e:
            self._give_up(e)

    def decision(self, kind: str, key: Key, tokens: int | None = None, computed: int | None = None) -> None:
        """Tell a decision of any kind but ``prefill``, ``decode``, ``skip`` and ``order``: see `schedule`."""
        if self._off:
            return
        try:
            number = self._numbers.of(key)
            self._events.append((DECISION, _DECISIONS[kind], number, tokens, computed))
            if kind == "preempt":
                self._carry.left(number)
            elif kind in ("finish", "reject"):
                self._carry.over(number)
                self._numbers.ended(key)
        except Exception as e:
            self._give_up(e)

    def schedule(self, scheduled: Iterable[tuple[Key, int, int, bool]]) -> None:
        """Tell the whole step: (key, tokens, computed before, is prefill) in the scheduler's order."""
        if self._off:
            return
        try:
            number = self._numbers.of
            self._schedule(Step.of((number(key), n, at, prefill) for key, n, at, prefill in scheduled), None)
        except Exception as e:
            self._give_up(e)

    def schedule_columns(
        self,
        keys: Sequence[Key],
        tokens: list[int],
        computed: list[int],
        is_prefill: list[bool],
        after: list[int] | None = None,
    ) -> None:
        """Tell the same column by column, for hooks: it costs a third. The lists are kept.

        `after` are the tokens computed after the step, where they are at hand: the same list may be the
        `computed` of the next one, which is then known to go on like this one.
        """
        if self._off:
            return
        try:
            self._schedule(Step(self._numbers.all(keys), tokens, computed, is_prefill), after)
        except Exception as e:
            self._give_up(e)

    def answers(self, rows: Iterable[tuple[Key, int, str | None]]) -> None:
        """Tell what the model gave for the step of this output: (key, tokens, why it ends or None)."""
        if self._off:
            return
        try:
            keys, tokens, words = [list(c) for c in zip(*rows, strict=True)] or [[], [], []]
            self._answer(keys, tokens, {k: w for k, w in zip(keys, words, strict=True) if w is not None})
        except Exception as e:
            self._give_up(e)

    def answer_columns(self, keys: Sequence[Key], tokens: list[int], words: Mapping[Any, str]) -> None:
        """Tell the same column by column, for hooks; `words` says of those among `keys` that end, why."""
        if self._off:
            return
        try:
            self._answer(keys, tokens, words)
        except Exception as e:
            self._give_up(e)

    def resources(self, pool: int, free: int, used: int) -> None:
        """Tell how many units of a pool are free and used; written where that changed."""
        if self._off:
            return
        if self._resources.get(pool) != (free, used):
            self._resources[pool] = self._changed[pool] = (free, used)

    # --- inside ---

    def _schedule(self, step: Step, after: list[int] | None) -> None:
        if not self._depth or self._input[2] != _STEP:
            raise ValueError("requests are scheduled outside of a step")
        before = self._scheduled
        if before.requests:
            step, after = Step.of([*zip(*before, strict=True), *zip(*step, strict=True)]), None
        self._scheduled, self._after = step, after

    def _answer(self, keys: Sequence[Key], tokens: list[int], words: Mapping[Any, str]) -> None:
        if not self._depth or self._input[2] != _OUTPUT:
            raise ValueError("answers outside of an output")
        numbers = self._numbers.all(keys)
        before, counts = self._answered
        self._answered = (before + numbers, counts + tokens) if before else (numbers, tokens)
        if words:
            self._words.update((self._numbers.of(k), word) for k, word in words.items())

    def _submit(
        self,
        key: Key,
        prompt_tokens: int,
        max_tokens: int | None,
        priority: int | None,
        flags: Iterable[str],
        reserve_tokens: int | None,
        arrive_ns: int | None,
        prefixes: Iterable[tuple[int, int, int]],
    ) -> None:
        number = self._numbers.of(key)
        self._numbers.submitted(
            key,
            int(prompt_tokens),
            _whole(max_tokens),
            _whole(priority),
            [_word(f) for f in flags] or None,
            _whole(reserve_tokens),
            _whole(arrive_ns),
        )
        self._prefixes += [[number, int(of), int(a), int(b)] for of, a, b in prefixes]
        if self._input[2] == _SUBMIT and self._input[4] == number:
            self._carry.submitted(number, int(prompt_tokens))

    def _begin(
        self,
        kind: str,
        key: Key | None,
        keys: Iterable[Key] | None,
        tokens: int | None,
        value: int | None,
        word: str | None,
        decode_only: bool | None,
        step: int | None,
        arrive_ns: int | None,
    ) -> None:
        thread = threading.get_ident()
        if self._depth:
            if thread != self._thread:
                raise RuntimeError("its calls come from two threads at once")
            if kind not in _OUTERMOST:
                self._depth += 1
                return
            self._end(whole=True)
        self._depth, self._thread = 1, thread
        if kind == "submit" and key is not None:
            self._numbers.again(key)
        request = None if key is None else self._numbers.of(key)
        requests = None if keys is None else [self._numbers.of(k) for k in keys]
        if kind == "step":
            step = self._steps if step is None else step
            self._steps = step + 1
        elif kind == "output" and step is None:
            step = self._carry.oldest_in_flight()
        elif kind == "next_chunk" and request is not None:
            self._carry.chunk(request, tokens or 0)
        elif kind == "abort":
            for k, number in zip(
                [*([] if key is None else [key]), *(keys or ())],
                [*([] if request is None else [request]), *(requests or ())],
                strict=True,
            ):
                self._carry.over(number)
                self._numbers.ended(k)
        self._step = -1 if step is None else step
        self._input = [
            INPUT, self._scheduler, _INPUTS[kind], time.monotonic_ns(), request, requests, step, tokens,
            decode_only, _whole(value), None if word is None else _word(word), _whole(arrive_ns),
        ]  # fmt: skip

    def _end(self, *, whole: bool = False) -> None:
        self._depth = 0 if whole else self._depth - 1
        if self._depth:
            return
        if self._input[2] == _STEP:
            rows = self._carry.encode(self._step, self._scheduled, self._after)
            self._events += [
                (DECISION, _DECISIONS[kind], request, tokens, computed)
                for kind, request, tokens, computed in rows
            ]
            self._scheduled, self._after = Step([], [], [], []), None
        elif self._input[2] == _OUTPUT:
            self._events[:0] = [
                (ANSWER, request, tokens, _ANSWERS[word])
                for request, tokens, word in self._carry.encode_answers(
                    self._step, *self._answered, self._words
                )
            ]
            self._answered, self._words = ([], []), {}
        frame = [
            *self._input,
            self._numbers.take_new(),
            self._prefixes,
            self._events,
            [(pool, *counts) for pool, counts in self._changed.items()],
        ]
        self._prefixes, self._events, self._changed = [], [], {}
        out = self._writer
        if out is None or out.over or (self._head is None and out.pid != os.getpid()):
            self._leave(out)
            return
        if self._head is not None:
            head, self._head = self._head, None
            if not out.write(self._pack(head)):
                self._off = True
                return
        if not out.write(self._pack(frame, default=int)):
            self._off = True

    def _leave(self, out: Writer | None) -> None:
        """Stay out: the recording is over, or this is a copy of the recorded process."""
        self._off = True
        if out is not None and not out.over:
            said(out.directory, "a request scheduler that a fork copied is not recorded in the new process")

    def _give_up(self, error: Exception) -> None:
        """Say once what does not work, and stay out."""
        self._off = True
        if isinstance(error, ImportError):
            why = "msgpack is not installed in this Python"
        else:
            why = f"{type(error).__name__}: {error}"
        said(os.environ.get("TAPEDELAY_SPOOL", ""), f"the request scheduler is not recorded any more ({why})")


def _word(text: object) -> str:
    """Return a known word; nothing else reaches the recording."""
    said = str(text)
    return said if _WORD.fullmatch(said) else "other"


def _scalar(value: object) -> Scalar:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _whole(value)
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    return _word(value)


def _whole(value: int | None) -> int | None:
    """Return a number as far as the raw recording holds it: `sys.maxsize` often stands for no limit."""
    return None if value is None else max(-INT_MAX, min(int(value), INT_MAX))
