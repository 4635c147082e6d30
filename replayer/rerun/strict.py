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

__all__ = ["FIELDS", "Difference", "Divergence", "Recorded", "compare", "recorded_of"]

FIELDS = ("scheduled", "decided", "blocks", "order", "free", "used", "ended", "shown")
"""What is compared after each input; ``order``: of the decisions and units among each other."""

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
    counts : mapping of str to (int, int)
        Free and used units of pools after it, where they changed.
    ended : tuple of (int, str)
        Requests that ended with it, or a turn of which did, and why.
    shown : tuple of (int, int)
        Requests, and how many tokens of each it showed.
    """

    kind: str
    events: tuple[Decision | BlockChange, ...] = ()
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    ended: tuple[tuple[int, str], ...] = ()
    shown: tuple[tuple[int, int], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        rows = [
            ["b", e.action, e.pool, list(e.units), e.request]
            if isinstance(e, BlockChange)
            else ["d", e.kind, e.request, e.tokens, e.computed_tokens]
            for e in self.events
        ]
        return {
            "kind": self.kind,
            "events": rows,
            "counts": dict(self.counts),
            "ended": self.ended,
            "shown": self.shown,
        }


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
        counts = {pool: (int(free), int(used)) for pool, (free, used) in entry["counts"].items()}
        ended = tuple((int(request), str(word)) for request, word in entry["ended"])
        made.append(Recorded(entry["kind"], tuple(events), counts, ended, shown))
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


def compare(recorded: Sequence[Recorded], run: Run, *, ordered: bool = True) -> Divergence | None:
    """Compare a rerun with what was recorded.

    Parameters
    ----------
    recorded : sequence of Recorded
        One for each input of the scenario that was run.
    run : Run
        Its rerun, not drained.
    ordered : bool
        Whether its decisions and units stand in the order in which they are recorded, see `Driver`.

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
    counts = {p.name: (p.units - p.reserved, 0) for p in run.pools}
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
        counts |= was.counts
        sides = _sides(was, call, counts, ordered)
        found = tuple(_folded(name, a, b) for name, a, b in sides if a != b)
        if found:
            equal = tuple(name for name, a, b in sides if a == b)
            return Divergence(index, call.given.text(), steps, found, equal)
        steps += was.kind == "step"
    return None


def _sides(
    was: Recorded, call: Call, counts: Mapping[str, tuple[int, int]], ordered: bool
) -> list[tuple[str, list[str], list[str]]]:
    """Return what is compared: the field, the recorded rows, those of the rerun."""
    now = call.reaction.events
    sides = [
        ("scheduled", _scheduled(was.events), _scheduled(now)),
        ("decided", _rows(was.events, decided=True), _rows(now, decided=True)),
        ("blocks", _rows(was.events, blocks=True), _rows(now, blocks=True)),
    ]
    if ordered and all(a == b for _, a, b in sides):
        one, other = (_rows(events, decided=True, blocks=True) for events in (was.events, now))
        sides.append(("order", one, other))
    pools = [p for p in counts if p in call.free]
    for n, (name, seen) in enumerate((("free", call.free), ("used", call.used))):
        sides.append((name, [f"{p} {counts[p][n]}" for p in pools], [f"{p} {seen[p]}" for p in pools]))
    if call.reaction.ended is not None:
        sides.append(("ended", _ended(was.ended), _ended(call.reaction.ended)))
    shown = Counter[int]()
    for request, tokens in call.reaction.emitted:
        shown[request] += len(tokens)
    return [*sides, ("shown", _shown(was.shown), _shown(shown.items()))]


def _ended(rows: Iterable[tuple[int, str]]) -> list[str]:
    return [f"R{request} {word}" for request, word in sorted(rows)]


def _shown(rows: Iterable[tuple[int, int]]) -> list[str]:
    return [f"{tokens} of R{request}" for request, tokens in sorted(rows) if tokens]


def _scheduled(events: Iterable[Decision | BlockChange]) -> list[str]:
    return [
        f"R{e.request} {e.kind} {e.tokens} at {e.computed_tokens}"
        for e in events
        if isinstance(e, Decision) and e.kind in ("prefill", "decode")
    ]


def _rows(
    events: Iterable[Decision | BlockChange], *, decided: bool = False, blocks: bool = False
) -> list[str]:
    """Return decisions that schedule nothing, and units that change hands, one a row, in their order."""
    rows = []
    for e in events:
        if isinstance(e, BlockChange):
            owner = "" if e.request is None else f" R{e.request}"
            rows += [f"{e.action} {e.pool}{u}{owner}" for u in e.units] if blocks else []
        elif decided and e.kind in _DECIDED:
            row = f"{e.kind} R{e.request}"
            row += f" {e.tokens}" if e.tokens is not None else ""
            rows.append(row if e.computed_tokens is None else f"{row} at {e.computed_tokens}")
    return rows


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
