"""Columns of a table as numpy arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Bools", "Columns", "Ints", "Words"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Words:
    """An enumeration or name column: codes (-1 = null) into a list of words."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        whole = column.unify_dictionaries().combine_chunks()
        if isinstance(whole, pa.ChunkedArray):
            whole = whole.chunk(0) if whole.num_chunks else pa.array([], column.type)
        self.words: list[str] = whole.dictionary.to_pylist()
        codes = whole.indices.cast(pa.int32())
        self.codes: npt.NDArray[np.int32] = codes.fill_null(-1).to_numpy(zero_copy_only=False)

    def isin(self, words: Iterable[str]) -> Bools:
        """Return which rows hold one of these words."""
        wanted = set(words)
        table = np.array([w in wanted for w in self.words] + [False], np.bool_)
        return table[self.codes]

    def __getitem__(self, row: int) -> str | None:
        code = int(self.codes[row])
        return None if code < 0 else self.words[code]


class Columns:
    """The columns of one table, converted when first asked for."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._cache: dict[str, Any] = {}
        self.rows: int = table.num_rows

    def ints(self, name: str) -> Ints:
        """Return an integer column; nulls read as -1, see `valid`."""
        got: Ints | None = self._cache.get(name)
        if got is None:
            column = self._table.column(name)
            if column.null_count:
                column = column.fill_null(-1)
            got = column.to_numpy().astype(np.int64, copy=False)
            self._cache[name] = got
        return got

    def valid(self, name: str) -> Bools:
        """Return which rows hold a value."""
        key = name + "?"
        got: Bools | None = self._cache.get(key)
        if got is None:
            column = self._table.column(name)
            got = column.is_valid().to_numpy() if column.null_count else np.ones(self.rows, np.bool_)
            self._cache[key] = got
        return got

    def steps(self, name: str) -> tuple[int, int]:
        """Return the least and greatest difference of a row to the one before it; (1, 1) for one row."""
        key = name + "+"
        got: tuple[int, int] | None = self._cache.get(key)
        if got is None:
            d = np.diff(self.ints(name))
            got = self._cache[key] = (int(d.min()), int(d.max())) if len(d) else (1, 1)
        return got

    def words(self, name: str) -> Words:
        """Return an enumeration or name column."""
        got: Words | None = self._cache.get(name)
        if got is None:
            got = self._cache[name] = Words(self._table.column(name))
        return got
