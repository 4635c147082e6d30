"""Double buffering and n-fold pipelining: input, compute and output on queues of their own, over n slots."""

from __future__ import annotations

from collections.abc import Iterator

from .pattern import Pattern
from .script import Link, Script

__all__ = ["pipeline", "pipeline_patterns"]


def pipeline(slots: int, rounds: int) -> Script:
    """Return a pipeline: the host fills a slot, which is copied in, computed, copied out and read at the end.

    Every stage waits for the stage before it and, where it writes a slot again, for the stage behind it in
    the round that used the slot last.

    Parameters
    ----------
    slots : int
        Slots of each buffer between two stages: 1 is no overlap, 2 double buffering.
    rounds : int
        Rounds that go through it.
    """
    s = Script(f"pipelines/{slots}-slots-{rounds}-rounds", {"in": "gpu0", "run": "gpu0", "out": "gpu0"})
    older: dict[str, Link] = {}

    def link(kind: str, first: str, second: str, hazard: str, buffer: str) -> None:
        made = s.link(first, second, hazard, buffer, older=older.get(kind))
        if made is not None:
            older[kind] = made

    for r in range(rounds):
        at = f"[{64 * (r % slots)}:{64 * (r % slots) + 64}]"
        s.op("host", "H", f"fill{r}", "", f"IN{at}")
        s.op("copy", "in", f"load{r}", f"IN{at}", f"D{at}")
        s.op("kernel", "run", f"run{r}", f"D{at}", f"O{at}")
        s.op("copy", "out", f"save{r}", f"O{at}", f"R[{64 * r}:{64 * r + 64}]")
        link("load", f"load{r}", f"run{r}", "RAW", "D")
        link("run", f"run{r}", f"save{r}", "RAW", "O")
        last = r - slots
        if last >= 0:
            link("fill", f"load{last}", f"fill{r}", "WAR", "IN")
            link("reload", f"run{last}", f"load{r}", "WAR", "D")
            link("rerun", f"save{last}", f"run{r}", "WAR", "O")
    s.op("host", "H", "read", f"R[0:{64 * rounds}]", "Z")
    s.link(f"save{rounds - 1}", "read", "RAW", "R")
    return s


def pipeline_patterns(*, full: bool = False) -> Iterator[Pattern]:
    """Yield the patterns of pipelines."""
    shapes = [(1, 3), (2, 4), (3, 5)] + ([(4, 9), (8, 18)] if full else [])
    for turn, (slots, rounds) in enumerate(shapes):
        yield from pipeline(slots, rounds).patterns(every_way=full and slots < 4, turn=turn)
