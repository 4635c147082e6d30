"""The invariants, one function per table or theme. `validate.RULES` says each in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from .columns import Bools, Columns, Ints
from .edges.kinship import kinship
from .errors import InvalidTape
from .limits import MAX_BUFFER_DEPTH, MAX_QUEUES
from .profiles import BUILTIN, Profile
from .schema import COVERAGE, TABLES
from .tape import Tape
from .validate import Findings

__all__ = ["ALL_RULES", "Rule"]

Tables = dict[str, Columns]
Rule = Callable[[Findings, Tape, Tables], None]

_SIGNED = {("ops", "start_after_issue_ns"), ("inputs", "value"), ("nodes", "flags"), ("nodes", "view_source")}
_SIGNED |= {("accesses", "offset_per_arg"), ("accesses", "bytes_per_arg"), ("requests", "priority")}
_SIGNED |= {("graphs", "uid"), ("ops", "value"), ("ops", "arg")}
_PATH = re.compile(r"(^|[\s\"'=:,(])(/[\w.-]+/|[A-Za-z]:\\|~/|\\\\)")


def exists(tables: Tables, table: str, ids: Ints) -> Bools:
    """Return which ids are keys of a table."""
    keys = tables[table].ints(TABLES[table].key or "")
    if not len(keys) or not len(ids):
        return np.zeros(len(ids), np.bool_)
    steps = tables[table].steps(TABLES[table].key or "")
    if keys[0] == 0 and steps == (1, 1):
        dense: Bools = (ids >= 0) & (ids < len(keys))
        return dense
    if steps[0] <= 0:
        return np.isin(ids, keys)
    found: Bools = keys[np.minimum(np.searchsorted(keys, ids), len(keys) - 1)] == ids
    return found


def op_rows(tables: Tables, ids: Ints) -> Ints:
    """Return the row of each op id; only meaningful where it exists."""
    keys = tables["ops"].ints("op")
    if not len(keys):
        return np.zeros(len(ids), np.int64)
    if tables["ops"].steps("op")[0] > 0:
        return np.minimum(np.searchsorted(keys, ids), len(keys) - 1).astype(np.int64)
    order = np.argsort(keys, kind="stable")
    return order[np.minimum(np.searchsorted(keys, ids, sorter=order), len(keys) - 1)].astype(np.int64)


def keys_and_refs(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check that keys count up and references name rows that exist."""
    for name, spec in TABLES.items():
        t = tables[name]
        if not t.rows:
            continue
        if spec.key == "op":
            ids = t.ints("op")
            bad = ids < 0
            bad[1:] |= ids[1:] <= ids[:-1]  # a difference may overflow
            found.rows("id", name, bad, lambda r, ids=ids: f"op {ids[r]} does not follow op {ids[r - 1]}")  # type: ignore[misc]
        elif spec.key:
            ids = t.ints(spec.key)
            bad = ids != np.arange(t.rows)
            found.rows("id", name, bad, lambda r, ids=ids, k=spec.key: f"{k} {ids[r]} in row {r}")  # type: ignore[misc]
        for column, target in spec.refs:
            ids, valid = t.ints(column), t.valid(column)
            bad = np.zeros(t.rows, np.bool_)
            bad[valid] = ~exists(tables, target, ids[valid])
            found.rows("ref", name, bad, lambda r, c=column, x=target, ids=ids: f"{c} {ids[r]} is not in {x}")  # type: ignore[misc]


