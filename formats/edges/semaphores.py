"""Which signal each semaphore wait comes after."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

from ..plain import NULL
from .columns import Ops

__all__ = ["Signals", "pair_semaphores"]


@dataclass
class Signals:
    """What the semaphore waits wait for.

    Attributes
    ----------
    pairs : list of tuple of int
        (row of the signal, row of the wait).
    unresolved : list of int
        Waits whose signal was not seen.
    never : list of int
        Waits for a signal that no row gives.
    """

    pairs: list[tuple[int, int]] = field(default_factory=list)
    unresolved: list[int] = field(default_factory=list)
    never: list[int] = field(default_factory=list)


def pair_semaphores(ops: Ops) -> Signals:
    """Return the signal of every semaphore wait, whatever the row order."""
    found = Signals()
    binary: dict[int, list[int]] = {}
    timeline: dict[int, tuple[list[int], list[int]]] = {}
    for row, kind in enumerate(ops.kind):
        if kind != "semsig":
            continue
        value = ops.value[row]
        if value is None:
            binary.setdefault(ops.sync[row], []).append(row)
        else:
            tops, rows = timeline.setdefault(ops.sync[row], ([], []))
            if not tops or value > tops[-1]:  # a signal that does not raise the maximum is first for nobody
                tops.append(value)
                rows.append(row)
    turn: dict[int, int] = {}
    for row, kind in enumerate(ops.kind):
        if kind != "semwait":
            continue
        sync, value = ops.sync[row], ops.value[row]
        signal = NULL
        if value is None:
            k = turn.get(sync, 0)
            turn[sync] = k + 1
            signals = binary.get(sync, ())
            if k < len(signals):
                signal = signals[k]
        elif sync in timeline:
            tops, rows = timeline[sync]
            at = bisect_left(tops, value)
            if at < len(rows):
                signal = rows[at]
        if ops.sync_of[row] != NULL:
            signal = ops.sync_of[row]
        elif ops.wait_state[row] == "unresolved":
            found.unresolved.append(row)
            continue
        if signal == NULL:
            found.never.append(row)
        else:
            found.pairs.append((signal, row))
    return found
