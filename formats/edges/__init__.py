"""The edge contract as code: which op completes before which other op starts, and the reference order.

`resolve` reads the columns of a tape once and returns a `Contract`. Its nodes are *units*: a unit is one op,
or all members of one collective, and is named by the row of its last member (its issue index). An edge
``source -> target`` says that the source has ended before the target starts.

An op with children (rows that name it as their parent) starts before and ends after them: its predecessors
come before the children, the children before what follows it. An edge from an op to one of its own
descendants therefore counts from its start and adds nothing.

`Contract.order` gives the reference order: the topological order that always takes the lowest ready issue
index. What never becomes ready is stuck: a semaphore wait without its signal, a cycle, and all that depends
on them.
"""

from __future__ import annotations

from .columns import Ops, Queues, Table
from .contract import RULES, Contract
from .order import Order, Stuck
from .resolver import resolve
from .switched import Added, added_by_switches, weakened_by_switches

__all__ = [
    "RULES",
    "Added",
    "Contract",
    "Ops",
    "Order",
    "Queues",
    "Stuck",
    "Table",
    "added_by_switches",
    "resolve",
    "weakened_by_switches",
]
