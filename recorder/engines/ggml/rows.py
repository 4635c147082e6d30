"""Ops in the making: added in any order, numbered at the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ....formats.schema import SCHEMAS

__all__ = ["AFTER", "BEFORE", "SELF", "OpRows"]

BEFORE, SELF, AFTER = 1, 2, 3
"""Where an op stands relative to the record at its position: some ops are put between records."""

_COLUMNS = (
    "kind", "name", "queue", "issuer", "parent", "sync", "sync_of", "wait_state", "target_kind", "target",
    "access_set", "issue_ns", "start_after_issue_ns", "duration_ns", "bytes", "origin",
)  # fmt: skip
_AT = {name: i for i, name in enumerate(_COLUMNS)}
_ORIGIN = _AT["origin"]
_REFERENCES = ("parent", "sync_of")


class OpRows:
    """Rows of the ``ops`` table. Ids handed out by `add` are provisional; `numbered` maps them."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._keys: list[int] = []
        self.numbered: Any = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, position: int, place: int, **values: Any) -> int:
        """Add an op at (before, at, after) the record at `position` and return its provisional id."""
        self._rows.append(tuple(map(values.get, _COLUMNS)))
        self._keys.append(position * 4 + place)
        return len(self._rows) - 1

    def set(self, op: int, **values: Any) -> None:
        """Change columns of an op added before."""
        row = list(self._rows[op])
        for name, value in values.items():
            row[_AT[name]] = value
        self._rows[op] = tuple(row)

    def precedes(self, a: int, b: int) -> bool:
        """Return whether op `a` stands before op `b`."""
        return self._keys[a] < self._keys[b]

    def get(self, op: int, name: str) -> Any:
        """Return one value."""
        return self._rows[op][_AT[name]]

    def finish(self) -> pa.Table:
        """Number the ops in issue order and return the table."""
        n = len(self._rows)
        order = np.argsort(np.array(self._keys, np.int64), kind="stable")
        self.numbered = np.empty(n, np.int64)
        self.numbered[order] = np.arange(n)
        take = pa.array(order)
        columns = list(zip(*self._rows, strict=True)) or [()] * len(_COLUMNS)
        arrays = []
        for f in SCHEMAS["ops"]:
            if f.name == "op":
                arrays.append(pa.array(np.arange(n), f.type))
                continue
            at = _AT.get(f.name)
            if at is None:
                arrays.append(pa.nulls(n, f.type))
                continue
            values = columns[at]
            if f.name in _REFERENCES:
                values = tuple(None if v is None else int(self.numbered[v]) for v in values)
            elif at == _ORIGIN:
                values = tuple(v or "observed" for v in values)
            if pa.types.is_dictionary(f.type):
                arrays.append(pa.array(values, pa.string()).take(take).dictionary_encode().cast(f.type))
            else:
                arrays.append(pa.array(values, f.type).take(take))
        return pa.Table.from_arrays(arrays, schema=SCHEMAS["ops"])
