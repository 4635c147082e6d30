"""What goes on from step to step, so that only what changes is written: both directions.

The recorder encodes with a `Carry`, a reader decodes with one of its own that sees the same events in the
same order; what the two foresee is therefore the same. Whatever is not as foreseen is a row, so foreseeing
badly costs bytes and never a fact. Of one input, who left and who is over is told first, then `encode` or
`encode_answers` once for the whole of it.

Standard library only: it is imported inside of engines.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterable, Mapping
from itertools import chain, compress
from operator import add, ge
from typing import NamedTuple

__all__ = ["Answered", "Carry", "Row", "Scheduled", "Step"]

_IN_FLIGHT_MAX = 4096
"""Steps whose output is awaited; of an engine that never gives any, the oldest are forgotten."""
_NO_WORDS: Mapping[int, str] = {}
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


class Step(NamedTuple):
    """Every request of a step once, in the scheduler's order, by columns: they cost its engine the least.

    Attributes
    ----------
    requests : list of int
        Their numbers.
    tokens : list of int
        Tokens that the step computes for each.
    computed_tokens : list of int
        Tokens computed before.
    is_prefill : list of bool
        See `Scheduled`.
    """

    requests: list[int]
    tokens: list[int]
    computed_tokens: list[int]
    is_prefill: list[bool]

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, int, bool]]) -> Step:
        """Return the step that rows like `Scheduled` tell."""
        columns = [list(c) for c in zip(*rows, strict=True)]
        return cls(*columns) if columns else cls([], [], [], [])


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


class _Then(NamedTuple):
    """A step that was made: as `Step`, with the tokens computed after it."""

    requests: list[int]
    tokens: list[int]
    after: list[int]
    is_prefill: list[bool]


class Carry:
    """What is known of the last step, the steps in flight and the lengths of the requests of one scheduler.

    Examples
    --------
    >>> there, back = Carry(), Carry()
    >>> for c in (there, back):
    ...     c.submitted(0, 5)
    >>> rows = there.encode(0, Step([0], [5], [0], [True]))
    >>> rows
    [Row(kind='prefill', request=0, tokens=5, computed_tokens=0)]
    >>> back.decode(0, rows)
    [Scheduled(request=0, tokens=5, computed_tokens=0, is_prefill=True)]
    >>> there.encode_answers(0, [0], [1])  # as foreseen
    []
    >>> back.decode_answers(0, [])
    [Answered(request=0, tokens=1, word=None)]
    """

    def __init__(self) -> None:
        self._then = _Then([], [], [], [])
        """The last step."""
        self._left: set[int] = set()
        """Those of it that will not be scheduled as in it."""
        self._known: dict[int, int] = {}
        """Known tokens of each request, but for those that are `_held`."""
        self._held: tuple[list[int], list[int]] = ([], [])
        """The requests of the last output and their known tokens: mostly the next one is of the same."""
        self._over: set[int] = set()
        """Ended, and still in flight."""
        self._flying: OrderedDict[int, _Then] = OrderedDict()
        """Steps without an output yet."""

    # --- what both directions are told ---

    def submitted(self, request: int, prompt_tokens: int) -> None:
        """Note a request and the length of its prompt."""
        self._known.setdefault(request, prompt_tokens)

    def chunk(self, request: int, tokens: int) -> None:
        """Note that a session got another chunk of its prompt."""
        self._put_back()
        if request in self._known:
            self._known[request] += tokens

    def left(self, request: int) -> None:
        """Note that a request will not be scheduled as in the last step: it was preempted."""
        self._left.add(request)

    def over(self, request: int) -> None:
        """Note that a request has ended: aborted, finished or rejected."""
        self.left(request)
        self._put_back()
        if any(request in then.requests for then in self._flying.values()):
            self._over.add(request)
        else:
            self._known.pop(request, None)

    # --- steps ---

    def encode(self, step: int, scheduled: Step, after: list[int] | None = None) -> list[Row]:
        """Return the rows that tell a whole step.

        Parameters
        ----------
        step : int
            Its number.
        scheduled : Step
            What it schedules.
        after : list of int, optional
            Tokens computed after it, where they are known already.

        Raises
        ------
        ValueError
            A request stands there twice.
        """
        requests, tokens, computed, is_prefill = scheduled
        then = self._stay()
        known = len(then.requests)
        if requests == then.requests:
            rows = _different(then, scheduled)
        elif len(set(requests)) != len(requests):
            raise ValueError("a request is scheduled twice in one step")
        elif requests[:known] == then.requests:  # new ones stand behind them
            first = Step(requests[:known], tokens[:known], computed[:known], is_prefill[:known])
            rows = _different(then, first)
            rows += map(_row, requests[known:], tokens[known:], computed[known:], is_prefill[known:])
        else:
            rows = _compared(then, scheduled)
        self._stepped(step, scheduled, after)
        return rows

    def decode(self, step: int, rows: Iterable[tuple[str, int, int | None, int | None]]) -> list[Scheduled]:
        """Return the whole step that `rows` (of the kinds prefill, decode, skip and order) tell."""
        last, whole, new = _last(self._stay()), dict[int, None](), list[Row]()
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
        self._stepped(step, Step.of(scheduled), None)
        return scheduled

    def _stay(self) -> _Then:
        """Return the last step without those that left."""
        then, left = self._then, self._left
        if not left:
            return then
        stays = [r not in left for r in then.requests]
        return _Then(
            list(compress(then.requests, stays)),
            list(compress(then.tokens, stays)),
            list(compress(then.after, stays)),
            list(compress(then.is_prefill, stays)),
        )

    def _stepped(self, step: int, scheduled: Step, after: list[int] | None) -> None:
        requests, tokens, computed, is_prefill = scheduled
        self._then = _Then(requests, tokens, after or list(map(add, computed, tokens)), is_prefill)
        if self._left:
            self._left = set()
        if requests:
            self._flying[step] = self._then
            if len(self._flying) > _IN_FLIGHT_MAX:
                self._flying.popitem(last=False)

    # --- answers ---

    def oldest_in_flight(self) -> int | None:
        """Return the oldest step that scheduled something and has no output yet."""
        return next(iter(self._flying), None)

    def encode_answers(
        self, step: int, requests: list[int], tokens: list[int], words: Mapping[int, str] = _NO_WORDS
    ) -> list[Answered]:
        """Return the rows that tell a whole output.

        Parameters
        ----------
        step : int
            The step that it answers.
        requests, tokens : list of int
            The requests, each once, and what each got; one that is missing got no token.
        words : mapping of int to str
            Of those among `requests` that end: why.
        """
        then = self._flying.pop(step, None)
        if then is None or requests != then.requests:
            return self._encode_any(then or _NONE, requests, tokens, words)
        after = then.after
        held, lengths = self._held
        if held != requests:
            self._put_back()
            try:
                lengths = [*map(self._known.__getitem__, requests)]
            except KeyError:
                return self._encode_any(then, requests, tokens, words)
        told: list[Answered] = []
        steady = after == lengths and tokens.count(1) == len(tokens)  # each got its next one
        if words or not (steady or [*map(ge, after, lengths)] == tokens):
            told = [
                Answered(r, n, words.get(r))
                for r, n, length, at in zip(requests, tokens, lengths, after, strict=True)
                if n != (at >= length) or r in words
            ]
            lengths = [*map(_length, lengths, after, tokens)]
        else:
            lengths = [*map(add, lengths, tokens)]
        self._held = requests, lengths
        if told or self._over:
            self._end_output(told, ())
        return told

    def _put_back(self) -> None:
        """Note the known tokens of those that are held."""
        requests, lengths = self._held
        if requests:
            self._held = [], []
            self._known.update(zip(requests, lengths, strict=True))

    def _encode_any(
        self, then: _Then, requests: list[int], tokens: list[int], words: Mapping[int, str]
    ) -> list[Answered]:
        """Return the rows of any output."""
        self._put_back()
        given = dict(zip(requests, tokens, strict=True))
        known, told = self._known, list[Answered]()
        for request, after in zip(then.requests, then.after, strict=True):
            got, word = given.pop(request, 0), words.get(request)
            length = known.get(request, after)
            if word is not None or got != (after >= length):
                told.append(Answered(request, got, word))
            if request in known:
                known[request] = _length(length, after, got)
        rest = [Answered(request, got, words.get(request)) for request, got in given.items()]
        self._end_output(told, rest)
        return told + rest

    def decode_answers(self, step: int, rows: Iterable[tuple[int, int, str | None]]) -> list[Answered]:
        """Return what every request of the step got, in the step's order, then what others got."""
        self._put_back()
        given = {r: (tokens, word) for r, tokens, word in rows}
        answers: list[Answered] = []
        known, then = self._known, self._flying.pop(step, _NONE)
        for request, after in zip(then.requests, then.after, strict=True):
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
            self._put_back()
            flying = set(chain.from_iterable(then.requests for then in self._flying.values()))
            for request in self._over - flying:
                self._known.pop(request, None)
            self._over &= flying


