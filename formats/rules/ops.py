"""Ops: what issues them, what they wait for, when."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..columns import Bools, Columns, Ints
from ..limits import MAX_QUEUES
from ..tape import Tape
from ..validate import Findings
from .lookup import Tables, exists, marked, op_rows

__all__ = ["SURVEYED", "ops_aim", "ops_in_time", "ops_synchronise", "queues_issue"]


def queues_issue(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check that host threads lie on hosts and that only they issue."""
    q, d, ops = tables["queues"], tables["devices"], tables["ops"]
    if not q.rows:
        return
    host = q.words("kind").isin(("host_thread",))
    device = q.ints("device")
    fits = (device >= 0) & (device < d.rows)
    on_host = d.words("kind").isin(("host",))[np.where(fits, device, 0)] if d.rows else fits
    found.rows("queue-host", "queues", host & fits & ~on_host, "a host thread on a device that is no host")
    if ops.rows:
        for column, rows, what in (
            ("issuer", None, "issuer {} is no host thread"),
            (
                "queue",
                np.flatnonzero(ops.isin("kind", "sync")),
                "a sync on queue {}, which is no host thread",
            ),
        ):
            bad = _no_host(ops, column, rows, host)
            value = ops.raw(column)
            found.rows("queue-host", "ops", bad, lambda r, v=value, w=what: w.format(v[r]))  # type: ignore[misc]


def _no_host(ops: Columns, column: str, rows: Ints | None, host: Bools) -> Bools:
    """Return where a column names a queue that is no host thread, in some rows or in all."""
    bad = np.zeros(ops.rows, np.bool_)
    queue = ops.raw(column)
    if rows is None and ops.nulls(column):
        rows = ops.rows_with(column)
    if rows is None and ops.within(column, 0, len(host)):
        outside: Bools = (~host).take(queue)
        return outside
    at = np.arange(ops.rows) if rows is None else rows
    at = at[(queue[at] >= 0) & (queue[at] < len(host))]
    bad[at] = ~host[queue[at]]
    return bad


