"""The two long tables in the making: ops, added in any order and numbered at the end, and access sets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from ....formats.schema import SCHEMAS

__all__ = ["AFTER", "BEFORE", "SELF", "AccessRow", "AccessSets", "OpRows"]

BEFORE, SELF, AFTER = 1, 2, 3
"""Where an op stands relative to the record at its position: some ops are put between records."""

_COLUMNS = (
    "kind", "name", "queue", "issuer", "parent", "sync", "sync_of", "wait_state", "target_kind", "target",
    "access_set", "issue_ns", "start_after_issue_ns", "duration_ns", "bytes", "origin",
)  # fmt: skip
_AT = {name: i for i, name in enumerate(_COLUMNS)}
_ORIGIN = _AT["origin"]
_REFERENCES = ("parent", "sync_of")

AccessRow = tuple[int | None, int, int, str, str, str | None]
"""Buffer, offset, bytes, mode, origin, name."""
_ACCESS_COLUMNS = ("buffer", "offset", "bytes", "mode", "origin", "name")


class OpRows:
    """Rows of the ``ops`` table. Ids handed out by `add` are provisional; `numbered` maps them."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._keys: list[int] = []
        self._sorted: Any = np.empty(0, np.int64)
        self._step_of: list[tuple[Any, Any, Any]] = []
        self._chosen_steps: dict[int, int] = {}
        self.numbered: Any = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, position: int, place: int, **values: Any) -> int:
        """Add an op at (before, at, after) the record at `position` and return its provisional id."""
        return self.add_values(position, place, values)

    def add_values(self, position: int, place: int, values: dict[str, Any]) -> int:
        """As `add`, without a copy of the values."""
        self._rows.append(tuple(map(values.get, _COLUMNS)))
        self._keys.append(position * 4 + place)
        return len(self._rows) - 1

    def set(self, op: int, **values: Any) -> None:
        """Change columns of an op added before."""
        row = list(self._rows[op])
        for name, value in values.items():
            row[_AT[name]] = value
        self._rows[op] = tuple(row)

    def give_steps(self, positions: Any, steps: Any, splits: Any) -> None:
        """Say to which step and split the ops at these positions belong; -1 = none."""
        self._step_of.append((np.asarray(positions, np.int64), steps, splits))

    def set_step(self, op: int, step: int) -> None:
        """Say to which step an op belongs that stands elsewhere."""
        self._chosen_steps[op] = step

    def number_at(self, position: int) -> int | None:
        """Return the number of the op of the record at `position`, once ops are numbered."""
        key = position * 4 + SELF
        at = int(np.searchsorted(self._sorted, key))
        return at if at < len(self._sorted) and self._sorted[at] == key else None

    def precedes(self, a: int, b: int) -> bool:
        """Return whether op `a` stands before op `b`."""
        return self._keys[a] < self._keys[b]

    def get(self, op: int, name: str) -> Any:
        """Return one value."""
        return self._rows[op][_AT[name]]

    def finish(self) -> pa.Table:
        """Number the ops in issue order and return the table."""
        n = len(self._rows)
        keys = np.array(self._keys, np.int64)
        order = np.argsort(keys, kind="stable")
        self._sorted = keys[order]
        places = dict(zip(("step", "split"), self._places(keys), strict=True))
        self.numbered = np.empty(n, np.int64)
        self.numbered[order] = np.arange(n)
        take = pa.array(order)
        columns = list(zip(*self._rows, strict=True)) or [()] * len(_COLUMNS)
        arrays = []
        for f in SCHEMAS["ops"]:
            if f.name == "op":
                arrays.append(pa.array(np.arange(n), f.type))
                continue
            if f.name in places:
                where = places[f.name][order]
                arrays.append(pa.array(where, f.type, mask=where < 0))
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
            arrays.append(_array(values, f.type, take))
        return pa.Table.from_arrays(arrays, schema=SCHEMAS["ops"])

    def _places(self, keys: Any) -> tuple[Any, Any]:
        """Return step and split of each op, -1 = none."""
        size = max((int(p.max()) + 1 for p, _, _ in self._step_of if len(p)), default=0)
        step, split = np.full(size + 1, -1, np.int64), np.full(size + 1, -1, np.int64)
        for positions, steps, splits in self._step_of:
            step[positions], split[positions] = steps, splits
        at = np.minimum(keys // 4, size)
        of_op = step[at]
        for op, chosen in self._chosen_steps.items():
            of_op[op] = chosen
        return of_op, split[at]


class AccessSets:
    """Rows of the ``accesses`` table; equal sets have one id."""

    def __init__(self) -> None:
        self._sets: dict[tuple[AccessRow, ...], int] = {}

    def add(self, rows: Iterable[AccessRow]) -> int:
        """Return the id of the set with exactly these accesses, in this order (0 for none)."""
        key = tuple(rows)
        return self._sets.setdefault(key, len(self._sets) + 1) if key else 0

    def finish(self) -> pa.Table:
        """Return the table."""
        rows = [row for key in self._sets for row in key]
        columns: dict[str, Any] = {n: [row[i] for row in rows] for i, n in enumerate(_ACCESS_COLUMNS)}
        columns["set"] = [i for key, i in self._sets.items() for _ in key]
        columns["seq"] = [seq for key in self._sets for seq in range(len(key))]
        arrays = []
        for f in SCHEMAS["accesses"]:
            values = columns.get(f.name)
            if values is not None:
                arrays.append(_array(values, f.type))
            elif f.nullable:
                arrays.append(pa.nulls(len(rows), f.type))
            else:  # nothing recorded here grows
                arrays.append(pa.array(np.zeros(len(rows), np.int64), f.type))
        return pa.Table.from_arrays(arrays, schema=SCHEMAS["accesses"])


def _array(values: Any, kind: pa.DataType, take: Any = None) -> Any:
    plain = pa.array(values, pa.string() if pa.types.is_dictionary(kind) else kind)
    if take is not None:
        plain = plain.take(take)
    return plain.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else plain