def words_and_signs(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check enumerations against their words, and that sizes and times are not negative."""
    for name, spec in TABLES.items():
        t = tables[name]
        if not t.rows:
            continue
        for c in spec.columns:
            if c.words:
                w = t.words(c.name)
                if set(w.words) <= set(c.words):
                    continue
                bad = (w.codes >= 0) & ~w.isin(c.words)
                found.rows("word", name, bad, lambda r, w=w, n=c.name: f"{n} is {w[r]!r}")  # type: ignore[misc]
            elif pa.types.is_integer(c.type) and (name, c.name) not in _SIGNED:
                v = t.ints(c.name)
                bad = t.valid(c.name) & (v < 0)
                found.rows("negative", name, bad, lambda r, v=v, n=c.name: f"{n} is {v[r]}")  # type: ignore[misc]


def _groups(ids: Ints) -> tuple[Ints, Ints]:
    """Return where each run of equal ids begins, and its id."""
    starts = np.flatnonzero(np.diff(ids, prepend=ids[0] - 1)) if len(ids) else np.zeros(0, np.int64)
    return starts.astype(np.int64), ids[starts]


def sets_and_lists(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check that access sets and lists are in order and that ops name existing ones."""
    a, lists, ops = tables["accesses"], tables["lists"], tables["ops"]
    if a.rows:
        ids, seq = a.ints("set"), a.ints("seq")
        bad = np.diff(ids, prepend=0) < 0
        bad[0] |= ids[0] < 1
        starts, _ = _groups(ids)
        first = np.repeat(starts, np.diff(starts, append=a.rows))
        bad |= seq != np.arange(a.rows) - first
        found.rows("set-order", "accesses", bad, lambda r: f"set {ids[r]} seq {seq[r]}")
    if lists.rows:
        lids = lists.ints("list")
        bad = np.diff(lids, prepend=0) < 0
        found.rows("list-order", "lists", bad, lambda r: f"list {lids[r]} after list {lids[r - 1]}")
    if ops.rows:
        used = ops.ints("access_set")
        bad = ops.valid("access_set") & (used != 0) & ~np.isin(used, np.unique(a.ints("set")))
        found.rows("set-ref", "ops", bad, lambda r: f"access_set {used[r]} has no rows")
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
    used = ops.ints("access_set")
    bad = np.isin(used, ids[grows]) & ~ops.valid("arg")
    found.rows("access-arg", "ops", bad, lambda r: f"access_set {used[r]} grows with arg, which is null")
    bad = np.isin(used, ids[repeats]) & ~ops.valid("list")
    found.rows("access-arg", "ops", bad, lambda r: f"access_set {used[r]} repeats per unit, but list is null")

    # the least and greatest arg and unit that each set is used with; sets nobody uses count with 0
    sets = np.unique(ids)
    at = np.searchsorted(sets, ids)
    args = _extremes(sets, used, ops.ints("arg"), ops.valid("arg"))
    list_ids, list_lo, list_hi = _list_extremes(lists)
    named = ops.ints("list")
    has_list = ops.valid("list") & np.isin(named, list_ids)
    where = np.searchsorted(list_ids, named[has_list])
    lo = _extremes(sets, used[has_list], list_lo[where], np.ones(len(where), np.bool_))[0]
    hi = _extremes(sets, used[has_list], list_hi[where], np.ones(len(where), np.bool_))[1]

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
    wrong = np.zeros(a.rows, np.bool_)
    for arg in args:
        for unit in (lo, hi):
            wrong |= _outside(shape, arg[at], unit[at], limit)
    # These corners are more than any one op needs: ask again with the arg and list of each op.
    ask = np.flatnonzero(wrong & (grows | repeats) & np.isin(ids, used))
    if len(ask):
        by_set = np.argsort(used, kind="stable")
        low, high = np.zeros(ops.rows, np.int64), np.zeros(ops.rows, np.int64)
        low[has_list], high[has_list] = list_lo[where], list_hi[where]
        arg = np.where(ops.valid("arg"), ops.ints("arg"), 0)
        begins = np.searchsorted(used[by_set], ids[ask], side="left")
        ends = np.searchsorted(used[by_set], ids[ask], side="right")
        for row, first, last in zip(ask.tolist(), begins.tolist(), ends.tolist(), strict=True):
            mine = by_set[first:last]
            one = tuple(column[row] for column in shape)
            wrong[row] = any(_outside(one, arg[mine], u[mine], limit[row]).any() for u in (low, high))
    found.rows(
        "access-range",
        "accesses",
        wrong,
        lambda r: f"set {ids[r]} reaches beyond buffer {buf[r]} of {size[r]} bytes",
    )


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


def _extremes(sets: Ints, used: Ints, values: Ints, valid: Bools) -> tuple[Ints, Ints]:
    """Return per set the least and greatest value of the ops that use it, 0 where nobody does."""
    low = np.full(len(sets), np.iinfo(np.int64).max)
    high = np.full(len(sets), np.iinfo(np.int64).min)
    keep = valid & np.isin(used, sets)
    at = np.searchsorted(sets, used[keep])
    np.minimum.at(low, at, values[keep])
    np.maximum.at(high, at, values[keep])
    none = low > high
    low[none] = high[none] = 0
    return low, high


def _list_extremes(lists: Columns) -> tuple[Ints, Ints, Ints]:
    if not lists.rows:
        empty = np.zeros(0, np.int64)
        return empty, empty, empty
    order = np.argsort(lists.ints("list"), kind="stable")
    ids, units = lists.ints("list")[order], lists.ints("unit")[order]
    starts, names = _groups(ids)
    return names, np.minimum.reduceat(units, starts), np.maximum.reduceat(units, starts)


def buffers_nest(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check that sub-allocations lie inside their parents."""
    b = tables["buffers"]
    if not b.rows:
        return
    ids, parent, offset, size = b.ints("buffer"), b.ints("parent"), b.ints("parent_offset"), b.ints("bytes")
    child = b.valid("parent")
    found.rows(
        "buffer-parent",
        "buffers",
        child & (parent >= ids),
        lambda r: f"parent {parent[r]} of buffer {ids[r]}",
    )
    found.rows(
        "buffer-parent",
        "buffers",
        child != b.valid("parent_offset"),
        "parent and parent_offset are not set together",
    )
    found.rows(
        "buffer-parent", "buffers", child & b.valid("shared_key"), "shared_key on a buffer that has a parent"
    )
    up = np.where(child & (parent >= 0) & (parent < b.rows), parent, 0)
    other = child & (b.ints("device") != b.ints("device")[up])
    found.rows("buffer-parent", "buffers", other, lambda r: f"parent {parent[r]} is on another device")
    sized = (
        child
        & b.valid("parent_offset")
        & b.valid("bytes")
        & b.valid("bytes")[up]
        & (offset >= 0)
        & (size >= 0)
    )
    beyond = sized & ((offset > size[up]) | (size > size[up] - np.minimum(offset, size[up])))
    found.rows("buffer-parent", "buffers", beyond, lambda r: f"reaches beyond its parent {parent[r]}")


def buffers_live(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check that alloc and free ops and the rows of their buffers name each other."""
    b, ops = tables["buffers"], tables["ops"]
    if not ops.rows:
        return
    kind, target = ops.words("kind"), ops.ints("target")
    for word in ("alloc", "free"):
        column = f"{word}_op"
        op = b.ints(column)
        has = b.valid(column) & exists(tables, "ops", op)
        row = op_rows(tables, op)
        good = kind.isin((word,))[row] & (target[row] == b.ints("buffer"))
        found.rows(
            "buffer-life",
            "buffers",
            has & ~good,
            lambda r, c=column, w=word, op=op: f"{c} {op[r]} is no {w} of this buffer",  # type: ignore[misc]
        )
        # and back: the first alloc or free that names a buffer is the one its row names
        mine = np.flatnonzero(kind.isin((word,)) & ops.valid("target") & exists(tables, "buffers", target))
        wanted, first = np.unique(target[mine], return_index=True)
        named = np.full(int(wanted.max()) + 1 if len(wanted) else 1, -1)
        keys = b.ints("buffer")
        fits = (keys >= 0) & (keys < len(named))
        named[keys[fits]] = np.where(b.valid(column), op, -1)[fits]
        for buffer, row_of in zip(wanted.tolist(), mine[first].tolist(), strict=True):
            if named[buffer] != ops.ints("op")[row_of]:
                found.add(
                    "buffer-life", "ops", row_of, f"{word} of buffer {buffer}, whose {column} is another"
                )
        if word == "alloc":
            again = np.setdiff1d(mine, mine[first])
            for row_of in again.tolist():
                found.add("buffer-life", "ops", row_of, f"buffer {target[row_of]} is allocated twice")
    both = b.valid("alloc_op") & b.valid("free_op")
    found.rows(
        "buffer-life",
        "buffers",
        both & (b.ints("free_op") <= b.ints("alloc_op")),
        "freed before it is allocated",
    )


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
        issuer = ops.ints("issuer")
        fits = ops.valid("issuer") & (issuer >= 0) & (issuer < q.rows)
        bad = fits & ~host[np.where(fits, issuer, 0)]
        found.rows("queue-host", "ops", bad, lambda r: f"issuer {issuer[r]} is no host thread")
        queue = ops.ints("queue")
        fits = (queue >= 0) & (queue < q.rows)
        bad = fits & ~host[np.where(fits, queue, 0)] & ops.words("kind").isin(("sync",))
        found.rows("queue-host", "ops", bad, lambda r: f"a sync on queue {queue[r]}, which is no host thread")


def ops_synchronise(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check parents, waits, records, semaphores and collectives."""
    ops = tables["ops"]
    if not ops.rows:
        return
    ids, kind, sync = ops.ints("op"), ops.words("kind"), ops.ints("sync")
    parent = ops.ints("parent")
    found.rows(
        "op-parent",
        "ops",
        ops.valid("parent") & (parent >= ids),
        lambda r: f"parent {parent[r]} of op {ids[r]}",
    )
    needs = kind.isin(("record", "wait", "semsig", "semwait", "coll"))
    found.rows("sync-missing", "ops", needs & ~ops.valid("sync"), lambda r: f"a {kind[r]} without sync")
    wait = kind.isin(("wait",))
    of = ops.ints("sync_of")
    has = ops.valid("sync_of")
    found.rows("sync-of", "ops", has & ~wait, lambda r: f"sync_of on a {kind[r]}")
    row = op_rows(tables, of)
    there = has & wait & exists(tables, "ops", of)
    bad = there & ~((of < ids) & kind.isin(("record",))[row] & (sync[row] == sync))
    found.rows("sync-of", "ops", bad, lambda r: f"op {of[r]} is no earlier record of sync {sync[r]}")
    stated = ops.words("wait_state").codes >= 0
    found.rows("wait-state", "ops", stated & (~wait | has), "wait_state where sync_of or no wait is")
    valued = ops.valid("value") & ~kind.isin(("semsig", "semwait"))
    found.rows("value", "ops", valued, lambda r: f"value on a {kind[r]}")

    some = kind.isin(("wait_any",))
    found.rows("wait-any", "ops", some & ~ops.valid("list"), "a wait_any without list")
    lists = tables["lists"]
    if some.any() and lists.rows:
        mine = np.isin(lists.ints("list"), ops.ints("list")[some & ops.valid("list")])
        unit = lists.ints("unit")
        bad = mine & ~exists(tables, "syncs", unit)
        found.rows("wait-any", "lists", bad, lambda r: f"a wait_any names sync {unit[r]}")


def ops_aim(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check the targets of syncs, allocs and frees."""
    ops = tables["ops"]
    if not ops.rows:
        return
    kind, aim, target = ops.words("kind"), ops.words("target_kind"), ops.ints("target")
    has, aimed = ops.valid("target"), aim.codes >= 0
    is_sync = kind.isin(("sync",))
    found.rows("target", "ops", is_sync & ~aimed, "a sync without target_kind")
    found.rows("target", "ops", aimed & ~is_sync, lambda r: f"target_kind on a {kind[r]}")
    every = is_sync & aim.isin(("all",))
    found.rows("target", "ops", every & has, "a sync of all with a target")
    found.rows("target", "ops", is_sync & aim.isin(("queue", "device")) & ~has, "a sync without target")
    stray = has & ~kind.isin(("sync", "alloc", "free"))
    found.rows("target", "ops", stray, lambda r: f"target on a {kind[r]}")
    for where, table in (
        (is_sync & aim.isin(("queue",)), "queues"),
        (is_sync & aim.isin(("device",)), "devices"),
        (kind.isin(("alloc", "free")), "buffers"),
    ):
        bad = has & where & ~exists(tables, table, target)
        found.rows("target", "ops", bad, lambda r, x=table: f"target {target[r]} is not in {x}")  # type: ignore[misc]


def ops_in_time(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check that issue times of one issuer do not go back."""
    ops = tables["ops"]
    rows = np.flatnonzero(ops.valid("issue_ns") & ops.valid("issuer")) if ops.rows else np.zeros(0, np.int64)
    if not len(rows):
        return
    issuer, at = ops.ints("issuer")[rows], ops.ints("issue_ns")[rows]
    order = np.argsort(issuer, kind="stable")
    same = np.diff(issuer[order], prepend=-2) == 0
    back = same & (np.diff(at[order], prepend=0) < 0)
    bad = np.zeros(ops.rows, np.bool_)
    bad[rows[order[back]]] = True
    when = ops.ints("issue_ns")
    found.rows("time-order", "ops", bad, lambda r: f"issue_ns {when[r]} is before the issuer's previous op")


def nothing_grows_over(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check the numbers and depths that a reader has to bear."""
    ops, buffers, queues = tables["ops"], tables["buffers"], tables["queues"].rows
    if queues > MAX_QUEUES:
        found.add("limit", "queues", None, f"{queues} queues")
    if buffers.rows:
        rows = np.arange(buffers.rows)
        parent = buffers.ints("parent")
        up = np.where(buffers.valid("parent") & (parent < rows), parent, -1)
        at = up
        for _ in range(MAX_BUFFER_DEPTH):
            at = np.where(at >= 0, up[at], -1)
            if (at < 0).all():
                break
        found.rows("limit", "buffers", at >= 0, lambda r: f"buffer {r} lies in more than {MAX_BUFFER_DEPTH}")
    if ops.rows and ops.valid("parent").any():
        parent, member = op_rows(tables, ops.ints("parent")), ops.words("kind").isin(("coll",))
        known = (
            ops.valid("parent") & exists(tables, "ops", ops.ints("parent")) & (parent < np.arange(ops.rows))
        )
        kin = kinship(
            np.where(member & ops.valid("sync"), ops.ints("sync"), -1).tolist(),
            np.where(known, parent, -1).tolist(),
        )
        for code, row, fault in kin.faults:
            found.add(code, "ops", row, f"op {ops.ints('op')[row]} {fault}")


def edges_join(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check that an edge joins two ops."""
    e = tables["edges"]
    if e.rows:
        found.rows("edge", "edges", e.ints("src") == e.ints("dst"), "src and dst are the same op")


def manifest_agrees(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check the manifest against the tables, and for paths."""
    m = tape.manifest
    seen: set[int] = set()
    for i, c in enumerate(m.coverage):
        if c.queue in seen or not 0 <= c.queue < tables["queues"].rows:
            found.add("coverage", "manifest", i, f"queue {c.queue} twice or not in queues")
        seen.add(c.queue)
        for word in (c.accesses, c.host_accesses, c.waits, c.times):
            if word not in COVERAGE:
                found.add("coverage", "manifest", i, f"{word!r} is none of {', '.join(COVERAGE)}")
    if [p.process for p in m.processes] != list(range(len(m.processes))):
        found.add("process", "manifest", None, "processes do not count from 0")
    for name, spec in TABLES.items():
        if any(c.name == "process" for c in spec.columns):
            t = tables[name]
            v = t.ints("process")
            bad = t.valid("process") & ((v < 0) | (v >= len(m.processes)))
            found.rows("process", name, bad, lambda r, v=v: f"process {v[r]} is not in the manifest")  # type: ignore[misc]
    if m.complete and not all(p.complete for p in m.processes):
        found.add("counts", "manifest", None, "complete, but a process is not")
    if m.lost < sum(p.lost for p in m.processes):
        found.add("counts", "manifest", None, "lost is less than the processes' together")
    said = {"engine": m.engine, "switches": m.switches, "notes": list(m.notes)}
    for key, text in _texts(said, "manifest"):
        if _PATH.search(text):
            found.add("private", "manifest", None, f"{key} looks like a path")


def _texts(value: Any, key: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for k, v in value.items():
            yield from _texts(v, f"{key}.{k}")
    elif isinstance(value, list):
        for i, v in enumerate(value):
            yield from _texts(v, f"{key}[{i}]")


def graphs_hold(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check the nodes of graphs."""
    g, n = tables["graphs"], tables["nodes"]
    if not g.rows and not n.rows:
        return
    graph, node = n.ints("graph"), n.ints("node")
    starts, names = _groups(graph)
    if n.rows:
        first = np.repeat(starts, np.diff(starts, append=n.rows))
        bad = node != np.arange(n.rows) - first
        _, again = np.unique(names, return_index=True)
        twice = np.setdiff1d(np.arange(len(names)), again)
        bad[starts[twice]] = True
        found.rows("node", "nodes", bad, lambda r: f"node {node[r]} of graph {graph[r]} out of order")
    length = dict(zip(names.tolist(), np.diff(starts, append=n.rows).tolist(), strict=True))
    wanted = g.ints("n_nodes") + g.ints("n_leafs")
    have = np.array([length.get(i, 0) for i in g.ints("graph").tolist()], np.int64)
    # a graph may be known by its counts only
    bad = (have != 0) & (have != wanted)
    found.rows("node", "graphs", bad, lambda r: f"{have[r]} nodes instead of {wanted[r]}")
    if not n.rows:
        return
    sources = tape.table("nodes").column("sources").combine_chunks()
    flat = sources.flatten().fill_null(-2).to_numpy()
    counts = sources.value_lengths().fill_null(0).to_numpy()
    owner = np.repeat(np.arange(n.rows), counts)
    total = np.array([length[i] for i in graph.tolist()], np.int64)
    wrong = np.zeros(n.rows, np.bool_)
    wrong[owner[(flat < -1) | (flat >= total[owner])]] = True
    view = n.ints("view_source")
    wrong |= n.valid("view_source") & ((view < -1) | (view >= total))
    found.rows("node", "nodes", wrong, "a source outside the graph")


def profiles_known(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check that devices name known profiles that make sense."""
    for name, data in tape.manifest.profiles.items():
        try:
            Profile.from_dict(name, data)
        except InvalidTape as e:
            found.add("profile", "manifest", None, e.found)
    d = tables["devices"]
    if not d.rows:
        return
    w = d.words("profile")
    bad = ~w.isin({*BUILTIN, *tape.manifest.profiles})
    found.rows(
        "profile", "devices", bad, lambda r: f"profile {w[r]!r} is neither built in nor in the manifest"
    )


ALL_RULES: tuple[Rule, ...] = (
    keys_and_refs,
    words_and_signs,
    sets_and_lists,
    access_ranges,
    buffers_nest,
    buffers_live,
    queues_issue,
    ops_synchronise,
    ops_aim,
    ops_in_time,
    nothing_grows_over,
    edges_join,
    manifest_agrees,
    graphs_hold,
    profiles_known,
)
