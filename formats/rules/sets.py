"""Access sets and lists, and the bytes that they reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..columns import Bools, Columns, Ints
from ..tape import Tape
from ..validate import Findings
from .lookup import Tables, all_among, exists, groups

__all__ = ["access_ranges", "sets_and_lists"]


def sets_and_lists(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check that access sets and lists are in order and that ops name existing ones."""
    a, lists, ops = tables["accesses"], tables["lists"], tables["ops"]
    known = np.zeros(1, np.int64)
    if a.rows:
        ids, seq = a.ints("set"), a.ints("seq")
        bad = np.diff(ids, prepend=0) < 0
        bad[0] |= ids[0] < 1
        starts, names = groups(ids)
        first = np.repeat(starts, np.diff(starts, append=a.rows))
        bad |= seq != np.arange(a.rows) - first
        found.rows("set-order", "accesses", bad, lambda r: f"set {ids[r]} seq {seq[r]}")
        known = np.concatenate((known, names))
    if lists.rows:
        lids = lists.ints("list")
        bad = np.diff(lids, prepend=0) < 0
        found.rows("list-order", "lists", bad, lambda r: f"list {lids[r]} after list {lids[r - 1]}")
    if ops.rows and not all_among(ops, "access_set", known):
        used = ops.ints("access_set")
        bad = ops.valid("access_set") & (used != 0) & ~np.isin(used, np.unique(a.ints("set")))
        found.rows("set-ref", "ops", bad, lambda r: f"access_set {used[r]} has no rows")
    if ops.rows and not all_among(ops, "list", groups(lists.ints("list"))[1]):
        named = ops.ints("list")
        bad = ops.valid("list") & ~np.isin(named, np.unique(lists.ints("list")))
        found.rows("list-ref", "ops", bad, lambda r: f"list {named[r]} has no rows")


