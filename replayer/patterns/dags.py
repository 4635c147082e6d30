"""Random graphs from a seed, over several queues, with links that are needed and links that are not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from .pattern import Pattern
from .script import Pair, aim, verdict_lines

__all__ = ["MEANS", "Dag", "Node", "dag_patterns", "random_dag"]

MEANS = ("event", "semaphore", "edge")
"""How the links are written: a record and a wait, a signal and a wait, or a row of `edges`."""


@dataclass(frozen=True)
class Node:
    """One op: its queue, the buffers that it reads, the buffer that it writes."""

    queue: int
    reads: tuple[int, ...]
    writes: int


@dataclass(frozen=True)
class Dag:
    """Ops in issue order and links between queues that leave no two conflicting ops unordered.

    Attributes
    ----------
    seed, queues : int
        Where it is from; how many queues there are.
    nodes : tuple of Node
        The ops.
    links : tuple of (int, int)
        The first comes before the second; both on different queues.
    """

    seed: int
    queues: int
    nodes: tuple[Node, ...]
    links: tuple[tuple[int, int], ...]

    def before(self, without: tuple[int, int] | None = None) -> list[int]:
        """Return for each op a mask of the ops that come before it, by its queue and by the links."""
        masks: list[int] = []
        last: dict[int, int] = {}
        for v, node in enumerate(self.nodes):
            direct = [u for u, w in self.links if w == v and (u, w) != without]
            direct += [last[node.queue]] if node.queue in last else []
            mask = 0
            for u in direct:
                mask |= masks[u] | 1 << u
            masks.append(mask)
            last[node.queue] = v
        return masks

    def broken(self, without: tuple[int, int]) -> list[Pair]:
        """Return the pairs that race without a link, as a checker reports them: none if it was not needed.

        Of several earlier ops of one queue that touch a buffer in the same way, the latest counts.
        """
        masks = self.before(without)
        pairs: list[Pair] = []
        for v, later in enumerate(self.nodes):
            for buffer, mode in _accesses(later):
                seen: set[tuple[int, str]] = set()
                for u in range(v - 1, -1, -1):
                    if masks[v] >> u & 1:
                        continue
                    for other, earlier in _accesses(self.nodes[u]):
                        key = (self.nodes[u].queue, earlier)
                        if other == buffer and "W" in (mode, earlier) and key not in seen:
                            seen.add(key)
                            hazard = {"RW": "WAR", "WR": "RAW", "WW": "WAW"}[earlier + mode]
                            pairs.append((f"n{u}", f"n{v}", hazard, f"B{buffer}"))
        return pairs

    def pattern(self, means: str = "event", without: tuple[int, int] | None = None) -> Pattern:
        """Return the tape, whole or without one link."""
        lines = ["device host host", "device gpu0 gpu", "device gpu1 gpu", "host H host"]
        lines += [f"queue q{q} gpu{q % 2}" for q in range(self.queues)]
        edges: list[str] = []
        links = [(i, u, v) for i, (u, v) in enumerate(self.links) if (u, v) != without]
        for n, node in enumerate(self.nodes):
            queue = f"q{node.queue}"
            if means != "edge":
                word = "wait" if means == "event" else "semwait"
                lines += [f"w{i} | {word} | {queue} | | | s{i}" for i, _, v in links if v == n]
            reads = ", ".join(f"B{b}[0:64]" for b in node.reads)
            lines.append(f"n{n} | kernel | {queue} | {reads} | B{node.writes}[0:64]")
            if means != "edge":
                word = "record" if means == "event" else "semsig"
                lines += [f"r{i} | {word} | {queue} | | | s{i}" for i, u, _ in links if u == n]
        if means == "edge":
            edges = [f"edge n{u} -> n{v} data" for _, u, v in links]
        pairs = self.broken(without) if without else []
        # a write that is overwritten shows only to those who read it; a read shows by itself
        aimed = sorted(pairs, key=lambda p: p[2] == "WAW")
        variant = f"without-{without[0]}-{without[1]}" if without else "whole"
        return Pattern(
            f"dags/{self.seed}-{len(self.nodes)}-over{self.queues}-{means}/{variant}",
            "\n".join(lines + edges) + "\n" + verdict_lines("race", pairs),
            *aim(aimed[0] if aimed else None),
        )


def _accesses(node: Node) -> list[tuple[int, str]]:
    return [(b, "R") for b in node.reads] + [(node.writes, "W")]


def random_dag(seed: int, *, ops: int = 10, queues: int = 3, slots: int | None = None) -> Dag:
    """Return a random graph.

    Parameters
    ----------
    seed : int
        Equal seeds give equal graphs.
    ops, queues : int
        Ops and queues; 2 to 8 queues are usual.
    slots : int or None
        Buffers that the ops write again and again; None: every op has a buffer of its own.

    Notes
    -----
    Conflicting ops on different queues get a link, unless others order them already; then half of them do
    nevertheless. Some links join ops that share nothing. So some links are needed and others are not.
    No version is overwritten before something reads it, so that every fault can show.
    """
    rng = random.Random(f"{seed}/{ops}/{queues}/{slots}")
    nodes: list[Node] = []
    links: list[tuple[int, int]] = []
    masks: list[int] = []
    last: dict[int, int] = {}
    written: dict[int, int] = {}
    unread: set[int] = set()
    for v in range(ops):
        queue = rng.randrange(queues)
        target = v if slots is None else rng.randrange(slots)
        reads = set(rng.sample(sorted(written), min(len(written), rng.choice((0, 1, 1, 2, 2, 3)))))
        if target in unread:
            reads.add(target)
        node = Node(queue, tuple(sorted(reads)), target)
        mask = masks[last[queue]] | 1 << last[queue] if queue in last else 0
        for u in range(v - 1, -1, -1):
            if nodes[u].queue == queue:
                continue
            needed = any(a == b and "W" in (x, y) for a, x in _accesses(nodes[u]) for b, y in _accesses(node))
            known = bool(mask >> u & 1)
            if (needed and (not known or rng.random() < 0.5)) or rng.random() < 0.05:
                links.append((u, v))
                mask |= masks[u] | 1 << u
        nodes.append(node)
        masks.append(mask)
        last[queue] = v
        unread -= reads
        unread.add(target)
        written[target] = v
    return Dag(seed, queues, tuple(nodes), tuple(links))


def dag_patterns(*, full: bool = False) -> Iterator[Pattern]:
    """Yield random graphs, each whole and with every one (or some) of its links removed."""
    for seed in range(64 if full else 12):
        dag = random_dag(seed, ops=8 + seed % 7, queues=2 + seed % 7, slots=None if seed % 3 else 4)
        means = MEANS[seed % len(MEANS)]
        yield dag.pattern(means)
        for i, link in enumerate(dag.links):
            if full or i % 3 == seed % 3:
                yield dag.pattern(means, link)
