"""Columns of a table as plain Python lists, converted once; `formats.columns` has them as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["NULL", "flags", "flat", "ids", "optional", "words"]

NULL = -1
"""Stands for null in the lists of `ids`, whose values are never negative."""


def flat(table: pa.Table) -> pa.Table:
    """Return the table with one chunk per column and one dictionary per dictionary column."""
    if all(c.num_chunks <= 1 for c in table.columns):
        return table
    return table.unify_dictionaries().combine_chunks()


def _array(table: pa.Table, name: str) -> Any:
    column = table.column(name)
    if column.num_chunks == 0:
        return pa.array([], column.type)
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def ids(table: pa.Table, name: str) -> list[int]:
    """Return an id column; null becomes `NULL`."""
    array = _array(table, name)
    if array.null_count:
        array = array.fill_null(NULL)
    found: list[int] = array.to_numpy(zero_copy_only=False).tolist()
    return found


def flags(table: pa.Table, name: str) -> list[bool]:
    """Return a column of booleans that has no nulls."""
    found: list[bool] = _array(table, name).to_numpy(zero_copy_only=False).tolist()
    return found


def optional(table: pa.Table, name: str) -> list[int | None]:
    """Return an integer column whose values may be anything; null stays None."""
    array = _array(table, name)
    if array.null_count == len(array):
        return [None] * len(array)
    values: list[int | None] = array.fill_null(0).to_numpy(zero_copy_only=False).tolist()
    if array.null_count:
        for row in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[row] = None
    return values


def words(table: pa.Table, name: str) -> list[str | None]:
    """Return a dictionary column as words; null becomes None."""
    array = _array(table, name)
    vocabulary: list[str | None] = [*array.dictionary.to_pylist(), None]
    codes = array.indices
    if codes.null_count:
        codes = codes.fill_null(-1)  # the last word
    return [vocabulary[c] for c in codes.to_numpy(zero_copy_only=False).tolist()]
