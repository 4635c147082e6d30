"""What each host thread did that `inputs.infer` wants to know."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .accesses import Cover
from .called import Called
from .inputs import Moment
from .joins import Ints, Mask, by_value, codes
from .layout import NONE, Flag, Kind
from .sets import TouchedBytes

__all__ = ["moments"]


def moments(calls: Called, touched: TouchedBytes) -> Iterator[tuple[int, list[Moment]]]:
    """Yield the moments of each thread that computes with inputs in host memory, by its first one.

    Left out is what changes nothing: writes beside all inputs, and waits before other waits.
    """
    kind, d, e = calls.kind, calls.column("d"), calls.column("e")
    computes = (kind == Kind.COMPUTE) & ~calls.has(Flag.META) & (d != NONE)
    inputs = {g: touched.inputs(g) for g in np.unique(d[computes]).tolist()}
    if not any(inputs.values()):
        return
    writes = (kind == Kind.SET) & (d == NONE) & (e != NONE) & (calls.queue == calls.host)
    waits = (kind == Kind.EVENT_SYNC) | (kind == Kind.SYNC)
    rows = np.flatnonzero(computes | writes | waits)
    positions = calls.position[calls.outer()[rows]]
    ranges = [calls.some(n, rows) for n in ("e", "b", "c")]
    same, _ = codes(*ranges)
    for thread, mine in sorted(by_value(calls.thread[rows]), key=lambda found: int(found[1][0])):
        at = rows[mine]
        graphs = np.unique(d[at[computes[at]]]).tolist()
        if not any(inputs[g] for g in graphs):
            continue
        places: dict[int, Cover] = {}
        for t in (t for g in graphs for t in inputs[g]):
            if t.buffer is not None:
                places.setdefault(t.buffer, Cover()).add(t.offset, t.offset + t.bytes)
        kept = ~writes[at]
        written = mine[~kept]
        kept[~kept] = _meets(places, same[written], [x[written] for x in ranges])
        kept[kept] = _not_followed(waits[at[kept]])
        at, where = at[kept], positions[mine[kept]].tolist()
        found = []
        columns = (where, at.tolist(), computes[at].tolist(), writes[at].tolist())
        _, starts, sizes = (x[mine[kept]].tolist() for x in ranges)
        for i, (position, call, is_compute, is_write) in enumerate(zip(*columns, strict=True)):
            if is_compute:
                graph = int(d[call])
                found.append(Moment(position, graph=graph, inputs=inputs[graph]))
            elif is_write:
                found.append(Moment(position, write=(int(e[call]), starts[i], starts[i] + sizes[i])))
            else:
                found.append(Moment(position, waits=True))
        yield thread, found


def _meets(places: dict[int, Cover], same: Ints, ranges: list[Ints]) -> Mask:
    """Return which writes touch an input; equal ones have one number in `same`."""
    known: dict[int, bool] = {}
    found = np.empty(len(same), np.bool_)
    for i, (number, e, b, c) in enumerate(zip(same.tolist(), *(x.tolist() for x in ranges), strict=True)):
        if number not in known:
            known[number] = e in places and places[e].meets(b, b + c)
        found[i] = known[number]
    return found


def _not_followed(waits: Mask) -> Mask:
    """Return what stays when only the last of several waits counts."""
    followed = waits.copy()
    followed[:-1] &= waits[1:]
    followed[-1:] = False
    return ~followed
