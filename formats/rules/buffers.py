"""Buffers: what they lie in, what begins and ends them."""

from __future__ import annotations

import numpy as np

from ..tape import Tape
from ..validate import Findings
from .lookup import Tables, exists, marked, op_rows

__all__ = ["buffers_live", "buffers_nest"]


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
    target, keys, op_ids = ops.raw("target"), b.ints("buffer"), ops.raw("op")
    has_target = ops.valid("target")
    for word in ("alloc", "free"):
        column = f"{word}_op"
        mine = np.flatnonzero(ops.isin("kind", word) & has_target)
        op = b.ints(column)
        named = np.flatnonzero(b.valid(column))
        named = named[exists(tables, "ops", op[named])]
        row = op_rows(tables, op[named])
        is_mine = marked(ops.rows, mine)
        bad = np.zeros(b.rows, np.bool_)
        bad[named] = ~(is_mine[row] & (target[row] == keys[named]))
        found.rows(
            "buffer-life",
            "buffers",
            bad,
            lambda r, c=column, w=word, op=op: f"{c} {op[r]} is no {w} of this buffer",  # type: ignore[misc]
        )
        # and back: the first alloc or free that names a buffer is the one its row names
        mine = mine[exists(tables, "buffers", target[mine].astype(np.int64))]
        wanted, first = np.unique(target[mine], return_index=True)
        by_buffer = np.full(int(wanted.max()) + 1 if len(wanted) else 1, -1)
        fits = (keys >= 0) & (keys < len(by_buffer))
        by_buffer[keys[fits]] = np.where(b.valid(column), op, -1)[fits]
        bad = np.zeros(ops.rows, np.bool_)
        bad[mine[first]] = by_buffer[wanted] != op_ids[mine[first]]
        found.rows(
            "buffer-life",
            "ops",
            bad,
            lambda r, w=word, c=column: f"{w} of buffer {target[r]}, whose {c} is another",  # type: ignore[misc]
        )
        if word == "alloc":
            again = np.ones(len(mine), np.bool_)
            again[first] = False
            bad = marked(ops.rows, mine[again])
            found.rows("buffer-life", "ops", bad, lambda r: f"buffer {target[r]} is allocated twice")
    both = b.valid("alloc_op") & b.valid("free_op")
    found.rows(
        "buffer-life",
        "buffers",
        both & (b.ints("free_op") <= b.ints("alloc_op")),
        "freed before it is allocated",
    )
