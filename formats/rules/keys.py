"""Keys, references, words and signs: what the schema says of every table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ..schema import TABLES
from ..tape import Tape
from ..validate import Findings
from .lookup import Tables, exists

__all__ = ["keys_and_refs", "words_and_signs"]

_SIGNED = {("ops", "start_after_issue_ns"), ("inputs", "value"), ("nodes", "flags"), ("nodes", "view_source")}
_SIGNED |= {("accesses", "offset_per_arg"), ("accesses", "bytes_per_arg"), ("requests", "priority")}
_SIGNED |= {("requests", "arrive_ns"), ("inputs", "at_ns")}  # an input may come before the first op
_SIGNED |= {("inputs", "arrive_ns")}
_SIGNED |= {("graphs", "uid"), ("ops", "value"), ("ops", "arg")}
_SIGNED |= {("resources", "free"), ("resources", "used")}  # the engine's own counters: `check` judges them


def keys_and_refs(found: Findings, tape: Tape, tables: Tables) -> None:
    """Check that keys count up and references name rows that exist."""
    for name, spec in TABLES.items():
        t = tables[name]
        if not t.rows:
            continue
        if spec.key == "op":
            ids = t.raw("op")
            if ids[0] < 0 or not t.increases("op"):
                bad = ids < 0
                bad[1:] |= ids[1:] <= ids[:-1]  # a difference may overflow
                found.rows("id", name, bad, lambda r, ids=ids: f"op {ids[r]} does not follow op {ids[r - 1]}")  # type: ignore[misc]
        elif spec.key and not t.dense(spec.key):
            ids = t.ints(spec.key)
            bad = ids != np.arange(t.rows)
            found.rows("id", name, bad, lambda r, ids=ids, k=spec.key: f"{k} {ids[r]} in row {r}")  # type: ignore[misc]
        for column, target in spec.refs:
            to = tables[target]
            if to.dense(TABLES[target].key or "") and t.within(column, 0, to.rows):
                continue
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
                if set(t.dictionary(c.name)) <= set(c.words):
                    continue
                w = t.words(c.name)
                bad = (w.codes >= 0) & ~w.isin(c.words)
                found.rows("word", name, bad, lambda r, w=w, n=c.name: f"{n} is {w[r]!r}")  # type: ignore[misc]
            elif pa.types.is_integer(c.type) and (name, c.name) not in _SIGNED:
                bounds = t.bounds(c.name)
                if bounds is None or bounds[0] >= 0:
                    continue
                v = t.ints(c.name)
                bad = t.valid(c.name) & (v < 0)
                found.rows("negative", name, bad, lambda r, v=v, n=c.name: f"{n} is {v[r]}")  # type: ignore[misc]
