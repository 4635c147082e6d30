"""Find the ops of a tape that a plan names."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..columns import Bools, Columns, Words
from ..errors import PlanError
from ..tape import Tape
from .globs import Glob
from .plan import ANY_KIND, EVERY, LAST, MAX_LINES, MAX_TOTAL_NS, Pattern, Plan
from .print import print_line
from .randoms import random_ns
from .resolved import Delays

__all__ = ["Anchors", "LineMatch", "Matched", "match_plan"]

_Rows = npt.NDArray[np.int64]
_Anchor = tuple[str, Glob | None, Glob | None, Glob | None]
_COLUMNS = ("op", "kind", "name", "label", "queue", "access_set", "origin")
HOST_KIND = "host"
"""Kind of what a host thread does by itself: no engine issues it, recordings conclude it."""
_ORDINAL = re.compile(r"#[0-9]+ ")


@dataclass(frozen=True)
class LineMatch:
    """How often a line matched.

    Attributes
    ----------
    line : int
        Line of the file, or which delay of the plan, from 1.
    text : str
        The line.
    count : int
        Ops that it delays.
    """

    line: int
    text: str
    count: int


@dataclass(frozen=True)
class Matched:
    """A plan on a tape.

    Attributes
    ----------
    delays : Delays
        By row of the tape.
    lines : tuple of LineMatch
        One for each line of the plan.
    """

    delays: Delays
    lines: tuple[LineMatch, ...]

    @property
    def unmatched(self) -> tuple[LineMatch, ...]:
        """The lines that found no op."""
        return tuple(m for m in self.lines if not m.count)


def match_plan(plan: Plan, tape: Tape | Anchors) -> Matched:
    """Return the delays of a plan by row of a tape, and what each line matched.

    Parameters
    ----------
    plan : Plan
        The plan.
    tape : Tape or Anchors
        A valid tape; where many plans are matched, the `Anchors` of it.

    Returns
    -------
    Matched
        Delays and counts.

    Raises
    ------
    PlanError
        The delays add up to more than `MAX_TOTAL_NS`.
    """
    anchors = tape if isinstance(tape, Anchors) else Anchors(tape)
    single = _single_rows(plan, anchors)
    alone = single >= 0
    ns = np.array([n.ns for n in plan.lines], np.int64)
    places = np.array([n.place for n in plan.lines], np.int64)
    keys: list[_Rows] = [single[alone] * 4 + places[alone]]
    amounts: list[_Rows] = [ns[alone]]
    counts: list[int] = (single >= 0).astype(np.int64).tolist()
    total = 0
    for at, line in enumerate(plan.lines):
        if single[at] == _MANY:
            assert isinstance(line.anchor, Pattern)
            rows = anchors.rows(line.anchor)
            if line.seed is None:
                amounts.append(np.full(len(rows), line.ns, np.int64))
            else:
                amounts.append(random_ns(line.seed, anchors.op_ids[rows], line.ns))
            keys.append(rows * 4 + line.place)
            counts[at] = len(rows)
        total += line.ns * counts[at]
        if total > MAX_TOTAL_NS:
            raise PlanError(
                f"delays that add up to more than {MAX_TOTAL_NS:,} ns",
                expected="shorter ones, or fewer ops",
                where=f"{plan.name}:{line.number}" if line.number else plan.name,
                next_step="delay single ops",
            )
    found = tuple(
        LineMatch(n.number or at, print_line(n), c)
        for at, (n, c) in enumerate(zip(plan.lines, counts, strict=True), 1)
    )
    return Matched(_sums(keys, amounts), found)


_NONE, _MANY = -1, -2


def _single_rows(plan: Plan, anchors: Anchors) -> _Rows:
    """Return the row of each line that means one op, `_NONE` where there is none, `_MANY` for other lines."""
    rows = np.full(len(plan.lines), _MANY, np.int64)
    exact: list[tuple[int, int]] = []
    counting: dict[_Anchor, list[tuple[int, int, Pattern]]] = {}
    for at, line in enumerate(plan.lines):
        p = line.anchor
        if isinstance(p, int):
            exact.append((at, p))
        elif p.which > 0 and not p.further and line.seed is None:
            counting.setdefault((p.kind, p.name, p.touching, p.on), []).append((at, p.which, p))
    if exact:
        lines, wanted = np.array(exact, np.int64).T
        place = np.minimum(np.searchsorted(anchors.op_ids, wanted), max(len(anchors.op_ids) - 1, 0))
        hit = anchors.op_ids[place] == wanted if len(anchors.op_ids) else np.zeros(len(place), np.bool_)
        rows[lines] = np.where(hit, place, _NONE)
    for group in counting.values():
        found = anchors.counted(group[0][2])
        lines, which = np.array([g[:2] for g in group], np.int64).T
        there = which <= len(found)
        rows[lines] = _NONE
        rows[lines[there]] = found[which[there] - 1]
    return rows


def _sums(keys: list[_Rows], amounts: list[_Rows]) -> Delays:
    if not keys:
        return Delays.of()
    unique, inverse = np.unique(np.concatenate(keys), return_inverse=True)
    ns = np.zeros(len(unique), np.int64)
    np.add.at(ns, inverse, np.concatenate(amounts))
    keep = ns > 0
    return Delays((unique[keep] // 4).astype(np.int32), (unique[keep] % 4).astype(np.int8), ns[keep])


class Anchors:
    """Looks up anchors in one tape; what several lines ask for is found once."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._ops = Columns(tape.columns("ops", _COLUMNS))
        self.op_ids = self._ops.ints("op")
        self._masks: dict[tuple[str, Glob | str], Bools] = {}
        self._matching: dict[_Anchor, _Rows] = {}
        self._counted: dict[_Anchor, _Rows] = {}
        self._issued: Bools = self._ops.words("origin").isin(["observed"])
        self._place: tuple[_Rows, _Rows] | None = None

    @property
    def queue(self) -> _Rows:
        """Queue of each row."""
        return self._ops.ints("queue")

    def kind(self, row: int) -> str:
        """Return the kind of a row."""
        return str(self._ops.words("kind")[row])

    def named(self, row: int) -> tuple[str, str]:
        """Return kind and name of a row as a pattern says them; the name is empty where it has none."""
        name = self._ops.words("name")[row] or ""
        if not name:
            name = self._ops.words("label")[row] or ""
        return str(self._ops.words("kind")[row]), name[_ordinal(name) :]

    def matching(self, pattern: Pattern) -> _Rows:
        """Return the rows that match a pattern, whichever of them it means, in issue order."""
        key = (pattern.kind, pattern.name, pattern.touching, pattern.on)
        known = self._matching.get(key)
        if known is not None:
            return known
        mask = np.ones(len(self.op_ids), np.bool_)
        if pattern.kind != ANY_KIND:
            mask &= self._mask("kind", pattern.kind)
        for what, glob in (("of", pattern.name), ("touching", pattern.touching), ("on", pattern.on)):
            if glob is not None:
                mask &= self._mask(what, glob)
        rows = np.flatnonzero(mask).astype(np.int64)
        if sum(map(len, self._matching.values())) + len(rows) <= 4 * MAX_LINES:
            self._matching[key] = rows
        return rows

    def counted(self, pattern: Pattern) -> _Rows:
        """Return the rows that match and that ``first``, ``2nd``, ... and ``+K`` count, in issue order.

        What no engine issues is not counted, so that a count means the same op while the engine runs; but
        patterns of kind `host` count ops of that kind.
        """
        key = (pattern.kind, pattern.name, pattern.touching, pattern.on)
        known = self._counted.get(key)
        if known is None:
            rows = self.matching(pattern)
            known = rows if pattern.kind == HOST_KIND else rows[self._issued[rows]]
            if sum(map(len, self._counted.values())) + len(known) <= 4 * MAX_LINES:
                self._counted[key] = known
        return known

    def rows(self, pattern: Pattern) -> _Rows:
        """Return the rows that a pattern means."""
        if pattern.which == EVERY and not pattern.further:
            return self.matching(pattern)
        rows = self.counted(pattern)
        if pattern.which == LAST:
            rows = rows[-1:]
        elif pattern.which != EVERY:
            rows = rows[pattern.which - 1 : pattern.which]
        return self._further(rows, pattern.further) if pattern.further else rows

    def nth(self, pattern: Pattern, row: int) -> int:
        """Return the how-manieth of those that are counted a row is, from 1; 0 where it is none of them."""
        rows = self.counted(pattern)
        at = int(np.searchsorted(rows, row))
        return at + 1 if at < len(rows) and int(rows[at]) == row else 0

    def _further(self, rows: _Rows, count: int) -> _Rows:
        """Return the rows so many places further on the same queues; none where a queue ends before."""
        if self._place is None:
            order = np.argsort(self.queue, kind="stable").astype(np.int64)
            issued = self._issued[order]
            place = np.empty(len(order), np.int64)
            place[order] = np.cumsum(issued) - 1  # of the newest one that counts, up to itself
            self._place = order[issued], place
        order, place = self._place
        at = place[rows] + count
        rows, at = rows[at < len(order)], at[at < len(order)]
        same = self.queue[order[at]] == self.queue[rows]
        return np.sort(order[at[same]])

    def _mask(self, what: str, wanted: Glob | str) -> Bools:
        known = self._masks.get((what, wanted))
        if known is not None:
            return known
        if isinstance(wanted, str):
            mask = self._ops.words("kind").isin([wanted])
        elif what == "of":
            names = self._ops.words("name")
            mask = _chosen(names, wanted, ordinals=True)
            mask |= _chosen(self._ops.words("label"), wanted) & (names.codes < 0)
        elif what == "on":
            mask = self._on(wanted)
        else:
            mask = self._touching(wanted)
        if len(self._masks) < 64:
            self._masks[what, wanted] = mask
        return mask

    def _on(self, wanted: Glob) -> Bools:
        queues, devices = Columns(self._tape.table("queues")), Columns(self._tape.table("devices"))
        chosen = _chosen(queues.words("name"), wanted)
        chosen |= _chosen(devices.words("name"), wanted)[queues.ints("device")]
        out: Bools = chosen[self._ops.ints("queue")]
        return out

    def _touching(self, wanted: Glob) -> Bools:
        accesses, buffers = Columns(self._tape.table("accesses")), Columns(self._tape.table("buffers"))
        named = _chosen(accesses.words("name"), wanted)
        of_buffer = _chosen(buffers.words("name"), wanted)
        parent = buffers.ints("parent")
        while True:  # at most as often as buffers lie in each other
            more = of_buffer | ((parent >= 0) & of_buffer[parent])
            if (more == of_buffer).all():
                break
            of_buffer = more
        buffer = accesses.ints("buffer")
        unnamed = (accesses.words("name").codes < 0) & (buffer >= 0)
        named[unnamed] = of_buffer[buffer[unnamed]]
        sets = np.unique(accesses.ints("set")[named])
        return np.isin(self._ops.ints("access_set"), sets)


def _ordinal(name: str) -> int:
    """Return how long the ordinal is with which a recorder begins a name."""
    m = _ORDINAL.match(name) if name.startswith("#") else None
    return 0 if m is None else m.end()


def _chosen(words: Words, wanted: Glob, *, ordinals: bool = False) -> Bools:
    """Return which rows have a name that matches; null has none.

    The ordinal with which a recorder begins a name (``#12 norm-0``) may be left out.
    """
    literal = wanted.literal
    matches = wanted.matches if literal is None else literal.__eq__
    table = np.zeros(len(words.words) + 1, np.bool_)
    for code, word in enumerate(words.words):
        hit = matches(word)
        if not hit and ordinals and (skipped := _ordinal(word)):
            hit = matches(word[skipped:])
        table[code] = hit
    out: Bools = table[words.codes]
    return out