def ops_synchronise(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check parents, waits, records, semaphores and collectives."""
    ops = tables["ops"]
    if not ops.rows:
        return
    ids, kind, sync = ops.raw("op"), ops.word_of("kind"), ops.raw("sync")
    parent, rows = ops.raw("parent"), ops.rows_with("parent")
    bad = marked(ops.rows, rows[parent[rows] >= ids[rows]])
    found.rows("op-parent", "ops", bad, lambda r: f"parent {parent[r]} of op {ids[r]}")
    named = ops.valid("sync")
    bad = ops.isin("kind", "record", "wait", "semsig", "semwait", "coll") & ~named
    found.rows("sync-missing", "ops", bad, lambda r: f"a {kind(r)} without sync")
    wait, of, has = ops.isin("kind", "wait"), ops.raw("sync_of"), ops.valid("sync_of")
    found.rows("sync-of", "ops", has & ~wait, lambda r: f"sync_of on a {kind(r)}")
    there = np.flatnonzero(has & wait)
    there = there[exists(tables, "ops", of[there].astype(np.int64))]
    row = op_rows(tables, of[there].astype(np.int64))
    same = np.where(named[row] & named[there], sync[row] == sync[there], named[row] == named[there])
    good = (of[there] < ids[there]) & ops.isin("kind", "record")[row] & same
    found.rows(
        "sync-of",
        "ops",
        marked(ops.rows, there[~good]),
        lambda r: f"op {of[r]} is no earlier record of sync {ops.ints('sync')[r]}",
    )
    stated = ops.valid("wait_state")
    found.rows("wait-state", "ops", stated & (~wait | has), "wait_state where sync_of or no wait is")
    valued = ops.valid("value") & ~ops.isin("kind", "semsig", "semwait")
    found.rows("value", "ops", valued, lambda r: f"value on a {kind(r)}")

    some = ops.isin("kind", "wait_any")
    listed = ops.valid("list")
    found.rows("wait-any", "ops", some & ~listed, "a wait_any without list")
    lists = tables["lists"]
    if lists.rows and some.any():
        mine = np.isin(lists.ints("list"), ops.raw("list")[some & listed])
        unit = lists.ints("unit")
        bad = mine & ~exists(tables, "syncs", unit)
        found.rows("wait-any", "lists", bad, lambda r: f"a wait_any names sync {unit[r]}")


def ops_aim(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check the targets of syncs, allocs and frees."""
    ops = tables["ops"]
    if not ops.rows:
        return
    kind, target = ops.word_of("kind"), ops.raw("target")
    has, aimed = ops.valid("target"), ops.valid("target_kind")
    is_sync, ends = ops.isin("kind", "sync"), ops.isin("kind", "alloc", "free")
    found.rows("target", "ops", is_sync & ~aimed, "a sync without target_kind")
    found.rows("target", "ops", aimed & ~is_sync, lambda r: f"target_kind on a {kind(r)}")
    every = is_sync & ops.isin("target_kind", "all")
    found.rows("target", "ops", every & has, "a sync of all with a target")
    one = is_sync & ops.isin("target_kind", "queue", "device")
    found.rows("target", "ops", one & ~has, "a sync without target")
    found.rows("target", "ops", has & ~is_sync & ~ends, lambda r: f"target on a {kind(r)}")
    for where, table in (
        (is_sync & ops.isin("target_kind", "queue"), "queues"),
        (is_sync & ops.isin("target_kind", "device"), "devices"),
        (ends, "buffers"),
    ):
        rows = np.flatnonzero(has & where)
        bad = marked(ops.rows, rows[~exists(tables, table, target[rows].astype(np.int64))])
        found.rows("target", "ops", bad, lambda r, x=table: f"target {target[r]} is not in {x}")  # type: ignore[misc]


SURVEYED = ("name", "label", "issue_ns", "start_after_issue_ns", "duration_ns", "step", "split", "bytes")
"""Columns of `ops` of which nothing but bounds and, of the issue times, the order is asked."""


Numbers = npt.NDArray[np.integer[Any]]
_AT_ONCE = 1 << 14
"""Rows that are looked at together: what is computed of them stays in the processor's cache."""
_FEW = 8


def _early(by: Numbers, at: Numbers, last: Ints) -> Ints:
    """Return which rows are earlier than the one before of the same issuer; updates the last of each."""
    present = np.flatnonzero(np.bincount(by))
    found = []
    if len(present) <= _FEW:
        for issuer in present.tolist():
            mine = np.flatnonzero(by == issuer)
            times = at[mine]
            before = np.concatenate((last[issuer : issuer + 1], times[:-1]))
            found.append(mine[times < before])
            last[issuer] = times[-1]
        return np.concatenate(found)
    order = np.argsort(by.astype(np.int16) if len(last) < 1 << 15 else by, kind="stable")
    by, at = by[order], at[order]
    begins = np.flatnonzero(np.diff(by, prepend=-1))
    before = np.empty(len(at), np.int64)
    before[1:] = at[:-1]
    before[begins] = last[by[begins]]
    last[by[begins]] = at[np.append(begins[1:], len(at)) - 1]
    return order[at < before]


def ops_in_time(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check that issue times of one issuer do not go back."""
    ops = tables["ops"]
    if not ops.rows:
        return
    known = ops.valid("issuer")
    issuer = np.where(known, ops.raw("issuer"), 0) if ops.nulls("issuer") else ops.raw("issuer")
    low, high = ops.bounds("issuer") or (0, 0)
    if low < 0 or high > max(MAX_QUEUES, tables["queues"].rows):
        issuer = np.unique(issuer, return_inverse=True)[1]
        high = int(issuer.max())
    last = np.full(high + 1, np.iinfo(np.int64).min)
    back: list[Ints] = []

    def visit(first: int, batch: pa.RecordBatch) -> None:
        piece = Columns(pa.Table.from_batches([batch]))
        timed, at = piece.valid("issue_ns"), piece.raw("issue_ns")
        for begin in range(0, piece.rows, _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            mine = slice(first + begin, first + min(begin + _AT_ONCE, piece.rows))
            rows = np.flatnonzero(timed[part] & known[mine])
            if len(rows):
                early = _early(issuer[mine][rows], at[part][rows], last)
                back.append(mine.start + rows[early])

    ops.survey(SURVEYED, visit)
    bad = np.concatenate(back) if back else np.empty(0, np.int64)
    if len(bad):
        when = ops.ints("issue_ns")
        found.rows(
            "time-order",
            "ops",
            marked(ops.rows, bad),
            lambda r: f"issue_ns {when[r]} is before the issuer's previous op",
        )
