"""Which whole units of a request equal those of an earlier one: found by the engine's own hashes, in memory.

The hashes stay in the recorded process; what is written is only who had a unit first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from tapedelay.recorder.engines.transformers import watch

__all__ = ["Content"]

UNITS_MAX = 1 << 18
"""Units that are remembered; of a forgotten one a rerun has two where the engine had one."""

Row = tuple[int, int, int]
"""The earlier request, first position, one past the last."""


class Content:
    """Remembers who had which unit first."""

    def __init__(self) -> None:
        self._first: OrderedDict[int, int] = OrderedDict()
        """Chained hash of a unit -> number of the request that had it first."""
        self._known: dict[int, int] = {}
        """How many units of each request have been looked at."""
        self._hash = watch.module("cache_allocators.cache_allocator").compute_block_hash

    def arrived(self, number: int, tokens: Sequence[int], page: int) -> list[Row]:
        """Return what the whole units of a prompt have in common with earlier ones."""
        rows: list[Row] = []
        parent = None
        count = len(tokens) // page
        for i in range(count):
            parent = self._hash(parent, list(tokens[i * page : (i + 1) * page]))
            self._unit(number, i, page, parent, rows)
        self._known[number] = count
        return rows

    def completed(self, number: int, allocator: Any, request_id: str) -> list[Row]:
        """Return what units that a request has completed since have in common with earlier ones."""
        rows: list[Row] = []
        table = allocator.block_table.get(request_id, ())
        hashes = allocator.ledger.block_to_hash
        i = self._known.get(number, 0)
        while i < len(table) and table[i] in hashes:
            self._unit(number, i, allocator.tokens_per_page, hashes[table[i]], rows)
            i += 1
        self._known[number] = max(i, self._known.get(number, 0))
        return rows

    def forget(self, number: int) -> None:
        """Note that a request has ended; its units may still be found."""
        self._known.pop(number, None)

    def _unit(self, number: int, index: int, page: int, content: int, rows: list[Row]) -> None:
        of = self._first.setdefault(content, number)
        if of == number:
            if len(self._first) > UNITS_MAX:
                self._first.popitem(last=False)
            return
        start, end = index * page, (index + 1) * page
        if rows and rows[-1][0] == of and rows[-1][2] == start:
            rows[-1] = (of, rows[-1][1], end)
        else:
            rows.append((of, start, end))
