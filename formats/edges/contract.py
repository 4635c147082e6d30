"""The resolved edges of a tape, as data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..profiles import Profile
from .columns import Ops, Queues
from .order import Order, Ordering

__all__ = [
    "ALLOC",
    "BLOCKING",
    "DEFAULT",
    "EDGE",
    "EVENT",
    "FREE",
    "ISSUE",
    "PROGRAM",
    "RULES",
    "SEMAPHORE",
    "SWITCH",
    "SYNC",
    "Contract",
]

RULES = (
    "program",            # program order of a host thread, FIFO order of an in-order queue
    "issue",              # what a thread did before it issued an op
    "event",              # record -> wait
    "sync",               # queue, device or everything -> host thread
    "semaphore",          # signal -> wait
    "edge",               # a row of `edges`
    "blocking_copy",      # declared: the issuer waits for its copy
    "free_synchronises",  # declared: a free waits for the device
    "alloc_synchronises", # declared: an alloc waits for the device
    "default_queue",      # declared: the legacy default queue
    "switch",             # what a debugging switch adds
)  # fmt: skip
"""Why there is an edge; `Contract.rule` holds indices into this."""

(PROGRAM, ISSUE, EVENT, SYNC, SEMAPHORE, EDGE, BLOCKING, FREE, ALLOC, DEFAULT, SWITCH) = range(len(RULES))


@dataclass
class Contract:
    """The resolved edges of a tape.

    Attributes
    ----------
    ops, queues : Ops, Queues
        The columns.
    unit : list of int
        Unit of each row.
    members : dict
        Rows of the units that have more than one.
    parents, children : dict
        Parent units of a unit and the reverse; units without any are left out.
    above : dict
        All that a unit is part of, directly or not; units without parents are left out.
    source, target, rule : numpy.ndarray
        Edges between units, in no particular order; `rule` indexes `RULES`.
    any_of : dict
        For a wait for any of several events: the record units, all of them needed to bound what is ordered.
    unresolved : frozenset of int
        Rows that wait for something that was not seen.
    never : tuple of int
        Rows that wait for a signal that no row gives.
    profiles : list of Profile
        Profile of each device.
    """

    name: str
    ops: Ops
    queues: Queues
    unit: list[int]
    members: dict[int, list[int]]
    parents: dict[int, tuple[int, ...]]
    children: dict[int, list[int]]
    above: dict[int, frozenset[int]]
    profiles: list[Profile]
    source: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    target: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    rule: npt.NDArray[np.int8] = field(default_factory=lambda: np.empty(0, np.int8))
    any_of: dict[int, tuple[int, ...]] = field(default_factory=dict)
    unresolved: frozenset[int] = frozenset()
    never: tuple[int, ...] = ()

    def rows_of(self, unit: int) -> Sequence[int]:
        """Return the rows of a unit, in row order."""
        return self.members.get(unit) or (unit,)

    def units(self) -> Iterator[int]:
        """Yield every unit by issue index."""
        return (r for r, u in enumerate(self.unit) if r == u)

    def is_ancestor(self, ancestor: int, unit: int) -> bool:
        """Whether `unit` is part of `ancestor`, directly or not."""
        return ancestor in self.above.get(unit, ())

    def by_target(self) -> tuple[list[int], list[int]]:
        """Return (first, sources): the sources of unit u are ``sources[first[u]:first[u+1]]``."""
        return _grouped(self.target, self.source, self.ops.rows)

    def by_source(self) -> tuple[list[int], list[int]]:
        """Return (first, targets): the targets of unit u are ``targets[first[u]:first[u+1]]``."""
        return _grouped(self.source, self.target, self.ops.rows)

    def order(self) -> Order:
        """Return the reference order and what is stuck."""
        return Ordering(self).run()


def _grouped(
    key: npt.NDArray[np.int32], value: npt.NDArray[np.int32], rows: int
) -> tuple[list[int], list[int]]:
    by = np.argsort(key, kind="stable")
    counts = np.bincount(key, minlength=rows) if len(key) else np.zeros(rows, np.int64)
    first = np.concatenate(([0], np.cumsum(counts)))
    return first.tolist(), value[by].tolist()
