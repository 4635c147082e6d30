"""Which whole units of a request equal those of an earlier one: found by the engine's own hashes, in memory.

The hashes stay in the recorded process; what is written is only which request has a unit of which.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from . import watch

__all__ = ["Content"]

UNITS_MAX = 1 << 18
"""Units that are remembered; of a forgotten one a rerun has two where the engine had one."""

Row = tuple[int, int, int]
"""The earlier request, first position, one past the last."""


class Content:
    """Remembers which request of the lowest number has each unit."""

    def __init__(self) -> None:
        self._first: OrderedDict[int, tuple[int, str]] = OrderedDict()
        """Chained hash of a unit -> number and id of a request that has it."""
        self._known: dict[int, int] = {}
        """How many units of each request have been looked at."""
        self._hash = watch.module("cache_allocators.cache_allocator").compute_block_hash

    def arrived(self, number: int, request_id: str, tokens: Sequence[int], page: int) -> list[Row]:
        """Return what the whole units of a prompt have in common with earlier ones."""
        rows: list[Row] = []
        parent = None
        count = len(tokens) // page
        for i in range(count):
            parent = self._hash(parent, list(tokens[i * page : (i + 1) * page]))
            found = self._unit(parent, number, request_id)
            if found is not None:
                _add(rows, found[2], i * page, (i + 1) * page)
        self._known[number] = count
        return rows

    def completed(self, number: int, request_id: str, allocator: Any) -> list[tuple[str, int, int, int, int]]:
        """Return what units that a request has completed since have in common with others.

        Returns
        -------
        list of (str, int, int, int, int)
            Id and number of the later request, number of the earlier one, first position, one past the last.
            It may be this request that came first, though the other had the unit earlier.
        """
        table, i = allocator.block_table.get(request_id, ()), self._known.get(number, 0)
        if i >= len(table):
            return []
        made: list[tuple[str, int, int, int, int]] = []
        hashes, page = allocator.ledger.block_to_hash, allocator.tokens_per_page
        while i < len(table) and table[i] in hashes:
            found = self._unit(hashes[table[i]], number, request_id)
            if found is not None:
                made.append((*found, i * page, (i + 1) * page))
            i += 1
        self._known[number] = i
        return made

    def forget(self, number: int) -> None:
        """Note that a request has ended; its units may still be found."""
        self._known.pop(number, None)

    def _unit(self, content: int, number: int, request_id: str) -> tuple[str, int, int] | None:
        """Return id and number of the later and the number of the earlier request that have this unit."""
        other, other_id = self._first.setdefault(content, (number, request_id))
        if other < number:
            return request_id, number, other
        if other > number:
            self._first[content] = (number, request_id)
            return other_id, other, number
        if len(self._first) > UNITS_MAX:
            self._first.popitem(last=False)
        return None


def _add(rows: list[Row], of: int, start: int, end: int) -> None:
    """Add a row, or make the last one longer."""
    if rows and rows[-1][0] == of and rows[-1][2] == start:
        rows[-1] = (of, rows[-1][1], end)
    else:
        rows.append((of, start, end))
