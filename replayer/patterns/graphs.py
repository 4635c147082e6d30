"""Small graphs over queues: Y, X, diamond, fan."""

from __future__ import annotations

from collections.abc import Iterator

from .pattern import Pattern
from .script import Script

__all__ = ["diamond", "fan", "graph_patterns", "join", "y_graph"]


def _queues(n: int) -> dict[str, str]:
    return {f"q{i}": f"gpu{i % 2}" for i in range(n)}


def y_graph(legs: int = 2) -> Script:
    """Return a graph in which one op reads what several queues made."""
    s = Script(f"graphs/y{legs}", _queues(legs + 1))
    for i in range(legs):
        s.op("kernel", f"q{i}", f"leg{i}", "", f"A{i}")
    s.op("kernel", f"q{legs}", "foot", ", ".join(f"A{i}" for i in range(legs)), "Y")
    for i in range(legs):
        s.link(f"leg{i}", "foot", "RAW", f"A{i}")
    return s


def join(width: int = 2) -> Script:
    """Return a graph in which each of several queues reads what each of several others made (X for two)."""
    s = Script(f"graphs/x{width}", _queues(2 * width))
    for i in range(width):
        s.op("kernel", f"q{i}", f"top{i}", "", f"A{i}")
    for j in range(width):
        s.op("kernel", f"q{width + j}", f"low{j}", ", ".join(f"A{i}" for i in range(width)), f"B{j}")
        for i in range(width):
            s.link(f"top{i}", f"low{j}", "RAW", f"A{i}")
    return s


def diamond(rounds: int = 1) -> Script:
    """Return forks into two queues with a join, one behind the other; each takes the result of the last."""
    s = Script(f"graphs/diamond{rounds}", _queues(3))
    before = ""
    for r in range(rounds):
        s.op("kernel", "q0", f"fork{r}", before, f"A{r}")
        s.op("kernel", "q1", f"left{r}", f"A{r}", f"B{r}")
        s.op("kernel", "q2", f"right{r}", f"A{r}", f"C{r}")
        s.op("kernel", "q0", f"join{r}", f"B{r}, C{r}", f"D{r}")
        s.link(f"fork{r}", f"left{r}", "RAW", f"A{r}")
        s.link(f"fork{r}", f"right{r}", "RAW", f"A{r}")
        s.link(f"left{r}", f"join{r}", "RAW", f"B{r}")
        s.link(f"right{r}", f"join{r}", "RAW", f"C{r}")
        before = f"D{r}"
    return s


def fan(width: int) -> Script:
    """Return one op that feeds several queues, whose results the host reads."""
    s = Script(f"graphs/fan{width}", _queues(width + 1))
    s.op("kernel", "q0", "source", "", "A")
    for i in range(1, width + 1):
        s.op("kernel", f"q{i}", f"work{i}", "A", f"B[{64 * i}:{64 * i + 64}]")
        s.link("source", f"work{i}", "RAW", "A")
    s.op("host", "H", "sink", f"B[64:{64 * width + 64}]", "Z")
    for i in range(1, width + 1):
        s.link(f"work{i}", "sink", "RAW", "B")
    return s


def graph_patterns(*, full: bool = False) -> Iterator[Pattern]:
    """Yield the patterns of graphs."""
    shapes = [y_graph(), y_graph(3), join(), diamond(), diamond(2), fan(2), fan(4), fan(7)]
    shapes += [join(3), join(4), diamond(5), fan(16)] if full else []
    for turn, s in enumerate(shapes):
        yield from s.patterns(every_way=full or turn < 4, turn=turn)
