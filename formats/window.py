"""A range of a tape's ops as a tape of its own."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .builder import table_from_rows
from .edges import RULES, resolve
from .errors import UsageError
from .shown import plural
from .tape import Manifest, Tape

__all__ = ["window", "window_of_ops", "windows"]

Rows = list[dict[str, Any]]
Bools = npt.NDArray[np.bool_]
_NOTE = re.compile(r"window [0-9]{1,19}:[0-9]{1,19} of [0-9]{1,19} ops")


def window(tape: Tape, begin: int, end: int) -> Tape:
    """Return the ops ``begin <= op < end`` and what they need.

    Op ids stay; buffers, syncs, access sets and lists that nothing names any more are left out and the others
    renumbered. What keeps the order inside the window is kept as well: the parents of its ops and all members
    of its collectives. What lies outside otherwise is gone: a wait for an earlier record is no edge, an
    earlier alloc means that the buffer lived before. Semaphores that signal across the border become marks,
    with the pairs inside the window as explicit edges. A note of the manifest says which window it is.
    """
    ops = tape.table("ops")
    keep = _chosen(ops, begin, end)
    rows: Rows = ops.filter(pa.array(keep)).to_pylist()
    kept = {r["op"] for r in rows}
    edges: Rows = [e for e in tape.table("edges").to_pylist() if e["src"] in kept and e["dst"] in kept]
    edges += _cut_semaphores(tape, rows, keep)
    for r in rows:
        if r["parent"] not in kept:
            r["parent"] = None
        if r["sync_of"] is not None and r["sync_of"] not in kept:
            r["sync_of"], r["wait_state"] = None, "none"
    tables: dict[str, Rows] = {"ops": rows, "edges": edges}
    tables["delays"] = [d for d in tape.table("delays").to_pylist() if d["op"] in kept]
    tables["lists"] = _lists(tape, rows)
    tables["syncs"] = _syncs(tape, rows, tables["lists"])
    tables["accesses"] = _accesses(tape, rows)
    tables["buffers"] = _buffers(tape, rows, tables["accesses"], kept)
    arrow = {name: table_from_rows(name, found) for name, found in tables.items()}
    for name in ("devices", "queues"):
        arrow[name] = tape.table(name)
    manifest = tape.manifest
    if len(rows) < ops.num_rows:
        last = int(ops.column("op")[-1].as_py())
        note = f"window {begin}:{min(end, last + 1)} of {ops.num_rows} ops"
        manifest = replace(manifest, notes=(*manifest.notes, note))
    return Tape(manifest, arrow, name=tape.name)


def window_of_ops(tape: Tape, first: int | None, last: int | None) -> Tape:
    """Return the window ``first <= op < last``; None: from the first op on, or to the last one.

    Raises
    ------
    UsageError
        Nothing is in it.
    """
    part = window(tape, first or 0, 1 << 62 if last is None else last)
    if part.rows("ops"):
        return part
    ids = tape.columns("ops", ("op",)).column("op")
    raise UsageError(
        f"no op in {':'.join('' if e is None else str(e) for e in (first, last))}",
        expected=f"op ids {ids[0]} to {ids[-1]}" if len(ids) else "ops: it has none",
        where=tape.where,
        next_step="choose another range; tapedelay info --dump shows the ops",
    )


def windows(manifest: Manifest) -> tuple[str, ...]:
    """Return what says of which ops a tape is a window, outer ones first; nothing for a whole one."""
    found = tuple(n for n in manifest.notes if _NOTE.fullmatch(n))
    if manifest.dropped:
        older = plural(manifest.dropped, "older record")
        return (f"window at the end of a run ({older} dropped)", *found)
    return found


def _numbers(table: pa.Table, column: str) -> npt.NDArray[np.int64]:
    """Return a column with -1 for null."""
    filled = table.column(column).cast(pa.int64()).combine_chunks().fill_null(-1)
    out: npt.NDArray[np.int64] = filled.to_numpy(zero_copy_only=False)
    return out


def _words(table: pa.Table, column: str) -> npt.NDArray[np.object_]:
    out: npt.NDArray[np.object_] = np.asarray(
        table.column(column).cast(pa.string()).to_pylist(), dtype=object
    )
    return out


def _chosen(ops: pa.Table, begin: int, end: int) -> Bools:
    """Return which rows are in the window, together with their parents and collectives."""
    ids, parent, sync = (_numbers(ops, c) for c in ("op", "parent", "sync"))
    keep: Bools = (ids >= begin) & (ids < end)
    if not keep.any():
        return keep
    coll = np.asarray(_words(ops, "kind") == "coll", dtype=np.bool_) & (sync >= 0)
    while True:
        wanted = np.isin(ids, parent[keep & (parent >= 0)]) | (coll & np.isin(sync, sync[keep & coll]))
        if not (wanted & ~keep).any():
            return keep
        keep |= wanted


def _cut_semaphores(tape: Tape, rows: Rows, keep: Bools) -> Rows:
    """Turn semaphores with an op outside into marks and return their pairs inside as edges."""
    mine = {r["sync"] for r in rows if r["kind"] in ("semsig", "semwait")}
    if not mine:
        return []
    ops = tape.table("ops")
    semaphore = np.isin(_words(ops, "kind"), ("semsig", "semwait"))
    cut = mine & set(_numbers(ops, "sync")[semaphore & ~keep].tolist())
    if not cut:
        return []
    contract = resolve(tape)
    pairs = contract.rule == RULES.index("semaphore")
    ids = _numbers(ops, "op")
    never = {int(ids[r]) for r in contract.never}
    by_id = {r["op"]: r for r in rows}
    out: Rows = []
    for source, target in zip(contract.source[pairs].tolist(), contract.target[pairs].tolist(), strict=True):
        src, dst = by_id.get(int(ids[source])), by_id.get(int(ids[target]))
        if src is not None and dst is not None and dst["sync"] in cut:
            out.append({"src": src["op"], "dst": dst["op"], "kind": "order", "origin": "observed"})
    for r in rows:
        if r["kind"] in ("semsig", "semwait") and r["sync"] in cut and r["op"] not in never:
            r["kind"], r["sync"], r["value"], r["sync_of"] = "mark", None, None, None
    return out


def _lists(tape: Tape, rows: Rows) -> Rows:
    new = _renumber(rows, "list", 0)
    found: dict[int, Rows] = {n: [] for n in new.values()}
    for r in tape.table("lists").to_pylist():
        if r["list"] in new:
            found[new[r["list"]]].append({**r, "list": new[r["list"]]})
    return [r for part in found.values() for r in part]


def _syncs(tape: Tape, rows: Rows, lists: Rows) -> Rows:
    any_of = {r["list"] for r in rows if r["kind"] == "wait_any"}
    used = {r["sync"] for r in rows} | {r["unit"] for r in lists if r["list"] in any_of}
    old: Rows = [s for s in tape.table("syncs").to_pylist() if s["sync"] in used]
    new = {s["sync"]: i for i, s in enumerate(old)}
    for r in rows:
        r["sync"] = new.get(r["sync"])
    shared = any_of & {r["list"] for r in rows if r["kind"] != "wait_any"}
    for r in lists:
        if r["list"] in any_of and r["list"] not in shared:
            r["unit"] = new.get(r["unit"], r["unit"])
    return [{**s, "sync": i} for i, s in enumerate(old)]


def _accesses(tape: Tape, rows: Rows) -> Rows:
    new = {0: 0, **_renumber(rows, "access_set", 1, same=(0,))}
    table = tape.table("accesses")
    wanted = np.isin(_numbers(table, "set"), [s for s in new if s])
    found: dict[int, Rows] = {n: [] for n in new.values()}
    for r in table.filter(pa.array(wanted)).to_pylist():
        found[new[r["set"]]].append({**r, "set": new[r["set"]]})
    return [r for part in found.values() for r in part]


def _buffers(tape: Tape, rows: Rows, accesses: Rows, kept: set[int]) -> Rows:
    table: Rows = tape.table("buffers").to_pylist()
    targets = [r for r in rows if r["kind"] in ("alloc", "free") and r["target"] is not None]
    used = {a["buffer"] for a in accesses if a["buffer"] is not None} | {r["target"] for r in targets}
    for b in reversed(table):
        if b["buffer"] in used and b["parent"] is not None:
            used.add(b["parent"])
    old = [b for b in table if b["buffer"] in used]
    new = {b["buffer"]: i for i, b in enumerate(old)}
    for a in accesses:
        a["buffer"] = new.get(a["buffer"])
    for r in targets:
        r["target"] = new[r["target"]]
    for i, b in enumerate(old):
        b["buffer"], b["parent"] = i, new.get(b["parent"])
        for column in ("alloc_op", "free_op"):
            if b[column] not in kept:
                b[column] = None
    return old


def _renumber(rows: Rows, column: str, start: int, same: tuple[int, ...] = ()) -> dict[int, int]:
    """Give the ids of a column new numbers in first-seen order, and return them."""
    new: dict[int, int] = {}
    for r in rows:
        old = r[column]
        if old is not None and old not in same:
            r[column] = new.setdefault(old, start + len(new))
    return new
