"""Joins of columns: what a loop with a dictionary would do, a record at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Ints", "Mask", "by_value", "codes", "counts_so_far", "is_kind", "last_equal"]

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def is_kind(kinds: npt.NDArray[np.uint8], *wanted: int) -> Mask:
    """Return which records are of some kinds."""
    table = np.zeros(256, np.bool_)
    table[list(wanted)] = True
    return table[kinds]


def last_equal(keys: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> Ints:
    """Return the last place in `keys` of each wanted value; -1 where it is not there."""
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(keys, kind="stable")
    found = order[np.maximum(np.searchsorted(keys, wanted, "right", sorter=order) - 1, 0)]
    return np.where(keys[found] == wanted, found, -1)


def codes(*columns: npt.NDArray[Any]) -> tuple[Ints, Ints]:
    """Number the different rows in the order in which they first appear.

    Returns
    -------
    tuple of arrays
        The number of each row, and the first row of each number.
    """
    joint = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        if len(column) and (column != column[0]).any():
            values = _encoded(column)
            joint = _encoded(joint * (int(values.max()) + 1) + values)  # both are below the number of rows
    newest = np.maximum.accumulate(joint) if len(joint) else joint
    return joint, np.flatnonzero(np.diff(newest, prepend=-1))


def _encoded(values: npt.NDArray[Any]) -> Ints:
    found: Ints = pa.array(values).dictionary_encode().indices.to_numpy().astype(np.int64)
    return found


def counts_so_far(values: Ints) -> Ints:
    """Return for each row how many rows up to it, itself included, hold the same value."""
    order = np.argsort(values, kind="stable")
    held = values[order]
    starts = np.flatnonzero(np.diff(held, prepend=-1)) if len(held) else np.empty(0, np.int64)
    found = np.empty(len(values), np.int64)
    found[order] = np.arange(1, len(values) + 1) - np.repeat(starts, np.diff(starts, append=len(values)))
    return found


def by_value(values: npt.NDArray[Any]) -> list[tuple[int, Ints]]:
    """Return each different value with the rows that hold it, smallest value first."""
    if not len(values):
        return []
    order = np.argsort(values, kind="stable")
    held = values[order]
    starts = np.flatnonzero(np.concatenate([[True], held[1:] != held[:-1]]))
    return list(zip(held[starts].tolist(), np.split(order, starts[1:]), strict=True))
