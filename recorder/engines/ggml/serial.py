"""What the engine's API asks of its callers: one call at a time on one object.

The caller keeps two threads from calling one backend object (or touching one buffer) at a time by locks that
no function table shows. Without an edge for them every hand-over between threads would look like a race. So
where two successive calls on one object come from different threads, the earlier one is taken to have
returned before the later one began, unless their times say otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Call", "handovers"]


@dataclass(frozen=True)
class Call:
    """A call on some objects, by its position in issue order; `last` is that of the last call it made."""

    position: int
    last: int
    thread: int
    objects: tuple[object, ...]
    start_ns: int
    end_ns: int


def handovers(calls: Iterable[Call]) -> Iterator[tuple[Call, Call]]:
    """Yield (earlier, later) pairs of calls between which the API orders two threads.

    A pair is left out when the later thread already knows a later call of the earlier thread.
    """
    last: dict[object, Call] = {}
    known: dict[tuple[int, int], int] = {}
    for call in calls:
        for o in call.objects:
            before = last.get(o)
            last[o] = call
            if before is None or before.thread == call.thread:
                continue
            if before.last > call.position or max(before.end_ns, before.start_ns) > call.start_ns:
                continue
            key = (before.thread, call.thread)
            if known.get(key, -1) >= before.position:
                continue
            known[key] = before.position
            yield before, call
