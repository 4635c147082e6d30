"""Strict rerun: every decision, unit and count as recorded, or the first input after which something differs.

Standard library only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .drive import Call, Run
from .protocol import BlockChange, Decision
from .scenario import Input

__all__ = ["FIELDS", "Difference", "Divergence", "Recorded", "compare", "recorded_of"]

FIELDS = ("scheduled", "decided", "blocks", "free", "shown")
"""What is compared after each input."""

_SHOWN = 12
_DECIDED = ("preempt", "resume", "finish", "reject")


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one recorded input did.

    Attributes
    ----------
    kind : str
        Kind of the input.
    events : tuple of (Decision or BlockChange)
        In the engine's order.
    free : mapping of str to int
        Free units of pools after it, where they changed.
    shown : tuple of (int, int)
        Requests, and how many tokens of each it showed.
    """

    kind: str
    events: tuple[Decision | BlockChange, ...] = ()
    free: Mapping[str, int] = field(default_factory=dict)
    shown: tuple[tuple[int, int], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        rows = [
            ["b", e.action, e.pool, list(e.units), e.request]
            if isinstance(e, BlockChange)
            else ["d", e.kind, e.request, e.tokens, e.computed_tokens]
            for e in self.events
        ]
        return {"kind": self.kind, "events": rows, "free": dict(self.free), "shown": self.shown}


def recorded_of(data: Iterable[Mapping[str, Any]]) -> list[Recorded]:
    """Return what `Recorded.as_dict` made."""
    made = []
    for entry in data:
        events: list[Decision | BlockChange] = []
        for which, *row in entry["events"]:
            if which == "b":
                events.append(BlockChange(row[0], row[1], tuple(row[2]), row[3]))
            else:
                events.append(Decision(*row))
        shown = tuple((int(request), int(tokens)) for request, tokens in entry["shown"])
        made.append(Recorded(entry["kind"], tuple(events), dict(entry["free"]), shown))
    return made


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs: rows of both sides, with what both have at the ends folded.

    Attributes
    ----------
    name : str
        One of `FIELDS`, or ``pools``.
    equal_before, equal_after : int
        Rows that both have before and behind those shown.
    recorded, rerun : tuple of str
        The rows between, at most a few.
    left_out : int
        Rows between that are not shown.
    """

    name: str
    equal_before: int
    recorded: tuple[str, ...]
    rerun: tuple[str, ...]
    equal_after: int
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first input after which the rerun is another one.

    Attributes
    ----------
    index : int
        Index of the input, of those compared.
    given : str
        The input in words.
    step : int
        Steps made before it.
    differences : tuple of Difference
        Fields that differ.
    equal : tuple of str
        Fields that do not.
    words : str
        What kept it from being made at all; "" where it was made.
    """

    index: int
    given: str
    step: int
    differences: tuple[Difference, ...] = ()
    equal: tuple[str, ...] = ()
    words: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Divergence:
        """Return the divergence of `as_dict`."""
        given = dict(data)
        made = []
        for entry in given["differences"]:
            rows = {**entry, "recorded": tuple(entry["recorded"]), "rerun": tuple(entry["rerun"])}
            made.append(Difference(**rows))
        given["differences"] = tuple(made)
        given["equal"] = tuple(given["equal"])
        return cls(**given)


def compare(recorded: Sequence[Recorded], run: Run) -> Divergence | None:
    """Compare a rerun with what was recorded.

    Parameters
    ----------
    recorded : sequence of Recorded
        One for each input of the scenario that was run.
    run : Run
        Its rerun, not drained.

    Returns
    -------
    Divergence or None
        The first; None where all is equal.
    """
    inputs = run.scenario.inputs
    steps = 0
    sizes = [{p.name: p.units for p in pools} for pools in (run.scenario.pools, run.pools)]
    if sizes[0] != sizes[1]:
        texts = [[f"{name} {units}" for name, units in of.items()] for of in sizes]
        return Divergence(0, "building it", 0, (_folded("pools", *texts),))
    free: dict[str, int] = {}
    for index, was in enumerate(recorded):
        given = inputs[index].text() if index < len(inputs) else was.kind
        if index >= len(run.calls):
            why = run.error or "it did not apply"
            return Divergence(index, given, steps, words=f"the rerun ended before it: {why}")
        call = run.calls[index]
        if call.given.kind != was.kind:
            words = f"the rerun could not make it and went on with {call.given.text()}"
            return Divergence(index, given, steps, words=words)
        if index == len(run.calls) - 1 and run.error is not None:
            return Divergence(index, given, steps, words=f"the scheduler raised: {run.error}")
        free |= was.free
        found = _differences(was, call, free)
        if found:
            names = {d.name for d in found}
            equal = tuple(n for n in FIELDS if n not in names)
            return Divergence(index, _given(call.given), steps, tuple(found), equal)
        steps += was.kind == "step"
    return None


def _given(given: Input) -> str:
    return given.text()


def _differences(was: Recorded, call: Call, free: Mapping[str, int]) -> list[Difference]:
    now = call.reaction.events
    sides = [
        ("scheduled", _scheduled(was.events), _scheduled(now)),
        ("decided", _decided(was.events), _decided(now)),
        ("blocks", *_blocks(was.events, now)),
    ]
    pools = [p for p in free if p in call.free]
    sides.append(("free", [f"{p} {free[p]}" for p in pools], [f"{p} {call.free[p]}" for p in pools]))
    shown = Counter[int]()
    for request, tokens in call.reaction.emitted:
        shown[request] += len(tokens)
    sides.append(("shown", _shown(was.shown), _shown(shown.items())))
    return [_folded(name, a, b) for name, a, b in sides if a != b]


def _shown(rows: Iterable[tuple[int, int]]) -> list[str]:
    return [f"{tokens} of R{request}" for request, tokens in sorted(rows) if tokens]


def _scheduled(events: Iterable[Decision | BlockChange]) -> list[str]:
    return [
        f"R{e.request} {e.kind} {e.tokens} at {e.computed_tokens}"
        for e in events
        if isinstance(e, Decision) and e.kind in ("prefill", "decode")
    ]


def _decided(events: Iterable[Decision | BlockChange]) -> list[str]:
    return [f"{e.kind} R{e.request}" for e in events if isinstance(e, Decision) and e.kind in _DECIDED]


def _blocks(
    was: Iterable[Decision | BlockChange], now: Iterable[Decision | BlockChange]
) -> tuple[list[str], list[str]]:
    """Return the units that change hands, one a row; the owner is compared where both sides name it."""
    one, other = ([e for e in events if isinstance(e, BlockChange)] for events in (was, now))
    rows = [[(e.action, f"{e.pool}{u}", e.request) for e in side for u in e.units] for side in (one, other)]
    named = [r is not None and s is not None for (*_, r), (*_, s) in zip(*rows, strict=False)]
    texts = []
    for side in rows:
        shown = []
        for n, (action, unit, request) in enumerate(side):
            known = request is not None and (n >= len(named) or named[n])
            shown.append(f"{action} {unit}" + (f" R{request}" if known else ""))
        texts.append(shown)
    return texts[0], texts[1]


def _folded(name: str, was: list[str], now: list[str]) -> Difference:
    before = 0
    while before < min(len(was), len(now)) and was[before] == now[before]:
        before += 1
    after = 0
    while after < min(len(was), len(now)) - before and was[-1 - after] == now[-1 - after]:
        after += 1
    one, other = was[before : len(was) - after], now[before : len(now) - after]
    left_out = max(0, len(one) - _SHOWN) + max(0, len(other) - _SHOWN)
    return Difference(name, before, tuple(one[:_SHOWN]), tuple(other[:_SHOWN]), after, left_out)
