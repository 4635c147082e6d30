"""Who does what, and what waits for what: a program laid out for command queues and host threads.

A *node* is the start (``u``) or the end (``~u``) of unit u, the notation of the reference order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ....formats.edges import Contract, Order, resolve
from ...program import Program

__all__ = ["ISSUE", "JOIN", "LEAVE", "NOBODY", "RUN", "Graph", "Item", "lay_out"]

NOBODY = -1
"""The host thread of ops whose issuer was not seen: each is issued at its own time."""

ISSUE, RUN, JOIN, LEAVE = range(4)
"""What a thread does with an item: hand a row to its queue; run its own unit; wait for a collective that
another queue runs; end a unit of its own that has parts."""


@dataclass(frozen=True, slots=True)
class Item:
    """A step of a host thread: what, and the row (for `LEAVE`: the unit)."""

    what: int
    row: int


@dataclass
class Graph:
    """A program laid out.

    Attributes
    ----------
    contract, order : Contract, Order
        Edges and reference order.
    home : dict
        Queue that runs a unit: that of its last member. Units that never start are left out.
    after : dict
        By node: nodes that it waits for and that no queue orders before it.
    any_of : dict
        By node: nodes of which one is enough.
    sequence : dict
        By command queue that is in order: nodes in the order of submission, whoever issues them.
    programs : dict
        By host thread (`NOBODY` among them): its items.
    wanted : dict
        By unit: how many of its rows are issued before it can start.
    """

    contract: Contract
    order: Order
    home: dict[int, int] = field(default_factory=dict)
    after: dict[int, tuple[int, ...]] = field(default_factory=dict)
    any_of: dict[int, tuple[int, ...]] = field(default_factory=dict)
    sequence: dict[int, list[int]] = field(default_factory=dict)
    programs: dict[int, list[Item]] = field(default_factory=dict)
    wanted: dict[int, int] = field(default_factory=dict)

    def is_host(self, unit: int) -> bool:
        """Whether a host thread runs it."""
        return self.contract.queues.host[self.home[unit]]

    def has_parts(self, unit: int) -> bool:
        """Whether it ends only when others have ended."""
        return unit in self.contract.children

    def nodes(self) -> list[int]:
        """Return the reference order with the ends of all units, also those that end as they start."""
        full = []
        for node in self.order.schedule:
            full.append(node)
            if node >= 0 and not self.has_parts(node):
                full.append(~node)
        return full


def lay_out(program: Program) -> Graph:
    """Lay a program out."""
    contract = resolve(program.tape)
    graph = Graph(contract, contract.order())
    queue = contract.ops.queue
    for node in graph.order.schedule:
        if node >= 0:
            graph.home[node] = queue[node]
    _waits(graph)
    _sequences(graph)
    _programs(graph, program.gap_ns)
    return graph


def _ordered_by_queue(graph: Graph, source: int, target: int) -> bool:
    """Whether both are commands of one queue that is in order."""
    home, queues = graph.home, graph.contract.queues
    at = home[target]
    return home.get(source) == at and queues.in_order[at] and not queues.host[at]


def _waits(graph: Graph) -> None:
    contract = graph.contract
    first, sources = contract.by_target()
    place = {node: at for at, node in enumerate(graph.order.schedule)}
    for unit in graph.home:
        before = {~s for s in sources[first[unit] : first[unit + 1]] if not _ordered_by_queue(graph, s, unit)}
        before |= {p for p in contract.parents.get(unit, ()) if not _ordered_by_queue(graph, p, unit)}
        if before:
            graph.after[unit] = tuple(sorted(before))
        parts = contract.children.get(unit, ())
        below = tuple(sorted(~c for c in parts if not _ordered_by_queue(graph, c, unit)))
        if below:
            graph.after[~unit] = below
        records = contract.any_of.get(unit)
        if records:
            # Those that come before it in the reference order: there is at least one.
            graph.any_of[unit] = tuple(~r for r in records if place.get(r, place[unit]) < place[unit])


def _sequences(graph: Graph) -> None:
    queues = graph.contract.queues
    for node in graph.order.schedule:
        at = graph.home[node if node >= 0 else ~node]
        if queues.in_order[at] and not queues.host[at]:
            graph.sequence.setdefault(at, []).append(node)


def _programs(graph: Graph, gap_ns: npt.NDArray[np.int64]) -> None:
    contract = graph.contract
    ops, host = contract.ops, contract.queues.host
    rows: defaultdict[int, list[Item]] = defaultdict(list)
    for row in range(ops.rows):
        unit = contract.unit[row]
        if unit not in graph.home:
            continue
        own, issuer = ops.queue[row], ops.issuer[row]
        graph.wanted[unit] = graph.wanted.get(unit, 0) + 1
        if not host[own]:
            rows[issuer if issuer >= 0 else NOBODY].append(Item(ISSUE, row))
            continue
        if issuer >= 0 and issuer != own:
            rows[issuer].append(Item(ISSUE, row))
        rows[own].append(Item(RUN if row == unit else JOIN, row))
    ended = {~n for n in graph.order.schedule if n < 0}
    for thread, items in rows.items():
        graph.programs[thread] = (
            _with_ends(graph, _issued_first(contract, thread, items), ended) if thread != NOBODY else items
        )
    unseen = graph.programs.get(NOBODY)
    if unseen:
        # Without a thread the gap counts from the start.
        unseen.sort(key=lambda item: (int(gap_ns[item.row]), item.row))


def _issued_first(contract: Contract, thread: int, items: Sequence[Item]) -> list[Item]:
    """Let a thread issue all its rows of a collective before it waits for that: nobody else issues them.

    Rows of one collective are one unit to the order, which therefore sees no circle in it.
    """
    if all(item.what != JOIN for item in items):
        return list(items)
    unit, issuer = contract.unit, contract.ops.issuer
    own = {unit[item.row] for item in items if item.what == RUN}
    left: defaultdict[int, list[Item]] = defaultdict(list)
    for item in items:
        if item.what == ISSUE or (item.what == JOIN and issuer[item.row] in (NOBODY, thread)):
            left[unit[item.row]].append(item)
    done: list[Item] = []
    met: set[int] = set()
    for item in items:
        at = unit[item.row]
        if item.what == RUN:
            done.append(item)
            continue
        if at in met:
            continue
        mine = item in left[at]
        if mine:
            left[at].remove(item)
        if item.what == ISSUE:
            done.append(item)
        elif at not in own:
            met.add(at)
            done += [Item(ISSUE, other.row) for other in left[at]]
            done.append(item)
        elif mine:  # it waits where it runs the unit
            done.append(Item(ISSUE, item.row))
    return done


def _with_ends(graph: Graph, items: Sequence[Item], ended: set[int]) -> list[Item]:
    """Put the end of each unit with parts before the thread's next own work that is no part of it."""
    contract = graph.contract
    done: list[Item] = []
    open_units: list[int] = []
    for item in items:
        if item.what != ISSUE:
            unit = contract.unit[item.row]
            for parent in reversed(open_units.copy()):
                if not contract.is_ancestor(parent, unit):
                    done.append(Item(LEAVE, parent))
                    open_units.remove(parent)
        done.append(item)
        if item.what == RUN and graph.has_parts(item.row) and item.row in ended:
            open_units.append(item.row)
    done += [Item(LEAVE, parent) for parent in reversed(open_units)]
    return done
