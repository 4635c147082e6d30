"""Where the host filled input tensors behind the engine's back.

Some inputs are written through a raw pointer, past every function table. A read of such a tensor proves that
it was written; when is not known. It is placed where the observed writes to inputs of the same batch stand,
or else after the last wait, as early as the host may have done it; what rests on it is at most `possible`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .accesses import Cover, Touch

__all__ = ["Filling", "Moment", "infer"]


@dataclass(frozen=True)
class Moment:
    """What one host thread did at one position, as far as it matters here.

    `graph` and `inputs` are set for a compute: which access set, and its input leafs in host memory. `write`
    is an observed write from unknown host memory: (buffer, first byte, end). `waits` marks a host wait.
    """

    position: int
    graph: int | None = None
    inputs: tuple[Touch, ...] = ()
    write: tuple[int, int, int] | None = None
    waits: bool = False


@dataclass(frozen=True)
class Filling:
    """Inferred writes of one batch: placed before (or after) the record at `position`.

    `compute` is the record of the batch's first compute.
    """

    position: int
    before: bool
    writes: tuple[Touch, ...]
    compute: int


@dataclass
class _Batch:
    first_write: int | None = None
    first_compute: int | None = None
    last_compute: int | None = None
    not_before: int | None = None
    graphs: set[int] = field(default_factory=set)
    written: dict[int, Cover] = field(default_factory=dict)
    read: dict[tuple[int | None, int, int], Touch] = field(default_factory=dict)


def infer(moments: Iterable[Moment]) -> list[Filling]:
    """Return the host writes that must have happened on one thread, one entry per batch.

    A batch begins with the first observed write to an input after a compute; on a thread without such writes,
    when a graph comes round again.
    """
    rows = list(moments)
    places: dict[int, Cover] = {}
    for m in rows:
        for t in m.inputs:
            if t.buffer is not None:
                places.setdefault(t.buffer, Cover()).add(t.offset, t.offset + t.bytes)
    if not places:
        return []

    def is_input(write: tuple[int, int, int] | None) -> bool:
        return write is not None and write[0] in places and places[write[0]].meets(write[1], write[2])

    observed = any(is_input(m.write) for m in rows)
    found: list[Filling] = []
    batch = _Batch()
    last_wait: int | None = None
    for m in rows:
        filled = is_input(m.write)
        repeated = not observed and m.graph is not None and m.graph in batch.graphs
        if batch.first_compute is not None and (filled or repeated):
            found.extend(_filling(batch))
            batch = _Batch(not_before=_later(last_wait, batch.last_compute))
        if filled and m.write is not None:
            buffer, start, end = m.write
            batch.written.setdefault(buffer, Cover()).add(start, end)
            if batch.first_write is None:
                batch.first_write = m.position
        if m.waits:
            last_wait = m.position
            if batch.first_compute is None:
                batch.not_before = m.position
        if m.graph is not None:
            batch.graphs.add(m.graph)
            batch.last_compute = m.position
            if batch.first_compute is None:
                batch.first_compute = m.position
            for t in m.inputs:
                batch.read.setdefault((t.buffer, t.offset, t.bytes), t)
    found.extend(_filling(batch))
    return found


def _later(a: int | None, b: int | None) -> int | None:
    if a is None or b is None:
        return b if a is None else a
    return max(a, b)


def _filling(batch: _Batch) -> list[Filling]:
    writes: list[Touch] = []
    for t in batch.read.values():
        if t.buffer is None:
            continue
        done = batch.written.get(t.buffer, Cover())
        writes += [
            Touch(t.buffer, lo, hi - lo, "write", t.name)
            for lo, hi in done.missing(t.offset, t.offset + t.bytes)
        ]
    if not writes or batch.first_compute is None:
        return []
    if batch.first_write is not None:
        return [Filling(batch.first_write, True, tuple(writes), batch.first_compute)]
    if batch.not_before is not None:
        return [Filling(batch.not_before, False, tuple(writes), batch.first_compute)]
    return [Filling(batch.first_compute, True, tuple(writes), batch.first_compute)]
