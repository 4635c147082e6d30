"""Cases: programs in which something never starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .case import Case, Run

__all__ = ["end_cases"]


def _stuck(*labels: str) -> Callable[[Run], str]:
    def check(run: Run) -> str:
        wanted = {run.rows[x] for x in labels}
        found = set(run.outcome.stuck)
        return "" if found == wanted else f"rows {sorted(found)} never start, not {sorted(wanted)}"

    return check


_CYCLE = """
w1 | semwait | s0 | | | x
g1 | semsig | s0 | | | y
w2 | semwait | s1 | | | y
g2 | semsig | s1 | | | x
c | kernel | s2 | | C
"""


def end_cases() -> Iterator[Case]:
    """Yield the cases about deadlocks; the audit of every run compares never and cycles with the tape."""
    yield Case(
        "deadlocks/never",
        "A wait for what no op signals is told, with all that stands behind it; the rest runs.",
        "a | kernel | s0 | | A\nw | semwait | s1 | | | go\nb | kernel | s1 | | B\nc | kernel | s0 | | C\n",
        expect="deadlock",
        check=_stuck("w", "b"),
    )
    yield Case(
        "deadlocks/cycle",
        "Two queues that wait for each other are told.",
        _CYCLE,
        expect="deadlock",
        check=_stuck("w1", "g1", "w2", "g2"),
    )
    yield Case(
        "deadlocks/host",
        "A host thread that waits for ever issues nothing more.",
        "a | kernel | s0@T | | A\nw | semwait | H | | | go\nb | kernel | s1@H | | B\n",
        expect="deadlock",
        check=_stuck("w", "b"),
    )
    yield Case(
        "deadlocks/delays-do-not-help",
        "A deadlock is one under every delay.",
        _CYCLE,
        expect="deadlock",
        delays=(("g1", "before_start", 1), ("w2", "before_issue", 1)),
        check=_stuck("w1", "g1", "w2", "g2"),
    )
