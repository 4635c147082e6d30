"""Draws a pattern: ops in issue order, and the links between queues that make it right and that can break."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .pattern import Pattern

__all__ = ["WAYS", "Link", "Pair", "Script", "aim", "verdict_lines"]

WAYS = ("missing", "unrecorded", "early", "late", "foreign", "rerecorded", "elsewhere")
"""How a link breaks: no record and no wait; a wait whose event is never recorded; the record before the op;
the wait after the op that needs it; an event that the waiting backend does not understand; an event that
another queue records again before the wait; a wait on a queue that has nothing to do with it. `stale`, where
a link has an older sibling: a wait for the event of the round before."""

Pair = tuple[str, str, str, str]
"""Labels of two ops, the hazard, the buffer."""


@dataclass(frozen=True)
class Link:
    """The end of `first` comes before the start of `second`: a record behind one, a wait before the other.

    Attributes
    ----------
    first, second : str
        Labels.
    event : str
        The event.
    pairs : tuple of Pair
        What races without it.
    older : str
        Event of the link that did the same a round before; empty if there is none.
    """

    first: str
    second: str
    event: str
    pairs: tuple[Pair, ...]
    older: str = ""

    def ways(self) -> tuple[str, ...]:
        """Return how it can break."""
        return (*WAYS, "stale") if self.older else WAYS


@dataclass
class Script:
    """Ops and links; `patterns` gives the right tape and the broken ones.

    Attributes
    ----------
    name : str
        ``FAMILY/SHAPE``.
    queues : dict of str to str
        Device of each queue. One more queue, ``idle``, does nothing.
    header : list of str
        Header lines behind those of devices and queues.
    """

    name: str
    queues: dict[str, str]
    header: list[str] = field(default_factory=list)
    _rows: list[tuple[str, str, str]] = field(default_factory=list)
    _links: list[Link] = field(default_factory=list)

    def op(
        self, kind: str, queue: str, label: str, reads: str = "", writes: str = "", *, target: str = ""
    ) -> None:
        """Add an op behind all others."""
        self._rows.append((label, queue, f"{label} | {kind} | {queue} | {reads} | {writes} | {target}"))

    def link(
        self,
        first: str,
        second: str,
        hazard: str,
        buffer: str,
        *others: Pair,
        older: Link | None = None,
    ) -> Link | None:
        """Order two ops; nothing is added, and None returned, where their queue does that by itself."""
        queue = self._queue(first)
        if queue == self._queue(second):
            return None
        event = f"e{len(self._links)}"
        own: Pair = (first, second, hazard, buffer)
        self._links.append(Link(first, second, event, (own, *others), older.event if older else ""))
        return self._links[-1]

    @property
    def links(self) -> tuple[Link, ...]:
        """All links."""
        return tuple(self._links)

    def _queue(self, label: str) -> str:
        return next(q for n, q, _ in self._rows if n == label)

    def text(self, broken: Link | None = None, way: str = "") -> str:
        """Return the tape as litmus text, without verdict lines."""
        devices = dict.fromkeys(["gpu0", *self.queues.values()])
        lines = ["device host host", *(f"device {d} gpu" for d in devices), "host H host"]
        lines += [f"queue {q} {d}" for q, d in self.queues.items()] + ["queue idle gpu0", *self.header]
        for label, queue, row in self._rows:
            mine = [(k, way if k is broken else "") for k in self._links]
            ends = [(k, w) for k, w in mine if k.first == label]
            begins = [(k, w) for k, w in mine if k.second == label]
            for k, w in begins:
                lines += _waits(k, queue, w)
            lines += [_record(k, queue) for k, w in ends if w == "early"]
            lines.append(row)
            lines += [_record(k, queue) for k, w in ends if w not in ("missing", "unrecorded", "early")]
            lines += [_wait(k, queue) for k, w in begins if w == "late"]
        return "\n".join(lines) + "\n"

    def clean(self) -> Pattern:
        """Return the right tape."""
        return Pattern(f"{self.name}/clean", self.text() + "clean\n")

    def _pairs(self, link: Link, way: str) -> tuple[Pair, ...]:
        """Return the pairs that race when a link breaks in that way.

        A record that is early still covers what stood before the op; a wait that is late still holds back
        what comes next on its queue.
        """
        if way in ("early", "stale"):
            return tuple(p for p in link.pairs if p[0] == link.first)
        if way == "late":
            queue = self._queue(link.second)
            return tuple(p for p in link.pairs if p[1] == link.second or self._queue(p[1]) != queue)
        return link.pairs

    def broken(self, link: Link, way: str) -> Pattern:
        """Return the tape with one link broken."""
        pairs = self._pairs(link, way)
        lines = verdict_lines("race", pairs)
        name = f"{self.name}/{link.first}-{link.second}-{way}"
        return Pattern(name, self.text(link, way) + lines, *aim(pairs[0]))

    def patterns(self, *, every_way: bool, turn: int = 0) -> Iterator[Pattern]:
        """Yield the right tape and, for each link, broken ones: in every way, or in one of them in turn."""
        yield self.clean()
        for i, link in enumerate(self._links):
            ways = link.ways()
            for way in ways if every_way else [ways[(i + turn) % len(ways)]]:
                yield self.broken(link, way)


def _record(link: Link, queue: str, prefix: str = "r") -> str:
    return f"{prefix}-{link.event} | record | {queue} | | | {link.event}"


def _wait(link: Link, queue: str, event: str = "", state: str = "") -> str:
    more = f" | state={state}" if state else ""
    return f"w-{link.event} | wait | {queue} | | | {event or link.event}{more}"


def _waits(link: Link, queue: str, way: str) -> list[str]:
    """Return what stands before the op that a link leads to."""
    if way in ("missing", "late"):
        return []
    if way == "foreign":
        return [_wait(link, queue, state="foreign")]
    if way == "rerecorded":
        return [_record(link, "idle", "again"), _wait(link, queue)]
    if way == "elsewhere":
        return [_wait(link, "idle")]
    return [_wait(link, queue, link.older if way == "stale" else "")]


def aim(pair: Pair | None) -> tuple[str, str]:
    """Return what to hold up so that a pair shows (`Pattern.late`, `Pattern.then`)."""
    if pair is None:
        return "", ""
    first, second, hazard, _ = pair
    # a read is wrong if the write comes before it, but behind the write that it should have seen
    return first, second if hazard == "WAR" else ""


def verdict_lines(kind: str, pairs: tuple[Pair, ...] | list[Pair]) -> str:
    """Return a verdict line that claims exactly these pairs; ``clean`` for none."""
    if not pairs:
        return "clean\n"
    return f"{kind}: " + "; ".join(f"{a} x {b} {hazard} {what}" for a, b, hazard, what in pairs) + "\n"
