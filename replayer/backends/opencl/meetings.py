"""Who is in flight together in a pinned run: a fact of its order, whatever can be seen of it in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from .graph import Graph
from .memory import FOLD, WRITE, XOR, Access, Memory

__all__ = ["Meetings", "Piece", "meetings"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Real bytes of an access that another op writes at the same time: nobody's version stays there."""

    access: Access
    at: int
    bytes: int


@dataclass
class Meetings:
    """What the ops of a run meet in flight; of parts of one op nothing is told.

    Marks in memory show most of it, but not where an op has overlapping ranges or parts of its own, and not
    an op that reduces: those leave no mark. A run without a pin has only the marks.

    Attributes
    ----------
    torn : dict
        By index of a reading access: accesses that write to it meanwhile, in the order of their meeting.
    at_start : dict
        By such an index: how many of them were at it already as the read began; left out where none was.
    pieces : dict
        By unit: what it and another one write at once.
    """

    torn: dict[int, list[Access]] = field(default_factory=dict)
    at_start: dict[int, int] = field(default_factory=dict)
    pieces: dict[int, list[Piece]] = field(default_factory=dict)


def meetings(nodes: Iterable[int], graph: Graph, memory: Memory) -> Meetings:
    """Return who meets whom where nodes come one after another.

    Parameters
    ----------
    nodes : iterable of int
        ``u`` where unit u starts and ``~u`` where it ends.
    """
    found = Meetings()
    contract = graph.contract
    unit = contract.unit
    flying: defaultdict[int, dict[int, Access]] = defaultdict(dict)
    for node in nodes:
        if node < 0:
            for a in memory.of_unit.get(~node, ()):
                flying[a.root].pop(a.index, None)
            continue
        mine = memory.of_unit.get(node, ())
        for a in mine:
            for b in flying[a.root].values():
                begin, end = max(a.at, b.at), min(a.at + a.bytes, b.at + b.bytes)
                other = unit[b.row]
                kin = contract.is_ancestor(node, other) or contract.is_ancestor(other, node)
                if begin < end and not kin:
                    _meet(found, node, other, (a, b), begin, end)
        for a in mine:
            flying[a.root][a.index] = a
    return found


def _meet(found: Meetings, unit: int, other: int, both: tuple[Access, Access], begin: int, end: int) -> None:
    a, b = both
    if a.mode & b.mode & XOR:
        return
    if a.mode & FOLD and b.mode & (WRITE | XOR):
        found.torn.setdefault(a.index, []).append(b)
        found.at_start[a.index] = len(found.torn[a.index])
    if b.mode & FOLD and a.mode & (WRITE | XOR):
        found.torn.setdefault(b.index, []).append(a)
    if a.mode & (WRITE | XOR) and b.mode & (WRITE | XOR):
        found.pieces.setdefault(unit, []).append(Piece(a, begin, end - begin))
        found.pieces.setdefault(other, []).append(Piece(b, begin, end - begin))
