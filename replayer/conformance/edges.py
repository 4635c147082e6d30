"""Cases: every rule that orders two ops, with the edge (clean, however late the first op is) and without."""

from __future__ import annotations

from collections.abc import Iterator

from .case import Case, Delay

__all__ = ["edge_cases"]

LATE: tuple[Delay, ...] = (("w", "before_start", 3),)
HOLD: tuple[Delay, ...] = (("w", "after_end", 3),)

# Rows with + are the edge. `w` writes, `r` reads; w is late in every run.
_EDGES = {
    "program-order": (
        "A host thread does one thing after the other.",
        """
        w | host | H | | A
        +r | host | H | A |
        -r | host | T | A |
        """,
    ),
    "queue-order": (
        "A queue that is in order runs its ops in row order.",
        """
        w | kernel | s0 | | A
        +r | kernel | s0 | A | Y
        -r | kernel | s1 | A | Y
        """,
    ),
    "queue-order-two-threads": (
        "Row order holds on a queue also where two host threads issue to it.",
        """
        w | kernel | s0@T | | A
        +r | kernel | s0@H | A | Y
        -r | kernel | s1@H | A | Y
        """,
    ),
    "issue": (
        "An op comes after what its issuer did itself before it.",
        """
        w | host | H | | A
        +r | kernel | s0@H | A | Y
        -r | kernel | s0@T | A | Y
        """,
    ),
    "event": (
        "A wait on a queue comes after the record of its event.",
        """
        w | kernel | s0 | | A
        1 | record | s0 | | | e
        +2 | wait | s1 | | | e
        r | kernel | s1 | A | Y
        """,
    ),
    "event-two-threads": (
        "A wait comes after its record also where another host thread records.",
        """
        w | kernel | s0@T | | A
        1 | record | s0@T | | | e
        +2 | wait | s1@H | | | e
        r | kernel | s1@H | A | Y
        """,
    ),
    "event-recorded-again": (
        "A later record does not change an earlier wait, and an earlier one does not serve a later wait.",
        """
        0 | record | s0 | | | e
        -2 | wait | s1 | | | e
        w | kernel | s0 | | A
        1 | record | s0 | | | e
        +2 | wait | s1 | | | e
        r | kernel | s1 | A | Y
        """,
    ),
    "event-host": (
        "A host thread that waits for an event comes after its record.",
        """
        w | kernel | s0 | | A
        1 | record | s0 | | | e
        +2 | wait | H | | | e
        r | host | H | A |
        """,
    ),
    "sync-queue": (
        "A host thread that synchronises with a queue comes after what stands on it.",
        """
        w | kernel | s0 | | A
        +1 | sync | H | | | s0
        -1 | sync | H | | | s1
        r | host | H | A |
        2 | kernel | s1 | | Z
        """,
    ),
    "sync-device": (
        "A host thread that synchronises with a device comes after what stands on all its queues.",
        """
        w | kernel | s0 | | A
        1 | kernel | s1 | | Z
        +2 | sync | H | | | device:device
        r | host | H | A |
        """,
    ),
    "sync-all": (
        "A host thread that synchronises with everything comes after what stands on all queues.",
        """
        w | kernel | s0 | | A
        +1 | sync | H | | | *
        r | host | H | A |
        """,
    ),
    "sync-then-issue": (
        "What a host thread issues after a synchronisation comes after what it waited for.",
        """
        w | kernel | s0 | | A
        +1 | sync | H | | | s0
        r | kernel | s1 | A | Y
        """,
    ),
    "semaphore": (
        "A wait for a semaphore comes after its signal.",
        """
        w | kernel | s0 | | A
        +1 | semsig | s0 | | | go
        -1 | semsig | s2 | | | go
        2 | semwait | s1 | | | go
        r | kernel | s1 | A | Y
        """,
    ),
    "semaphore-wait-first": (
        "A wait for a semaphore comes after its signal also where it is issued before it.",
        """
        +2 | semwait | s1 | | | go
        r0 | kernel | s1 | | Z
        w | kernel | s0 | | A
        1 | semsig | s0 | | | go
        r | kernel | s1 | A | Y
        """,
    ),
    "semaphore-value": (
        "A wait for a value comes after the first signal that reaches it.",
        """
        0 | semsig | s2 | | | go | value=1
        w | kernel | s0 | | A
        1 | semsig | s0 | | | go | value=2
        +2 | semwait | s1 | | | go | value=2
        -2 | semwait | s1 | | | go | value=1
        r | kernel | s1 | A | Y
        """,
    ),
    "semaphore-host": (
        "A host thread that waits for a semaphore comes after its signal.",
        """
        w | kernel | s0@T | | A
        1 | semsig | s0@T | | | go
        +2 | semwait | H | | | go
        r | host | H | A |
        """,
    ),
    "collective": (
        "A collective joins its participants.",
        """
        w | kernel | s0 | | A
        +1 | coll | s0 | | | c
        +2 | coll | s1 | | | c
        r | kernel | s1 | A | Y
        """,
    ),
    "wait-any": (
        "What comes before every record of a wait for any comes before the wait.",
        """
        w | kernel | s0 | | A
        1 | record | s0 | | | e
        2 | wait | s1 | | | e
        3 | kernel | s1 | | Z
        4 | record | s1 | | | f
        +5 | wait_any | s2 | | | e,f
        r | kernel | s2 | A | Y
        """,
    ),
    "parts": (
        "What follows an op that has parts comes after the parts.",
        """
        g | kernel | s0 | |
        w | kernel | s1 | | A | | parent=g
        +r | kernel | s0 | A | Y
        -r | kernel | s2 | A | Y
        """,
    ),
    "parts-start": (
        "Parts start after what precedes the op that they are parts of.",
        """
        w | kernel | s0 | | A
        g | kernel | s0 | |
        +r | kernel | s1 | A | Y | | parent=g
        -r | kernel | s1 | A | Y
        """,
    ),
}