def access_ranges(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check that accesses lie inside their buffers, for every arg and unit."""
    a, ops, buffers, lists = tables["accesses"], tables["ops"], tables["buffers"], tables["lists"]
    if not a.rows:
        return
    ids = a.ints("set")
    grows = (a.ints("offset_per_arg") != 0) | (a.ints("bytes_per_arg") != 0)
    repeats = a.valid("unit_bytes")
    growing, repeating = _using(ops, ids[grows]), _using(ops, ids[repeats])
    for using, column, what in (
        (growing, "arg", "grows with arg, which is null"),
        (repeating, "list", "repeats per unit, but list is null"),
    ):
        used = ops.raw("access_set")
        bad = using & ~ops.valid(column)
        found.rows("access-arg", "ops", bad, lambda r, u=used, w=what: f"access_set {u[r]} {w}")  # type: ignore[misc]

    buf = a.ints("buffer")
    known = a.valid("buffer") & exists(tables, "buffers", buf)
    safe = np.where(known, buf, 0) if buffers.rows else np.zeros(a.rows, np.int64)
    by_id = np.zeros(buffers.rows, np.int64)
    inside = (buffers.ints("buffer") >= 0) & (buffers.ints("buffer") < buffers.rows)
    by_id[buffers.ints("buffer")[inside]] = np.flatnonzero(inside)
    row = by_id[safe] if buffers.rows else safe
    size = buffers.ints("bytes")[row] if buffers.rows else np.full(a.rows, -1)
    sized = known & (buffers.valid("bytes")[row] if buffers.rows else np.zeros(a.rows, np.bool_))
    unit_bytes = np.where(repeats, a.ints("unit_bytes"), 0)
    limit = np.where(sized, size, np.iinfo(np.int64).max)
    shape = (a.ints("offset"), a.ints("bytes"), a.ints("offset_per_arg"), a.ints("bytes_per_arg"), unit_bytes)
    wrong = _outside(shape, _ZERO, _ZERO, limit)
    varying = np.flatnonzero(grows | repeats)
    parts = tuple(column[varying] for column in shape)
    # most often the least and greatest of all args and units do no harm
    args, units = (_with_zero(t.bounds(c)) for t, c in ((ops, "arg"), (lists, "unit")))
    if any(_outside(parts, arg, unit, limit[varying]).any() for arg in args for unit in units):
        wrong[varying] = _wrong_as_used(parts, ids[varying], limit[varying], growing, repeating, ops, lists)
    found.rows(
        "access-range",
        "accesses",
        wrong,
        lambda r: f"set {ids[r]} reaches beyond buffer {buf[r]} of {size[r]} bytes",
    )


_ZERO = np.zeros(1, np.int64)


def _with_zero(bounds: tuple[int, int] | None) -> tuple[Ints, Ints]:
    """Return the least and greatest value of a column and 0, which counts where nobody uses a set."""
    low, high = bounds or (0, 0)
    return np.array([min(low, 0)]), np.array([max(high, 0)])


def _wrong_as_used(
    shape: tuple[Ints, ...],
    ids: Ints,
    limit: Ints,
    growing: Bools,
    repeating: Bools,
    ops: Columns,
    lists: Columns,
) -> Bools:
    """Return which accesses reach too far with an arg and unit that their set is used with."""
    # the least and greatest arg and unit of each set; sets nobody uses count with 0
    sets = np.unique(ids)
    at = _positions(sets, ids)
    used, named = ops.raw("access_set"), ops.raw("list")
    rows = np.flatnonzero(growing & ops.valid("arg"))
    args = _extremes(sets, used[rows], ops.raw("arg")[rows])
    list_ids, list_lo, list_hi = _list_extremes(lists)
    listed = np.flatnonzero(repeating & ops.valid("list"))
    listed = listed[np.isin(named[listed], list_ids)]
    where = np.searchsorted(list_ids, named[listed])
    lo = _extremes(sets, used[listed], list_lo[where])[0]
    hi = _extremes(sets, used[listed], list_hi[where])[1]
    wrong = np.zeros(len(ids), np.bool_)
    for arg in args:
        for unit in (lo, hi):
            wrong |= _outside(shape, arg[at], unit[at], limit)
    # These corners are more than any one op needs: ask again with the arg and list of each op.
    ask = np.flatnonzero(wrong)
    if len(ask):
        mine = np.flatnonzero(_using(ops, np.unique(ids[ask])))
        mine = mine[np.argsort(used[mine], kind="stable")]
        own = np.where(ops.valid("arg")[mine], ops.raw("arg")[mine], 0)
        low, high = np.zeros(ops.rows, np.int64), np.zeros(ops.rows, np.int64)
        low[listed], high[listed] = list_lo[where], list_hi[where]
        begins = np.searchsorted(used[mine], ids[ask], side="left")
        ends = np.searchsorted(used[mine], ids[ask], side="right")
        for row, first, last in zip(ask.tolist(), begins.tolist(), ends.tolist(), strict=True):
            if first == last:
                continue  # nobody uses it
            one = tuple(column[row] for column in shape)
            units = (u[mine[first:last]] for u in (low, high))
            wrong[row] = any(_outside(one, own[first:last], u, limit[row]).any() for u in units)
    return wrong


def _outside(shape: tuple[Any, ...], arg: Ints, unit: Ints, limit: Ints) -> Bools:
    """Return where an access of (offset, bytes, both per arg, bytes per unit) is not in ``[0, limit)``."""
    offset, length, offset_per_arg, bytes_per_arg, unit_bytes = shape
    terms = ((offset, 1), (offset_per_arg, arg), (unit_bytes, unit), (length, 1), (bytes_per_arg, arg))
    huge = sum(np.abs(np.asarray(x, np.float64) * np.asarray(y, np.float64)) for x, y in terms) > 2.0**62
    keep = np.where(huge, 0, 1)
    begin = offset * keep + (offset_per_arg * keep) * (arg * keep) + (unit_bytes * keep) * (unit * keep)
    size = length * keep + (bytes_per_arg * keep) * (arg * keep)
    bad: Bools = huge | (begin < 0) | (size < 0) | (begin + size > limit)
    return bad


def _using(ops: Columns, sets: Ints) -> Bools:
    """Return which ops use one of these access sets."""
    if not len(sets) or ops.nulls("access_set") == ops.rows:
        return np.zeros(ops.rows, np.bool_)
    used = ops.raw("access_set")
    bounds = ops.bounds("access_set")
    if bounds is not None and bounds[0] >= 0 and bounds[1] <= ops.rows + len(sets):
        wanted = np.zeros(bounds[1] + 1, np.bool_)
        wanted[sets[(sets >= 0) & (sets <= bounds[1])]] = True
        if not ops.nulls("access_set"):
            return wanted.take(used)
        valid = ops.valid("access_set")
        return valid & wanted.take(np.where(valid, used, 0))
    return ops.valid("access_set") & np.isin(used, sets)


def _extremes(
    sets: Ints, used: npt.NDArray[np.integer[Any]], values: npt.NDArray[np.integer[Any]]
) -> tuple[Ints, Ints]:
    """Return per set the least and greatest value of the ops that use it, 0 where nobody does."""
    low = np.full(len(sets), np.iinfo(np.int64).max)
    high = np.full(len(sets), np.iinfo(np.int64).min)
    at = _positions(sets, used)
    np.minimum.at(low, at, values)
    np.maximum.at(high, at, values)
    none = low > high
    low[none] = high[none] = 0
    return low, high


def _positions(sets: Ints, ids: npt.NDArray[np.integer[Any]]) -> Ints:
    """Return where each id stands among sets, which increase and hold it."""
    if len(sets) and len(ids) and int(sets[0]) >= 0 and int(sets[-1]) <= 4 * (len(sets) + len(ids)):
        place = np.zeros(int(sets[-1]) + 1, np.int64)
        place[sets] = np.arange(len(sets))
        found: Ints = place[ids]
        return found
    return np.searchsorted(sets, ids).astype(np.int64)


def _list_extremes(lists: Columns) -> tuple[Ints, Ints, Ints]:
    if not lists.rows:
        empty = np.zeros(0, np.int64)
        return empty, empty, empty
    order = np.argsort(lists.ints("list"), kind="stable")
    ids, units = lists.ints("list")[order], lists.ints("unit")[order]
    starts, names = groups(ids)
    return names, np.minimum.reduceat(units, starts), np.maximum.reduceat(units, starts)
