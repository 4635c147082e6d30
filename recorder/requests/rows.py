"""Rows of the tables of request schedulers, collected column by column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ...formats.schema import SCHEMAS, TABLES

__all__ = ["Rows"]

_AT_ONCE = 1 << 16


class Rows:
    """Collects one table's rows; enumerations are given as places of their words."""

    def __init__(self, name: str) -> None:
        self._schema = SCHEMAS[name]
        self._words = [pa.array(c.words, pa.string()) if c.words else None for c in TABLES[name].columns]
        self._columns: list[list[Any]] = [[] for _ in self._schema]
        self._done: list[pa.Table] = []
        self.rows = 0

    def add(self, *values: Any) -> None:
        """Append a row: all columns in their order."""
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)
        self.rows += 1
        if len(self._columns[0]) >= _AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        arrays = []
        for field, words, values in zip(self._schema, self._words, self._columns, strict=True):
            if words is not None:
                codes = pa.array(values, pa.int8())
                arrays.append(pa.DictionaryArray.from_arrays(codes, words))
            elif pa.types.is_dictionary(field.type):
                arrays.append(pa.array(values, pa.string()).dictionary_encode().cast(field.type))
            else:
                arrays.append(pa.array(values, field.type))
            values.clear()
        self._done.append(pa.Table.from_arrays(arrays, schema=self._schema))

    def set_column(self, name: str, values: np.ndarray[Any, Any], mask: np.ndarray[Any, Any]) -> None:
        """Replace a number column of all rows; null where `mask` is true."""
        table = self.table()
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        self._done = [table.set_column(at, field, pa.array(values, field.type, mask=mask))]

    def table(self) -> pa.Table:
        """Return the rows so far, in one piece."""
        self._flush()
        whole = pa.concat_tables(self._done).unify_dictionaries().combine_chunks()
        self._done = [whole]
        return whole
