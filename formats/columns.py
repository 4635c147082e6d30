"""Columns of a table as numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .tape import Tape

__all__ = ["Bools", "Columns", "Ints", "Words"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bounds = tuple[int, int]


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
    """The columns of one table, converted when first asked for.

    Parameters
    ----------
    table : pyarrow.Table
        The table; see also `of`.
    """

    def __init__(self, table: pa.Table) -> None:
        self._column: Callable[[str], pa.ChunkedArray] = table.column
        self._batches: Callable[[Sequence[str]], Iterable[pa.RecordBatch]] = lambda names: table.select(
            list(names)
        ).to_batches()
        self._cache: dict[str, Any] = {}
        self.rows: int = table.num_rows

    @classmethod
    def of(cls, tape: Tape, name: str) -> Columns:
        """Return the columns of table `name` of a tape, of which no more is decoded than is asked for."""
        made = cls.__new__(cls)
        made._column = lambda column: tape.columns(name, (column,)).column(0)
        made._batches = lambda names: tape.batches(name, names)
        made._cache = {}
        made.rows = tape.rows(name)
        return made

    def ints(self, name: str) -> Ints:
        """Return an integer column; nulls read as -1, see `valid`."""
        got: Ints | None = self._cache.get(name)
        if got is None:
            column = self._column(name)
            if column.null_count:
                column = column.fill_null(-1)
            got = column.to_numpy().astype(np.int64, copy=False)
            self._cache[name] = got
        return got

    def raw(self, name: str) -> npt.NDArray[np.integer[Any]]:
        """Return an integer column, or the codes of an enumeration, as stored; nulls read as anything."""
        key = name + "="
        got: npt.NDArray[np.integer[Any]] | None = self._cache.get(key)
        if got is None:
            column = self._column(name)
            if pa.types.is_dictionary(column.type):
                chunks = [c.indices for c in column.unify_dictionaries().chunks]
                type_ = column.type.index_type
            else:
                chunks, type_ = column.chunks, column.type
            dtype = np.dtype(type_.to_pandas_dtype())
            parts = [
                np.frombuffer(c.buffers()[1], dtype)[c.offset : c.offset + len(c)] for c in chunks if len(c)
            ]
            got = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0, dtype)
            self._cache[key] = got
        return got

    def valid(self, name: str) -> Bools:
        """Return which rows hold a value."""
        key = name + "?"
        got: Bools | None = self._cache.get(key)
        if got is None:
            parts = [_valid(c) for c in self._column(name).chunks]
            got = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.empty(0, np.bool_)
            self._cache[key] = got
        return got

    def nulls(self, name: str) -> int:
        """Return how many rows hold no value."""
        return int(self._column(name).null_count)

    def rows_with(self, name: str) -> Ints:
        """Return the rows that hold a value."""
        if self.nulls(name) == self.rows:
            return np.empty(0, np.int64)
        return np.flatnonzero(self.valid(name))

    def bounds(self, name: str) -> Bounds | None:
        """Return the least and greatest value of an integer column, None where no row holds one."""
        key = name + "<"
        if key not in self._cache:
            self._cache[key] = _bounds(self._column(name))
        got: Bounds | None = self._cache[key]
        return got

    def within(self, name: str, low: int, high: int) -> bool:
        """Return whether all values lie in ``[low, high)``."""
        bounds = self.bounds(name)
        return bounds is None or (bounds[0] >= low and bounds[1] < high)

    def steps(self, name: str) -> tuple[int, int]:
        """Return the least and greatest difference of a row to the one before it; (1, 1) for one row."""
        key = name + "+"
        got: tuple[int, int] | None = self._cache.get(key)
        if got is None:
            d = np.diff(self.ints(name))
            got = self._cache[key] = (int(d.min()), int(d.max())) if len(d) else (1, 1)
        return got

    def increases(self, name: str) -> bool:
        """Return whether each row's value is greater than the one before it."""
        key = name + ">"
        if key not in self._cache:
            v = self.raw(name)
            self._cache[key] = not self.nulls(name) and bool((v[1:] > v[:-1]).all())
        got: bool = self._cache[key]
        return got

    def dense(self, name: str) -> bool:
        """Return whether the values are 0, 1, ... rows-1."""
        if not self.rows:
            return True
        v = self.raw(name)
        return int(v[0]) == 0 and int(v[-1]) == self.rows - 1 and self.increases(name)

    def survey(self, names: Sequence[str], visit: Callable[[int, pa.RecordBatch], None]) -> None:
        """Decode columns once, some rows at a time, and keep no more than their bounds.

        Parameters
        ----------
        names : sequence of str
            The columns.
        visit : callable
            Called with the first row and the columns of each piece.
        """
        first = 0
        found: dict[str, list[Bounds]] = {}
        for batch in self._batches(names):
            for name, column in zip(names, batch.columns, strict=True):
                if pa.types.is_integer(column.type):
                    known = _bounds(column)
                    found.setdefault(name, []).extend([known] if known else [])
            visit(first, batch)
            first += batch.num_rows
        for name, pieces in found.items():
            whole = (min(p[0] for p in pieces), max(p[1] for p in pieces)) if pieces else None
            self._cache[name + "<"] = whole

    def dictionary(self, name: str) -> list[str]:
        """Return the words that an enumeration or name column may hold."""
        key = name + "~"
        if key not in self._cache:
            chunks = self._column(name).unify_dictionaries().chunks
            self._cache[key] = chunks[0].dictionary.to_pylist() if chunks else []
        got: list[str] = self._cache[key]
        return got

    def isin(self, name: str, *words: str) -> Bools:
        """Return which rows of an enumeration hold one of a few words."""
        hit = np.zeros(self.rows, np.bool_)
        if self.nulls(name) == self.rows:
            return hit
        codes = self.raw(name)
        for code, word in enumerate(self.dictionary(name)):
            if word in words:
                hit |= codes == code
        if self.nulls(name):
            hit &= self.valid(name)
        return hit

    def word_of(self, name: str) -> Callable[[int], str | None]:
        """Return a function that returns the word in a row, for messages."""
        return lambda row: self.words(name)[row]

    def words(self, name: str) -> Words:
        """Return an enumeration or name column."""
        got: Words | None = self._cache.get(name)
        if got is None:
            got = self._cache[name] = Words(self._column(name))
        return got


def _valid(array: pa.Array) -> Bools:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    if array.null_count == len(array):
        return np.zeros(len(array), np.bool_)
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    begin = array.offset
    unpacked = np.unpackbits(bits[begin // 8 :], count=begin % 8 + len(array), bitorder="little")
    return unpacked[begin % 8 :].view(np.bool_)


def _bounds(column: pa.Array | pa.ChunkedArray) -> Bounds | None:
    if column.null_count == len(column):
        return None
    got = pc.min_max(column)
    return int(got["min"].as_py()), int(got["max"].as_py())
