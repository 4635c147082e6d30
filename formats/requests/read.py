"""The tables of request schedulers as a reader wants them: every input with all that it caused, no deltas."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from ..errors import InvalidTape
from ..tape import Tape
from .carry import Answered, Carry, Scheduled
from .recorded import (
    Changed,
    Decided,
    RecordedInput,
    RecordedPool,
    RecordedRequest,
    RecordedScheduler,
)

__all__ = [
    "Changed",
    "Decided",
    "RecordedInput",
    "RecordedPool",
    "RecordedRequest",
    "RecordedScheduler",
    "read_inputs",
    "read_schedulers",
]

_SCHEDULING = ("prefill", "decode", "skip", "order")


def read_schedulers(tape: Tape) -> list[RecordedScheduler]:
    """Return the request schedulers of a tape, without their inputs.

    Raises
    ------
    InvalidTape
        The configuration of one is no JSON object.
    """
    pools: dict[int, list[RecordedPool]] = defaultdict(list)
    for p in tape.table("pools").to_pylist():
        pools[p["scheduler"]].append(
            RecordedPool(p["pool"], p["name"], p["units"], p["reserved"], p["tokens_per_unit"])
        )
    requests: dict[int, dict[int, RecordedRequest]] = defaultdict(dict)
    owner: dict[int, int] = {}
    for r in tape.table("requests").to_pylist():
        requests[r["scheduler"]][r["request"]] = _request(r)
        owner[r["request"]] = r["scheduler"]
    prefixes: dict[int | None, list[tuple[int, int, int, int]]] = defaultdict(list)
    for p in tape.table("prefixes").to_pylist():
        prefixes[owner.get(p["request"])].append((p["request"], p["of"], p["from_tokens"], p["to_tokens"]))
    return [
        RecordedScheduler(
            s["scheduler"],
            s["engine"],
            s["engine_version"],
            _config(s["config"], tape),
            tuple(pools[s["scheduler"]]),
            requests[s["scheduler"]],
            tuple(prefixes[s["scheduler"]]),
        )
        for s in tape.table("schedulers").to_pylist()
    ]


def read_inputs(tape: Tape, scheduler: int | None = None) -> Iterator[RecordedInput]:
    """Yield the inputs of a tape in their order; what the deltas leave out is filled in.

    Parameters
    ----------
    tape : Tape
    scheduler : int, optional
        Only those of this one; without it those of all.

    Raises
    ------
    InvalidTape
        The configuration of a scheduler is no JSON object.
    """
    schedulers = read_schedulers(tape)
    carries = {s.scheduler: Carry() for s in schedulers}
    names = {p.pool: p.name for s in schedulers for p in s.pools}
    prompts = {r.request: r.prompt_tokens for s in schedulers for r in s.requests.values()}
    span = None if scheduler is None else _span(tape, scheduler)
    decisions = _Rows(
        tape, "decisions", ("input", "seq", "request", "kind", "tokens", "computed_tokens"), span
    )
    answers = _Rows(tape, "answers", ("input", "seq", "request", "tokens", "word"), span)
    blocks = _Rows(tape, "blocks", ("input", "seq", "pool", "action", "unit", "request"), span)
    resources = _Rows(tape, "resources", ("input", "pool", "free", "used"), span)
    for row in _all(tape, "inputs", _INPUT, span):
        (number, whose, kind, request, requests, step, tokens, decode_only, value, word, at_ns, arrive_ns,
         op) = row  # fmt: skip
        if scheduler not in (None, whose):
            continue
        carry = carries.setdefault(whose, Carry())
        several = tuple(requests or ())
        if kind == "submit" and request is not None:
            carry.submitted(request, prompts.get(request, 0))
        elif kind == "next_chunk" and request is not None:
            carry.chunk(request, tokens or 0)
        elif kind == "abort":
            for r in (*(() if request is None else (request,)), *several):
                carry.over(r)
        caused = _Caused(carry, -1 if step is None else step, names)
        caused.tell(decisions.of(number), answers.of(number), blocks.of(number))
        scheduled, answered, emitted = caused.expanded(kind)
        yield RecordedInput(
            number,
            whose,
            kind,
            request,
            several,
            step,
            tokens,
            bool(decode_only),
            value,
            word,
            at_ns,
            arrive_ns,
            op,
            events=tuple(caused.events),
            scheduled=scheduled,
            answers=answered,
            emitted=emitted,
            free={names.get(pool, str(pool)): (free, used) for _, pool, free, used in resources.of(number)},
        )


_INPUT = (
    "input", "scheduler", "kind", "request", "requests", "step", "tokens", "decode_only", "value", "word",
    "at_ns", "arrive_ns", "op",
)  # fmt: skip


class _Caused:
    """What one input caused, while its rows are read in their order."""

    def __init__(self, carry: Carry, step: int, names: Mapping[int, str]) -> None:
        self.events: list[Decided | Changed] = []
        self._carry = carry
        self._step = step
        self._names = names
        self._rows: list[tuple[str, int, int | None, int | None]] = []
        self._answers: list[tuple[int, int, str | None]] = []
        self._emits: dict[int, int] = {}

    def tell(
        self, decisions: list[tuple[Any, ...]], answers: list[tuple[Any, ...]], blocks: list[tuple[Any, ...]]
    ) -> None:
        """Take the rows of all three tables."""
        merged = [(d[1], "d", d) for d in decisions]
        merged += [(a[1], "a", a) for a in answers]
        merged += [(b[1], "b", b) for b in blocks]
        merged.sort(key=lambda m: m[0])
        for _, table, row in merged:
            if table == "b":
                self._block(*row[2:])
            elif table == "a":
                self._answers.append(row[2:])
            else:
                self._decision(*row[2:])

    def _block(self, pool: int, action: str, unit: int, request: int | None) -> None:
        name = self._names.get(pool, str(pool))
        last = self.events[-1] if self.events else None
        if isinstance(last, Changed) and (last.action, last.pool, last.request) == (action, name, request):
            self.events[-1] = last._replace(units=(*last.units, unit))
        else:
            self.events.append(Changed(action, name, (unit,), request))

    def _decision(self, request: int, kind: str, tokens: int | None, computed: int | None) -> None:
        if kind in _SCHEDULING:
            self._rows.append((kind, request, tokens, computed))
            return
        if kind == "emit":
            self._emits[request] = tokens or 0
            return
        self.events.append(Decided(kind, request, tokens, computed))
        if kind == "preempt":
            self._carry.left(request)
        elif kind in ("finish", "reject"):
            self._carry.over(request)

    def expanded(
        self, kind: str
    ) -> tuple[tuple[Scheduled, ...], tuple[Answered, ...], tuple[tuple[int, int], ...]]:
        """Return what the step schedules, what the output answers, and what it shows."""
        scheduled = self._carry.decode(self._step, self._rows) if kind == "step" else []
        answered = self._carry.decode_answers(self._step, self._answers) if kind == "output" else []
        shown = {a.request: a.tokens for a in answered} | self._emits
        return tuple(scheduled), tuple(answered), tuple((r, n) for r, n in shown.items() if n)


Span = tuple[int, int]
"""The first and the last of some inputs."""


def _span(tape: Tape, scheduler: int) -> Span:
    """Return the span of a scheduler's inputs."""
    inputs = tape.columns("inputs", ["input", "scheduler"])
    mine = inputs.column("input").filter(pc.equal(inputs.column("scheduler"), scheduler))
    found = pc.min_max(mine).as_py()
    return (0, -1) if found["min"] is None else (found["min"], found["max"])


