"""What goes on from step to step, so that only what changes is written: both directions.

The recorder encodes with a `Carry`, a reader decodes with one of its own that sees the same events in the
same order; what the two foresee is therefore the same. Whatever is not as foreseen is a row, so foreseeing
badly costs bytes and never a fact. Of one input, who left and who is over is told first, then `encode` or
`encode_answers` once for the whole of it.

Standard library only: it is imported inside of engines.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterable, Sequence
from operator import itemgetter
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
        self._then: list[tuple[int, int, int, bool]] = []
        """The last step: request, tokens, tokens computed after it, is prefill."""
        self._steady = True
        """The next step may equal `_then`: nobody in it was in prefill, nobody has left since."""
        self._left: set[int] = set()
        self._known: dict[int, int] = {}
        self._over: set[int] = set()
        """Ended, and still in flight."""
        self._flying: OrderedDict[int, list[tuple[int, int, int, bool]]] = OrderedDict()
        """What each step was, like `_then`."""

    # --- what both directions are told ---

    def submitted(self, request: int, prompt_tokens: int) -> None:
        """Note a request and the length of its prompt."""
        self._known.setdefault(request, prompt_tokens)

    def chunk(self, request: int, tokens: int) -> None:
        """Note that a session got another chunk of its prompt."""
        if request in self._known:
            self._known[request] += tokens

    def left(self, request: int) -> None:
        """Note that a request will not be scheduled as in the last step: it was preempted."""
        self._left.add(request)
        self._steady = False

    def over(self, request: int) -> None:
        """Note that a request has ended: aborted, finished or rejected."""
        self.left(request)
        if any(f[0] == request for rows in self._flying.values() for f in rows):
            self._over.add(request)
        else:
            self._known.pop(request, None)

    # --- steps ---

    def encode(self, step: int, scheduled: list[tuple[int, int, int, bool]]) -> list[Row]:
        """Return the rows that tell a whole step.

        Parameters
        ----------
        step : int
            Its number.
        scheduled : list of (request, tokens, computed_tokens, is_prefill)
            Every request of the step once, in the scheduler's order.

        Raises
        ------
        ValueError
            A request stands there twice.
        """
        if self._steady and scheduled == self._then:
            self._stepped(step, [(r, tokens, at + tokens, False) for r, tokens, at, _ in scheduled], True)
            return []
        if len(set(map(itemgetter(0), scheduled))) != len(scheduled):
            raise ValueError("a request is scheduled twice in one step")
        rows = self._in_place(scheduled)
        if rows is None:
            rows = self._compared(scheduled)
        self._stepped(step, [(r, tokens, at + tokens, prefill) for r, tokens, at, prefill in scheduled])
        return rows

    def _in_place(self, scheduled: list[tuple[int, int, int, bool]]) -> list[Row] | None:
        """Return the rows of a step whose requests stand as foreseen, new ones behind them; else None."""
        left = self._left
        then = [s for s in self._then if s[0] not in left] if left else self._then
        if len(then) > len(scheduled):
            return None
        rows = []
        for foreseen, real in zip(then, scheduled, strict=False):
            if foreseen != real or real[3]:
                if foreseen[0] != real[0]:
                    return None
                rows.append(_row(*real))
        return rows + [_row(*real) for real in scheduled[len(then) :]]

    def _compared(self, scheduled: list[tuple[int, int, int, bool]]) -> list[Row]:
        """Return the rows of any step."""
        last, now = self._last(), {s[0] for s in scheduled}
        rows = [_row(*s) for s in scheduled if s[3] or last.get(s[0]) != (s[1], s[2])]
        rows += [Row("skip", r) for r, state in last.items() if state is not _PREFILL and r not in now]
        order = [s[0] for s in scheduled]
        if order != _foreseen(last, now, rows):
            rows += [Row("order", r) for r in order]
        return rows

    def decode(self, step: int, rows: Iterable[tuple[str, int, int | None, int | None]]) -> list[Scheduled]:
        """Return the whole step that `rows` (of the kinds prefill, decode, skip and order) tell."""
        last, whole, new = self._last(), dict[int, None](), list[Row]()
        now = {r: Scheduled(r, *state, False) for r, state in last.items() if state is not _PREFILL}
        for kind, request, tokens, computed in rows:
            if kind == "order":
                whole[request] = None
            elif kind == "skip":
                now.pop(request, None)
            else:
                now[request] = Scheduled(request, tokens or 0, computed or 0, kind == "prefill")
                new.append(Row(kind, request))
        order = _foreseen(last, now, new)
        if whole:
            order = [r for r in whole if r in now] + [r for r in order if r not in whole]
        scheduled = [now[r] for r in order]
        self._stepped(step, [(r, tokens, at + tokens, prefill) for r, tokens, at, prefill in scheduled])
        return scheduled

    def _last(self) -> dict[int, tuple[int, int]]:
        """Return what those of the last step are foreseen to do, in its order, without those that left."""
        left = self._left
        return {
            r: _PREFILL if prefill else (tokens, at) for r, tokens, at, prefill in self._then if r not in left
        }

    def _stepped(self, step: int, then: list[tuple[int, int, int, bool]], steady: bool = False) -> None:
        self._then = then
        self._steady = steady or not any(s[3] for s in then)
        if self._left:
            self._left = set()
        if then:
            self._flying[step] = then
            if len(self._flying) > _IN_FLIGHT_MAX:
                self._flying.popitem(last=False)

    # --- answers ---

    def oldest_in_flight(self) -> int | None:
        """Return the oldest step that scheduled something and has no output yet."""
        return next(iter(self._flying), None)

    def encode_answers(self, step: int, rows: Sequence[tuple[int, int, str | None]]) -> list[Answered]:
        """Return the rows that tell a whole output.

        Parameters
        ----------
        step : int
            The step that it answers.
        rows : sequence of (request, tokens, word)
            What each request got, once; one that is missing got no token.
        """
        flying, known, done = self._flying.pop(step, []), self._known, 0
        for (request, _, after, _), (r, tokens, word) in zip(flying, rows, strict=False):
            length = known.get(request, after)
            if r != request or word is not None or tokens != (after >= length):
                break
            if tokens and request in known:
                known[request] = length + tokens
            done += 1
        if done == len(flying) == len(rows):
            self._end_output((), ())
            return []
        given = {r: (tokens, word) for r, tokens, word in rows[done:]}
        told: list[Answered] = []
        for request, _, after, _ in flying[done:]:
            tokens, word = given.pop(request, _NOTHING)
            length = known.get(request, after)
            if word is not None or tokens != (after >= length):
                told.append(Answered(request, tokens, word))
            if request in known:
                known[request] = _length(length, after, tokens)
        rest = [Answered(request, tokens, word) for request, (tokens, word) in given.items()]
        self._end_output(told, rest)
        return told + rest

    def decode_answers(self, step: int, rows: Iterable[tuple[int, int, str | None]]) -> list[Answered]:
        """Return what every request of the step got, in the step's order, then what others got."""
        given = {r: (tokens, word) for r, tokens, word in rows}
        answers: list[Answered] = []
        known = self._known
        for request, _, after, _ in self._flying.pop(step, []):
            length = known.get(request, after)
            tokens, word = given.pop(request, (int(after >= length), None))
            answers.append(Answered(request, tokens, word))
            if request in known:
                known[request] = _length(length, after, tokens)
        rest = [Answered(request, tokens, word) for request, (tokens, word) in given.items()]
        self._end_output(answers, rest)
        return answers + rest

    def _end_output(self, told: Iterable[Answered], rest: Iterable[Answered]) -> None:
        """Note what ended and what came unasked; forget what is over and in no step in flight."""
        for a in rest:
            self.chunk(a.request, a.tokens)
        for a in (*told, *rest):
            if a.word is not None:
                self.left(a.request)
        if self._over:
            flying = {f[0] for rows in self._flying.values() for f in rows}
            for request in self._over - flying:
                self._known.pop(request, None)
            self._over &= flying


def _row(request: int, tokens: int, computed: int, is_prefill: bool) -> Row:
    return Row("prefill" if is_prefill else "decode", request, tokens, computed)


def _length(length: int, after: int, tokens: int) -> int:
    """Return the known tokens after an answer; it came early where a session had dropped some."""
    return (after if tokens and after < length else length) + tokens


def _foreseen(last: Iterable[int], now: Container[int], rows: Iterable[Row]) -> list[int]:
    """Return the order of a step of the requests `now`: those of the last one, then new ones as told."""
    order = dict.fromkeys(r for r in last if r in now)
    order.update(dict.fromkeys(r.request for r in rows if r.kind in _SCHEDULES and r.request in now))
    return list(order)


_NOTHING = (0, None)
_SCHEDULES = ("prefill", "decode")
