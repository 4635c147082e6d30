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
_DEFAULTS: dict[str, Any] = {**dict.fromkeys(_COLUMNS), "origin": "observed"}
_REFERENCES = ("parent", "sync_of")


class OpRows:
    """Columns of the ``ops`` table. Ids handed out by `add` are provisional; `numbered` maps them."""

    def __init__(self) -> None:
        self._columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        self._keys: list[int] = []
        self.numbered: Any = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, position: int, place: int, **values: Any) -> int:
        """Add an op at (before, at, after) the record at `position` and return its provisional id."""
        for name, column in self._columns.items():
            column.append(values[name] if name in values else _DEFAULTS[name])
        self._keys.append(position * 4 + place)
        return len(self._keys) - 1

    def set(self, op: int, **values: Any) -> None:
        """Change columns of an op added before."""
        for name, value in values.items():
            self._columns[name][op] = value

    def precedes(self, a: int, b: int) -> bool:
        """Return whether op `a` stands before op `b`."""
        return self._keys[a] < self._keys[b]

    def get(self, op: int, name: str) -> Any:
        """Return one value."""
        return self._columns[name][op]

    def finish(self) -> pa.Table:
        """Number the ops in issue order and return the table."""
        n = len(self._keys)
        order = np.argsort(np.array(self._keys, np.int64), kind="stable")
        self.numbered = np.empty(n, np.int64)
        self.numbered[order] = np.arange(n)
        take = pa.array(order)
        arrays = []
        for f in SCHEMAS["ops"]:
            if f.name == "op":
                arrays.append(pa.array(np.arange(n), f.type))
            elif f.name not in self._columns:
                arrays.append(pa.nulls(n, f.type))
            else:
                values = self._columns[f.name]
                if f.name in _REFERENCES:
                    values = [None if v is None else int(self.numbered[v]) for v in values]
                if pa.types.is_dictionary(f.type):
                    column = pa.array(values, pa.string()).take(take).dictionary_encode().cast(f.type)
                else:
                    column = pa.array(values, f.type).take(take)
                arrays.append(column)
        return pa.Table.from_arrays(arrays, schema=SCHEMAS["ops"])
