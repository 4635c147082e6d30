"""What goes on from step to step, so that only what changes is written: both directions.

The recorder encodes with a `Carry`, a reader decodes with one of its own that sees the same events in the
same order; what the two foresee is therefore the same. Whatever is not as foreseen is a row, so foreseeing
badly costs bytes and never a fact.

Standard library only: it is imported inside of engines.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

__all__ = ["Answered", "Carry", "Row", "Scheduled"]

_IN_FLIGHT_MAX = 4096
"""Steps whose output is awaited; of an engine that never gives any, the oldest are forgotten."""
_PREFILL = (-1, -1)
"""What a request that was scheduled for a prefill is foreseen to do: nothing."""


class Scheduled(NamedTuple):
    """A request that a step schedules.

    Attributes
    ----------
    request : int
        Its number.
    tokens : int
        Tokens that the step computes for it.
    computed_tokens : int
        Tokens computed before.
    is_prefill : bool
        The row holds for this step only: a chunk of a prompt, or of what has to be computed again.
    """

    request: int
    tokens: int
    computed_tokens: int
    is_prefill: bool


class Answered(NamedTuple):
    """What the model gave a request: so many tokens, and why it ends with them (None: it goes on)."""

    request: int
    tokens: int
    word: str | None = None


class Row(NamedTuple):
    """A row of the table `decisions` that schedules, without its place."""

    kind: str
    request: int
    tokens: int | None = None
    computed_tokens: int | None = None


class Carry:
    """What is known of the last step, the steps in flight and the lengths of the requests of one scheduler.

    Examples
    --------
    >>> there, back = Carry(), Carry()
    >>> for c in (there, back):
    ...     c.submitted(0, 5)
    >>> rows = there.encode(0, [Scheduled(0, 5, 0, True)])
    >>> rows
    [Row(kind='prefill', request=0, tokens=5, computed_tokens=0)]
    >>> back.decode(0, rows)
    [Scheduled(request=0, tokens=5, computed_tokens=0, is_prefill=True)]
    >>> there.encode_answers(0, [Answered(0, 1)])  # as foreseen
    []
    >>> back.decode_answers(0, [])
    [Answered(request=0, tokens=1, word=None)]
    """

    def __init__(self) -> None:
        self._order: list[int] = []
        self._last: dict[int, tuple[int, int]] = {}
        """Foreseen of each request of the last step: tokens, and tokens computed by then."""
        self._known: dict[int, int] = {}
        self._over: set[int] = set()
        """Ended, and still in flight."""
        self._flying: OrderedDict[int, list[tuple[int, int]]] = OrderedDict()
        """Per step: requests, and how many of their tokens are computed after it."""

    # --- what both directions are told ---

    def submitted(self, request: int, prompt_tokens: int) -> None:
        """Note a request and the length of its prompt."""
        self._known[request] = prompt_tokens

    def chunk(self, request: int, tokens: int) -> None:
        """Note that a session got another chunk of its prompt."""
        if request in self._known:
            self._known[request] += tokens

    def left(self, request: int) -> None:
        """Note that a request will not be scheduled as in the last step: it was preempted."""
        self._last.pop(request, None)

    def over(self, request: int) -> None:
        """Note that a request has ended: aborted, finished or rejected."""
        self._last.pop(request, None)
        if any(r == request for rows in self._flying.values() for r, _ in rows):
            self._over.add(request)
        else:
            self._known.pop(request, None)

    # --- steps ---

    def encode(self, step: int, scheduled: Iterable[tuple[int, int, int, bool]]) -> list[Row]:
        """Return the rows that tell a whole step.

        Parameters
        ----------
        step : int
            Its number.
        scheduled : iterable of (request, tokens, computed_tokens, is_prefill)
            Every request of the step once, in the scheduler's order.

        Raises
        ------
        ValueError
            A request stands there twice.
        """
        last = self._last
        order: list[int] = []
        now: dict[int, tuple[int, int]] = {}
        flying: list[tuple[int, int]] = []
        rows: list[Row] = []
        for request, tokens, computed, is_prefill in scheduled:
            order.append(request)
            after = computed + tokens
            flying.append((request, after))
            if is_prefill:
                rows.append(Row("prefill", request, tokens, computed))
                now[request] = _PREFILL
            else:
                if last.get(request) != (tokens, computed):
                    rows.append(Row("decode", request, tokens, computed))
                now[request] = (tokens, after)
        if len(now) != len(order):
            raise ValueError("a request is scheduled twice in one step")
        gone = last.keys() - now.keys()
        rows += [Row("skip", r) for r in self._order if r in gone and last[r] is not _PREFILL]
        if order != self._foreseen(now, rows):
            rows += [Row("order", r) for r in order]
        self._stepped(step, order, now, flying)
        return rows

    def decode(self, step: int, rows: Iterable[tuple[str, int, int | None, int | None]]) -> list[Scheduled]:
        """Return the whole step that `rows` (of the kinds prefill, decode, skip and order) tell."""
        changed: dict[int, Scheduled | None] = {}
        whole: dict[int, None] = {}
        new: list[Row] = []
        for kind, request, tokens, computed in rows:
            if kind == "order":
                whole[request] = None
            elif kind == "skip":
                changed[request] = None
            else:
                changed[request] = Scheduled(request, tokens or 0, computed or 0, kind == "prefill")
                new.append(Row(kind, request, tokens, computed))
        now: dict[int, Scheduled] = {
            r: Scheduled(r, tokens, computed, False)
            for r in self._order
            if (state := self._last.get(r, _PREFILL)) is not _PREFILL
            for tokens, computed in (state,)
        }
        for request, s in changed.items():
            if s is None:
                now.pop(request, None)
            else:
                now[request] = s
        foreseen = self._foreseen(now, new)
        order = (
            [r for r in whole if r in now] + [r for r in foreseen if r not in whole] if whole else foreseen
        )
        scheduled = [now[r] for r in order]
        self._stepped(
            step,
            order,
            {
                s.request: _PREFILL if s.is_prefill else (s.tokens, s.computed_tokens + s.tokens)
                for s in scheduled
            },
            [(s.request, s.computed_tokens + s.tokens) for s in scheduled],
        )
        return scheduled

    def _foreseen(self, now: Container[int], rows: Sequence[Row]) -> list[int]:
        """Return the order of a step of the requests `now`: those of the last one, then new ones as told."""
        last = self._last
        order = [r for r in self._order if r in last and r in now]
        order += dict.fromkeys(r.request for r in rows if r.request not in last and r.kind in _SCHEDULES)
        return order

    def _stepped(
        self, step: int, order: list[int], now: dict[int, tuple[int, int]], flying: list[tuple[int, int]]
    ) -> None:
        self._order, self._last = order, now
        if flying:
            self._flying[step] = flying
            if len(self._flying) > _IN_FLIGHT_MAX:
                self._flying.popitem(last=False)

    # --- answers ---

    def oldest_in_flight(self) -> int | None:
        """Return the oldest step that scheduled something and has no output yet."""
        return next(iter(self._flying), None)

    def encode_answers(self, step: int, rows: Iterable[tuple[int, int, str | None]]) -> list[Answered]:
        """Return the rows that tell a whole output.

        Parameters
        ----------
        step : int
            The step that it answers.
        rows : iterable of (request, tokens, word)
            What each request got; one that is missing got no token.
        """
        given = {r: (tokens, word) for r, tokens, word in rows}
        told: list[Answered] = []
        known = self._known
        for request, after in self._flying.pop(step, ()):
            tokens, word = given.pop(request, _NOTHING)
            length = known.get(request, after)
            if word is not None or tokens != (after >= length):
                told.append(Answered(request, tokens, word))
            if request in known:
                known[request] = length + tokens
        rest = [Answered(request, tokens, word) for request, (tokens, word) in given.items()]
        self._end_output([*told, *rest], rest)
        return told + rest

    def decode_answers(self, step: int, rows: Iterable[tuple[int, int, str | None]]) -> list[Answered]:
        """Return what every request of the step got, in the step's order, then what others got."""
        given = {r: (tokens, word) for r, tokens, word in rows}
        answers: list[Answered] = []
        known = self._known
        for request, after in self._flying.pop(step, ()):
            length = known.get(request, after)
            tokens, word = given.pop(request, (int(after >= length), None))
            answers.append(Answered(request, tokens, word))
            if request in known:
                known[request] = length + tokens
        rest = [Answered(request, tokens, word) for request, (tokens, word) in given.items()]
        self._end_output([*answers, *rest], rest)
        return answers + rest

    def _end_output(self, told: Iterable[Answered], rest: Iterable[Answered]) -> None:
        """Note what ended and what came unasked; forget what is over and in no step in flight."""
        for a in rest:
            self.chunk(a.request, a.tokens)
        for a in told:
            if a.word is not None:
                self._last.pop(a.request, None)
        if self._over:
            flying = {r for rows in self._flying.values() for r, _ in rows}
            for request in self._over - flying:
                self._known.pop(request, None)
            self._over &= flying


_NOTHING = (0, None)
_SCHEDULES = ("prefill", "decode")
