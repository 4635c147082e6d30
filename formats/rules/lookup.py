"""Looking rows up by key, and groups of equal ids."""

from __future__ import annotations

import numpy as np

from ..columns import Bools, Columns, Ints
from ..schema import TABLES

__all__ = ["Tables", "all_among", "exists", "groups", "marked", "op_rows"]

Tables = dict[str, Columns]


def exists(tables: Tables, table: str, ids: Ints) -> Bools:
    """Return which ids are keys of a table."""
    key = TABLES[table].key or ""
    rows = tables[table].rows
    if not rows or not len(ids):
        return np.zeros(len(ids), np.bool_)
    if tables[table].dense(key):
        dense: Bools = (ids >= 0) & (ids < rows)
        return dense
    keys = tables[table].ints(key)
    if not tables[table].increases(key):
        return np.isin(ids, keys)
    found: Bools = keys[np.minimum(np.searchsorted(keys, ids), rows - 1)] == ids
    return found


def op_rows(tables: Tables, ids: Ints) -> Ints:
    """Return the row of each op id; only meaningful where it exists."""
    ops = tables["ops"]
    if not ops.rows:
        return np.zeros(len(ids), np.int64)
    if ops.dense("op"):
        return np.clip(ids, 0, ops.rows - 1).astype(np.int64, copy=False)
    keys = ops.ints("op")
    if ops.increases("op"):
        return np.minimum(np.searchsorted(keys, ids), len(keys) - 1).astype(np.int64)
    order = np.argsort(keys, kind="stable")
    return order[np.minimum(np.searchsorted(keys, ids, sorter=order), len(keys) - 1)].astype(np.int64)


def groups(ids: Ints) -> tuple[Ints, Ints]:
    """Return where each run of equal ids begins, and its id."""
    starts = np.flatnonzero(np.diff(ids, prepend=ids[0] - 1)) if len(ids) else np.zeros(0, np.int64)
    return starts.astype(np.int64), ids[starts]


def all_among(t: Columns, column: str, ids: Ints) -> bool:
    """Return whether all values of a column are surely among ids, which increase; False where it depends."""
    if t.nulls(column) == t.rows:
        return True
    gapless = len(ids) > 0 and int(ids[-1]) - int(ids[0]) == len(ids) - 1 and bool((ids[1:] > ids[:-1]).all())
    return gapless and t.within(column, int(ids[0]), int(ids[-1]) + 1)


def marked(count: int, rows: Ints) -> Bools:
    """Return a mask with these rows set."""
    marked = np.zeros(count, np.bool_)
    marked[rows] = True
    return marked
