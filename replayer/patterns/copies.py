"""Copies between host and devices, of what the user gave and of what was computed, for every pair of queues.

Each shape has two rounds over the same memory, so that it holds both kinds of link: the copy waits for its
source, and what writes the source or the destination again waits for the copy.
"""

from __future__ import annotations

from collections.abc import Iterator

from .pattern import Pattern
from .script import Script

__all__ = ["copies", "copy_patterns"]


def host_to_device(s: Script, a: str, b: str, computed: bool) -> None:
    """Copy S of the host on `a` to D, which `b` reads; S comes from the user, or from what `b` computed."""
    if computed:
        s.op("kernel", b, "make", "", "P")
        s.op("copy", b, "fetch", "P", "Q")
        s.op("host", "H", "fill1", "Q", "S")
        s.link("fetch", "fill1", "RAW", "Q")
    else:
        s.op("host", "H", "fill1", "", "S")
    s.op("copy", a, "copy1", "S", "D")
    s.op("kernel", b, "use1", "D", "Y1")
    s.op("host", "H", "fill2", "", "S")
    s.op("copy", a, "copy2", "S", "D")
    s.op("kernel", b, "use2", "D", "Y2")
    s.link("copy1", "use1", "RAW", "D")
    s.link("copy1", "fill2", "WAR", "S")
    s.link("use1", "copy2", "WAR", "D")
    s.link("copy2", "use2", "RAW", "D")


def device_to_host(s: Script, a: str, b: str, computed: bool) -> None:
    """Copy S, which `a` writes twice, on `b` to memory that the host reads."""
    _source(s, a, b, computed, "D")
    s.op("host", "H", "read", "D", "Z")
    s.link("copy1", "read", "RAW", "D")


def device_to_device(s: Script, a: str, b: str, computed: bool) -> None:
    """Copy S, which `a` writes twice, on `b` to memory that `b` reads."""
    _source(s, a, b, computed, "D")
    s.op("kernel", b, "use", "D", "Y")


def _source(s: Script, a: str, b: str, computed: bool, to: str) -> None:
    if not computed:
        s.op("host", "H", "fill1", "", "IN")
        s.op("copy", a, "make1", "IN", "S")
    else:
        s.op("kernel", a, "make1", "X", "S")
    s.op("copy", b, "copy1", "S", to)
    if not computed:
        s.op("host", "H", "fill2", "", "IN")
        s.op("copy", a, "make2", "IN", "S")
        s.link("make1", "fill2", "WAR", "IN")
    else:
        s.op("kernel", a, "make2", "X", "S")
    s.link("make1", "copy1", "RAW", "S")
    s.link("copy1", "make2", "WAR", "S")


_SHAPES = {"h2d": host_to_device, "d2h": device_to_host, "d2d": device_to_device}


def copies(devices: int, queues: int) -> Iterator[Script]:
    """Yield a script for each direction, kind of content and pair of queues (a queue with itself too)."""
    names = {f"d{d}q{q}": f"gpu{d}" for d in range(devices) for q in range(queues)}
    for direction, draw in _SHAPES.items():
        for content in ("input", "computed"):
            for a in names:
                for b in names:
                    s = Script(f"copies/{direction}-{content}-{a}-{b}", {q: names[q] for q in {a: 0, b: 0}})
                    draw(s, a, b, content == "computed")
                    yield s


def copy_patterns(*, full: bool = False) -> Iterator[Pattern]:
    """Yield the patterns of copies; in the selection, one broken link for each shape and pair of queues."""
    for turn, s in enumerate(copies(2, 2)):
        if full:
            yield from s.patterns(every_way=True)
            continue
        yield s.clean()
        if s.links:
            link = s.links[turn % len(s.links)]
            yield s.broken(link, link.ways()[turn % len(link.ways())])
