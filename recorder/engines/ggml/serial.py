"""What the engine's API asks of its callers, where two host threads hand work over to each other.

How threads of the engine's user meet (locks, queues, joins) is in no function table. Without any edge for it
every hand-over would be `unknown`, with too many a real race would be `clean`. Two rules are assumed, each
gives a declared edge from the end of the earlier call to the start of the later one, and no other is:

**One backend object, one call at a time.** ggml backends are not thread-safe: the caller serialises the calls
on one backend object, from making it to freeing it. Nothing of the kind holds for buffers: two threads may
use disjoint parts of one buffer at the same moment, so that both touched it orders nothing.

**Weights are loaded before they are handed out.** A model is loaded into buffers that the engine marks as
weights, and another thread learns of it when the loading call has returned. So the first op of a thread that
uses a weights buffer comes after the last write to it by each other thread (for writes that a device queue
runs: after the host waits with which that thread goes on) -- if nobody writes to that buffer any more.

A pair of calls whose times overlap is left out: those two were not serialised. Memory that a thread prepares
for another one in any other way (a context that one thread made and another one uses, say) stays `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

__all__ = ["Call", "handovers"]


class Call(NamedTuple):
    """A call of a host thread, by its position in issue order.

    Attributes
    ----------
    position : int
        Its place in issue order; that of the meta call where it is part of one.
    thread : int
        Host thread.
    start_ns, end_ns : int
        When it was issued and, if that is known, returned.
    queue : int or None
        Backend object.
    writes, settles, takes : tuple of int
        Weights buffers that it writes, whose writes on a device queue it waits for, and that it uses.
    """

    position: int
    thread: int
    start_ns: int
    end_ns: int
    queue: int | None = None
    writes: tuple[int, ...] = ()
    settles: tuple[int, ...] = ()
    takes: tuple[int, ...] = ()


def handovers(calls: Sequence[Call], last_of: Mapping[int, int]) -> Iterator[tuple[Call, Call, str]]:
    """Yield (earlier, later, ``backend`` or ``weights``): calls between which the API orders two threads.

    A pair is left out when the later thread already knows a later call of the earlier thread.

    Parameters
    ----------
    calls : sequence of Call
        In issue order.
    last_of : mapping
        Position of the last call that a meta call made, by the meta call's position.
    """
    loaded = {b: call.position for call in calls for b in call.writes}
    last: dict[int, Call] = {}
    givers: dict[int, dict[int, Call]] = {}
    taken: set[tuple[int, int]] = set()
    known: dict[tuple[int, int], int] = {}
    for call in calls:
        thread, start = call.thread, call.start_ns
        before: list[tuple[Call, str]] = []
        if call.queue is not None:
            newest = last.get(call.queue)
            if newest is not None and newest.thread != thread:
                before.append((newest, "backend"))
            last[call.queue] = call
        for b in call.takes:
            if (b, thread) in taken:
                continue
            taken.add((b, thread))
            if loaded.get(b, -1) < call.position:
                before += [(c, "weights") for t, c in givers.get(b, {}).items() if t != thread]
        for b in (*call.writes, *call.settles):
            givers.setdefault(b, {})[thread] = call
        for c, why in before:
            if last_of.get(c.position, c.position) > call.position or max(c.end_ns, c.start_ns) > start:
                continue
            if known.get((c.thread, thread), -1) < c.position:
                known[c.thread, thread] = c.position
                yield c, call, why
