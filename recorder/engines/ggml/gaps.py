"""Where records found no room: what they may have ordered is unknown, never nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .places import Places
from .record import Record

__all__ = ["ops_of_gap"]


def ops_of_gap(gap: Record, places: Places) -> Iterator[dict[str, Any]]:
    """Yield the ops that stand for lost records of one thread: a mark, and waits for what nobody saw.

    A lost record may have been a wait of the thread, or of any queue of its process. A thread that wrote only
    times of commands, a worker of the plugin, has lost no more than such times.
    """
    thread = places.threads[gap.thread]
    if thread is None and places.spool.is_worker(gap.thread):
        return
    common = {"issuer": thread, "access_set": 0}
    if thread is not None:
        lost = f"gap: {gap.a} record{'s' * (gap.a != 1)} lost"
        yield {"kind": "mark", "name": lost, "queue": thread, **common}
    for queue in (thread, *places.queues):
        if queue is not None:
            words = {"kind": "wait", "name": "gap", "queue": queue, "wait_state": "unresolved"}
            yield {**words, "origin": "inferred", **common}
