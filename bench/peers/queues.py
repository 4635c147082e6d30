"""A tape as the plain arrays that the peers of the virtual backend simulate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tapedelay.replayer.program import Program

__all__ = ["Queues", "queues_of"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Queues:
    """Per op: its queue, who issues it, the gap before, how long it takes, what it waits for.

    The ops that op `i` waits for are ``source[first[i]:first[i + 1]]``; none of them is the op before it on
    its own queue.
    """

    queue: Ints
    issuer: Ints
    gap_ns: Ints
    duration_ns: Ints
    first: Ints
    source: Ints

    def write(self, path: Path) -> None:
        """Write all as 64-bit integers: rows, edges, then the arrays."""
        with path.open("wb") as f:
            np.array([len(self.queue), len(self.source)], np.int64).tofile(f)
            for column in (self.queue, self.issuer, self.gap_ns, self.duration_ns, self.first, self.source):
                column.astype(np.int64).tofile(f)


def queues_of(program: Program) -> Queues:
    """Return a program whose ops are neither joined nor parts of others."""
    source, target, _ = program.core.edges()
    queue, issuer = np.asarray(program.queue, np.int64), np.asarray(program.issuer, np.int64)
    # the order of a queue, and of what a thread issues, the peers keep by themselves
    cross = (queue[source] != queue[target]) & (queue[source] != issuer[target])
    source, target = source[cross].astype(np.int64), target[cross]
    order = np.argsort(target, kind="stable")
    first = np.zeros(len(queue) + 1, np.int64)
    np.cumsum(np.bincount(target, minlength=len(queue)), out=first[1:])
    return Queues(
        queue, issuer, np.asarray(program.gap_ns), np.asarray(program.duration_ns), first, source[order]
    )