def _all(tape: Tape, table: str, names: Sequence[str], span: Span | None) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table, some at a time; with a span only those of its inputs."""
    for batch in tape.batches(table, names):
        if span is not None:
            number = batch.column(names.index("input"))
            batch = batch.filter(pc.and_(pc.greater_equal(number, span[0]), pc.less_equal(number, span[1])))
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


class _Rows:
    """The rows of a table that hang on inputs, taken input by input."""

    def __init__(self, tape: Tape, table: str, names: Sequence[str], span: Span | None) -> None:
        self._rows = _all(tape, table, names, span)
        self._next = next(self._rows, None)

    def of(self, number: int) -> list[tuple[Any, ...]]:
        """Return the rows of an input; those of earlier ones are passed over."""
        found = []
        while self._next is not None and self._next[0] <= number:
            if self._next[0] == number:
                found.append(self._next)
            self._next = next(self._rows, None)
        return found


def _request(row: Mapping[str, Any]) -> RecordedRequest:
    return RecordedRequest(
        row["request"],
        row["prompt_tokens"],
        row["max_tokens"],
        row["priority"],
        tuple(row["flags"] or ()),
        row["reserve_tokens"],
        row["id_rank"],
        row["arrive_ns"],
    )


def _config(text: str, tape: Tape) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidTape(
            "the configuration of a request scheduler is no JSON object",
            where=tape.where,
            next_step="see all with: tapedelay info --validate",
        )
    return found
