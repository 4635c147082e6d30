"""Access sets of one process: what graphs and copies touch, under the ids of the tape."""

from __future__ import annotations

from collections.abc import Sequence

from .accesses import Touch, thin, touches
from .layout import NONE
from .places import Places
from .rows import AccessRow, AccessSets

__all__ = ["TouchedBytes"]


class TouchedBytes:
    """Turns what the spool says of accesses into rows; each graph and each copy once.

    Parameters
    ----------
    places : Places
        Maps buffers to the tape's.
    sets : AccessSets
        Where the rows go.
    """

    def __init__(self, places: Places, sets: AccessSets) -> None:
        self._places = places
        self._spool = places.spool
        self._sets = sets
        self._graphs: dict[tuple[int, bool], tuple[int, str]] = {}
        self._inputs: dict[int, tuple[Touch, ...]] = {}
        self._copies: dict[tuple[int, int, int, int, int, bool, bool], int] = {}

    def graph(self, graph: int, failed: bool) -> tuple[int, str]:
        """Return the access set of a graph and the first tensor it writes.

        A compute that failed was cut off: how much of it was done is not known.
        """
        found = self._graphs.get((graph, failed))
        if found is None:
            every = touches(self._spool, graph)
            written = next((t.name for t in every if t.mode != "read" and t.name), "")
            rows = self._rows(thin(every), "inferred" if failed else None)
            found = self._sets.add(rows), written
            self._graphs[graph, failed] = found
        return found

    def inferred(self, rows: Sequence[Touch]) -> int:
        """Return the access set of accesses that were concluded, not seen."""
        return self._sets.add(self._rows(rows, "inferred"))

    def _rows(self, rows: Sequence[Touch], origin: str | None = None) -> list[AccessRow]:
        return [
            (
                None if t.buffer is None else self._places.buffers[t.buffer],
                t.offset,
                t.bytes,
                t.mode,
                origin or ("inferred" if t.wide else "observed"),
                t.name,
            )
            for t in rows
        ]

    def pair(
        self,
        src: int,
        src_at: int,
        dst: int,
        dst_at: int,
        size: int,
        *,
        source: bool = True,
        wide: bool = False,
    ) -> int:
        """Return the access set of a copy, or of a fill (no source)."""
        key = (src, src_at, dst, dst_at, size, source, wide)
        found = self._copies.get(key)
        if found is None:
            rows = [
                Touch(None, 0, size, mode, wide=wide)
                if buffer == NONE
                else Touch(buffer, at, size, mode, wide=wide)
                for buffer, at, mode in ((src, src_at, "read"), (dst, dst_at, "write"))
                if size and (source or mode == "write")
            ]
            found = self._sets.add(self._rows(rows))
            self._copies[key] = found
        return found

    def inputs(self, graph: int) -> tuple[Touch, ...]:
        """Return the inputs of a graph that lie in host memory."""
        found = self._inputs.get(graph)
        if found is None:
            found = tuple(
                t
                for t in touches(self._spool, graph)
                if t.is_input and t.mode == "read" and t.buffer is not None and self._places.on_host(t.buffer)
            )
            self._inputs[graph] = found
        return found
