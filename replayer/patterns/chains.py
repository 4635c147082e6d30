"""Linked lists of any length over queues that take turns: each op hands on its own buffer, or one state."""

from __future__ import annotations

from collections.abc import Iterator

from .pattern import Pattern
from .script import Pair, Script

__all__ = ["chain_patterns", "linked_list", "state_chain"]


def _queues(n: int) -> dict[str, str]:
    return {f"q{i}": f"gpu{i % 2}" for i in range(n)}


def linked_list(length: int, queues: int) -> Script:
    """Return a list in which op i reads what op i-1 wrote, on the next queue.

    Parameters
    ----------
    length : int
        Ops, at least 1.
    queues : int
        At least 2.
    """
    s = Script(f"chains/list{length}-over{queues}", _queues(queues))
    for i in range(length):
        s.op("kernel", f"q{i % queues}", f"n{i}", f"B{i - 1}" if i else "", f"B{i}")
        if i:
            s.link(f"n{i - 1}", f"n{i}", "RAW", f"B{i - 1}")
    return s


def state_chain(length: int, queues: int) -> Script:
    """Return a list in which every op updates one state in place.

    A hand-over that is missing leaves the ops behind it unordered with those before it, up to where the
    order of a queue closes the gap.
    """
    s = Script(f"chains/state{length}-over{queues}", _queues(queues))
    for i in range(length):
        s.op("kernel", f"q{i % queues}", f"n{i}", "", "ST:update")
    for i in range(1, length):
        pairs: list[Pair] = [
            (f"n{j}", f"n{m}", "RAW", "ST")
            for m in range(i, min(i + queues - 1, length))
            for j in range(i - 1, max(m - queues, -1), -1)
        ]
        s.link(*pairs[0], *pairs[1:])
    return s


def chain_patterns(*, full: bool = False) -> Iterator[Pattern]:
    """Yield the patterns of lists."""
    for turn, (length, queues) in enumerate([(2, 2), (3, 2), (6, 3), (9, 8)]):
        yield from linked_list(length, queues).patterns(every_way=full or length == 2, turn=turn)
    for length in (100, 1000) if full else (100,):
        s = linked_list(length, 4)
        yield s.clean()
        for i, way in ((0, "missing"), (length // 2, "late"), (length - 2, "rerecorded")):
            yield s.broken(s.links[i], way)
    for turn, (length, queues) in enumerate([(2, 2), (5, 2), (6, 3), (7, 4)]):
        yield from state_chain(length, queues).patterns(every_way=full, turn=turn)
