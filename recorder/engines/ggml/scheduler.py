"""What the tap says of schedulers: what each was made with, and the graphs that it received."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .layout import GRAPH_NODE, NO_BUFFER, USAGES, SchedFlag
from .payload import INT64_MAX, Payload, all_known, damaged, known

__all__ = ["GraphDef", "Named", "SchedDef", "read_graph", "read_sched"]

_BACKENDS_MAX = 256
_SOURCE_NONE = -2


@dataclass(frozen=True)
class SchedDef:
    """A scheduler.

    Attributes
    ----------
    parallel, op_offload : bool or None
        As it was asked for; None where it was made before anybody looked.
    copies : int
        Copies of split inputs.
    queues, devices : tuple of int
        Of its backends, in its order; `NONE` where not known.
    buffer_types : tuple of str
        Of its backends.
    """

    parallel: bool | None
    op_offload: bool | None
    copies: int
    queues: tuple[int, ...]
    devices: tuple[int, ...]
    buffer_types: tuple[str, ...]


@dataclass(frozen=True)
class GraphDef:
    """A graph as a scheduler received it: nodes, then leafs, as rows of `GRAPH_NODE`."""

    sched: int
    n_nodes: int
    n_leafs: int
    rows: npt.NDArray[Any]


class Named(Protocol):
    """What is defined so far."""

    names: list[str]
    queues: list[Any]
    devices: list[Any]
    scheds: list[SchedDef]
    graphs: list[GraphDef]


def read_sched(p: Payload, s: Named) -> None:
    """Read a ``D_SCHED`` frame."""
    p.next_id(len(s.scheds), "scheduler")
    flags, copies, n = p.u32(), p.u32(), p.u32()
    if n > _BACKENDS_MAX or copies > INT64_MAX >> 32:
        raise damaged(f"{n} backends, {copies} copies", f"at most {_BACKENDS_MAX} backends", p.where)
    queues, devices, types = [], [], []
    for _ in range(n):
        queue, device = p.u32(), p.u32()
        known(queue, len(s.queues), "queue", p.where, optional=True)
        known(device, len(s.devices), "device", p.where, optional=True)
        queues.append(queue)
        devices.append(device)
        types.append(p.text())
    late = bool(flags & SchedFlag.LATE)
    s.scheds.append(
        SchedDef(
            None if late else bool(flags & SchedFlag.PARALLEL),
            None if late else bool(flags & SchedFlag.OFFLOADS),
            copies,
            tuple(queues),
            tuple(devices),
            tuple(types),
        )
    )


def read_graph(p: Payload, s: Named) -> None:
    """Read a ``D_GRAPH`` frame."""
    p.next_id(len(s.graphs), "graph")
    sched, n_nodes, n_leafs = p.u32(), p.u32(), p.u32()
    known(sched, len(s.scheds), "scheduler", p.where)
    n = n_nodes + n_leafs
    rows = p.rows(n, GRAPH_NODE)
    if n:
        _check(rows, n, s, p.where)
    s.graphs.append(GraphDef(sched, n_nodes, n_leafs, rows))


def _check(rows: npt.NDArray[Any], n: int, s: Named, where: str) -> None:
    all_known(rows["name"], len(s.names), "name", where, optional=True)
    all_known(rows["op"], len(s.names), "name", where, optional=True)
    all_known(rows["type"], len(s.names), "name", where, optional=True)
    all_known(rows["buffer_device"], len(s.devices), "device", where, optional=True)
    all_known(rows["user_device"], len(s.devices), "device", where, optional=True)
    for column in ("sources", "view_source"):
        if int(rows[column].min()) < _SOURCE_NONE or int(rows[column].max()) >= n:
            raise damaged("a source outside of its graph", f"an index below {n}, or none", where)
    if int(rows["shape"].min()) < 0:
        raise damaged("a negative dimension", "0 or more elements", where)
    for column in ("strides", "view_offset"):
        if int(rows[column].max()) > INT64_MAX:
            raise damaged(f"{column} of 2^63 bytes or more", "bytes of a tensor", where)
    if np.any((rows["usage"] >= len(USAGES)) & (rows["usage"] != NO_BUFFER)):
        raise damaged("an unknown usage of a buffer", f"below {len(USAGES)}", where)