_DECLARED = {
    "edge-row": (
        "A row of `edges` orders two ops of a queue that is not in order.",
        """
        device host host
        device gpu gpu
        host H host
        queue s0 gpu order=out
        w | kernel | s0 | | A
        r | kernel | s0 | A | Y
        +edge w -> r
        """,
        frozenset({"out_of_order"}),
    ),
    "blocking-copy": (
        "Where the profile says so, a copy blocks its issuer.",
        """
        profile blocks {"blocking_copies": ["d2h"]}
        profile free {}
        device host host
        device gpu gpu profile=blocks
        device other gpu profile=free
        host H host
        queue s0 gpu
        queue s1 other
        buffer D 64 device=gpu
        buffer E 64 device=other
        buffer A 64 device=host
        +w | copy | s0 | D | A
        -w | copy | s1 | E | A
        r | host | H | A |
        """,
        frozenset(),
    ),
    "free-synchronises": (
        "Where the profile says so, a free waits for the device, and its issuer goes on after it.",
        """
        profile waits {"free_synchronises": true}
        device host host
        device gpu gpu profile=waits
        device other gpu
        host H host
        queue s0 gpu
        buffer A 64 device=gpu
        buffer B 64 device=gpu
        buffer C 64 device=other
        w | kernel | s0 | | A
        +1 | free | H | | | B
        -1 | free | H | | | C
        r | host | H | A |
        """,
        frozenset(),
    ),
    "default-queue": (
        "Where the profile says so, the default queue is ordered with every other queue of its device.",
        """
        profile legacy {"default_queue_blocks": true}
        device host host
        device gpu gpu profile=legacy
        host H host
        queue s0 gpu
        queue d gpu kind=default
        queue s1 gpu
        w | kernel | s0 | | A
        +r | kernel | d | A | Y
        -r | kernel | s1 | A | Y
        """,
        frozenset(),
    ),
}


def _both(
    name: str, promise: str, text: str, needs: frozenset[str], delays: tuple[Delay, ...]
) -> Iterator[Case]:
    text = "\n".join(line.strip() for line in text.strip().splitlines()) + "\n"
    yield Case(f"edges/{name}", promise, text, "fixed", "clean", delays, needs)
    yield Case(
        f"edges/{name}-missing",
        "Without the edge, the op that is late is read too early.",
        text,
        "buggy",
        "wrong",
        delays,
        needs | {"values"},
    )


def edge_cases() -> Iterator[Case]:
    """Yield, for each rule, a case with the edge and one without."""
    for name, (promise, text) in _EDGES.items():
        yield from _both(name, promise, text, frozenset(), LATE)
        with_edge = next(_both(f"{name}-held", promise, text, frozenset(), HOLD))
        yield with_edge
    for name, (promise, text, needs) in _DECLARED.items():
        yield from _both(name, promise, text, needs, LATE)