def _row(request: int, tokens: int, computed: int, is_prefill: bool) -> Row:
    return Row("prefill" if is_prefill else "decode", request, tokens, computed)


def _different(then: _Then, scheduled: Step) -> list[Row]:
    """Return the rows of those that do not go on as foreseen; the requests of both are the same."""
    requests, tokens, computed, is_prefill = scheduled
    if (
        tokens == then.tokens
        and (computed is then.after or computed == then.after)
        and True not in is_prefill
        and True not in then.is_prefill
    ):
        return []
    foreseen = zip(then.tokens, then.after, then.is_prefill, strict=True)
    real = zip(requests, tokens, computed, is_prefill, strict=True)
    return [
        _row(r, n, at, prefill)
        for (tokens_then, after, was_prefill), (r, n, at, prefill) in zip(foreseen, real, strict=True)
        if prefill or was_prefill or n != tokens_then or at != after
    ]


def _compared(then: _Then, scheduled: Step) -> list[Row]:
    """Return the rows of any step."""
    last, now = _last(then), set(scheduled.requests)
    rows = [
        _row(r, tokens, at, prefill)
        for r, tokens, at, prefill in zip(*scheduled, strict=True)
        if prefill or last.get(r) != (tokens, at)
    ]
    rows += [Row("skip", r) for r, state in last.items() if state is not _PREFILL and r not in now]
    if scheduled.requests != _foreseen(last, now, rows):
        rows += [Row("order", r) for r in scheduled.requests]
    return rows


def _last(then: _Then) -> dict[int, tuple[int, int]]:
    """Return what those of the last step are foreseen to do, in its order."""
    return {r: _PREFILL if prefill else (tokens, at) for r, tokens, at, prefill in zip(*then, strict=True)}


def _length(length: int, after: int, tokens: int) -> int:
    """Return the known tokens after an answer; it came early where a session had dropped some."""
    return (after if tokens and after < length else length) + tokens


def _foreseen(last: Iterable[int], now: Container[int], rows: Iterable[Row]) -> list[int]:
    """Return the order of a step of the requests `now`: those of the last one, then new ones as told."""
    order = dict.fromkeys(r for r in last if r in now)
    order.update(dict.fromkeys(r.request for r in rows if r.kind in _SCHEDULES and r.request in now))
    return list(order)


_NONE = _Then([], [], [], [])
_SCHEDULES = ("prefill", "decode")
