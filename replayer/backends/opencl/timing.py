"""How long things take in a run: recorded times scaled, delays as they are, none of both in a pinned run."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from ....formats.delays.resolved import AFTER_END, BEFORE_ISSUE, BEFORE_START, Delays
from ....formats.errors import UsageError
from ...program import Program
from .graph import Graph

__all__ = ["Timing"]


class Timing:
    """Times of one run, by row and unit.

    Parameters
    ----------
    pin : numpy.ndarray or None
        Order of all nodes. A pinned run takes no time on purpose: the order is all that counts.
    """

    def __init__(
        self,
        program: Program,
        graph: Graph,
        delays: Delays,
        scale: float,
        pin: npt.NDArray[np.int32] | None,
    ) -> None:
        self._issue: defaultdict[int, int] = defaultdict(int)
        self._start: defaultdict[int, int] = defaultdict(int)
        self._end: defaultdict[int, int] = defaultdict(int)
        self._before: dict[int, int] = {}
        self.place: dict[int, int] = {}
        self.pinned = pin is not None
        self.longest_ns = 0
        rows, unit = len(program.op_ids), graph.contract.unit
        if pin is not None:
            self._pin([int(n) for n in pin], graph)
            self._gap = self._duration = [0] * rows
            return
        self._gap = [int(g * scale) for g in program.gap_ns]
        self._duration = [int(d * scale) for d in program.duration_ns]
        for members in graph.contract.members.values():
            self._duration[members[-1]] = max(self._duration[m] for m in members)
        entries = zip(delays.row.tolist(), delays.place.tolist(), delays.ns.tolist(), strict=True)
        for row, place, ns in entries:
            if place == BEFORE_ISSUE:
                self._issue[row] += ns
            else:
                kept = self._start if place == BEFORE_START else self._end
                assert place in (BEFORE_START, AFTER_END)
                kept[unit[row]] = max(kept[unit[row]], ns)
        longest = [*self._issue.values(), *self._start.values(), *self._end.values()]
        self.longest_ns = max([*longest, *self._gap, *self._duration], default=0)

    def _pin(self, nodes: list[int], graph: Graph) -> None:
        wanted = set(graph.nodes())
        kept = [n for n in nodes if n in wanted]
        if len(kept) != len(wanted) or len(set(kept)) != len(wanted):
            raise UsageError(
                "the interleaving is of another program",
                expected="every unit once as start and once as end",
                next_step="take it from `Program.interleaving` of the program that is loaded",
            )
        self._before = dict(zip(kept[1:], kept, strict=False))
        self.place = {node: at for at, node in enumerate(kept)}

    def pinned_after(self, node: int) -> tuple[int, ...]:
        """Return the node that a pinned run wants before this one."""
        before = self._before.get(node)
        return () if before is None else (before,)

    def gap(self, row: int) -> int:
        """Return the time that a thread lets pass before an item, ns."""
        return self._gap[row]

    def duration(self, unit: int) -> int:
        """Return how long a unit takes, ns."""
        return self._duration[unit]

    def before_issue(self, row: int) -> int:
        """Return the delay on the issuing thread, ns."""
        return self._issue.get(row, 0)

    def before_start(self, unit: int) -> int:
        """Return the delay on the queue before a unit, ns."""
        return self._start.get(unit, 0)

    def after_end(self, unit: int) -> int:
        """Return the delay between a unit's end and what waits for it, ns."""
        return self._end.get(unit, 0)
