"""The two long tables in the making: ops, added in any order and numbered at the end, and access sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....formats.schema import SCHEMAS
from .joins import Ints

__all__ = ["AFTER", "BEFORE", "SELF", "AccessRow", "AccessSets", "Block", "OpRows"]

BEFORE, SELF, AFTER = 1, 2, 3
"""Where an op stands relative to the record at its position: some ops are put between records."""

_COLUMNS = (
    "kind", "name", "queue", "issuer", "parent", "sync", "sync_of", "wait_state", "target_kind", "target",
    "access_set", "issue_ns", "start_after_issue_ns", "duration_ns", "bytes", "origin",
)  # fmt: skip
_TEXTS = ("kind", "name", "wait_state", "target_kind", "origin")
_WIDE = ("issue_ns", "start_after_issue_ns", "duration_ns", "bytes", "parent", "sync_of", "target")
_REFERENCES = ("parent", "sync_of")
_NULL = -1

AccessRow = tuple[int | None, int, int, str, str, str | None]
"""Buffer, offset, bytes, mode, origin, name."""
_ACCESS_COLUMNS = ("buffer", "offset", "bytes", "mode", "origin", "name")


@dataclass
class Block:
    """Ops that were added together; their columns may be changed until ops are numbered.

    Attributes
    ----------
    first : int
        Provisional id of the first.
    keys : array of int
        Where they stand.
    columns : dict
        Arrays; -1 = null, and texts are numbers of `OpRows.text`. A column that is not there is null.
    """

    first: int
    keys: Ints
    columns: dict[str, npt.NDArray[Any]]


class OpRows:
    """Rows of the ``ops`` table. Ids handed out are provisional; `numbered` maps them."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._single: list[tuple[Any, ...]] = []
        self._single_keys: list[int] = []
        self._texts: dict[str, int] = {}
        self._count = 0
        self._sorted: Any = np.empty(0, np.int64)
        self._step_of: list[tuple[Any, Any, Any]] = []
        self._chosen_steps: dict[int, int] = {}
        self.numbered: Any = np.empty(0, np.int64)

    def __len__(self) -> int:
        return self._count

    def text(self, text: str) -> int:
        """Return the number of a text."""
        return self._texts.setdefault(text, len(self._texts))

    def add(self, position: int, place: int, **values: Any) -> int:
        """Add an op at (before, at, after) the record at `position` and return its provisional id."""
        return self.add_values(position, place, values)

    def add_values(self, position: int, place: int, values: Mapping[str, Any]) -> int:
        """As `add`, without a copy of the values."""
        self._single.append(tuple(map(values.get, _COLUMNS)))
        self._single_keys.append(position * 4 + place)
        self._count += 1
        return self._count - 1

    def add_block(self, positions: Ints, place: int, columns: dict[str, npt.NDArray[Any]]) -> Block:
        """Add many ops; see `Block` for the columns."""
        self._close()
        block = Block(self._count, positions * 4 + place, columns)
        self._blocks.append(block)
        self._count += len(positions)
        return block

    def _close(self) -> None:
        """Turn the ops that were added one by one into a block."""
        if not self._single:
            return
        columns = {}
        for name, values in zip(_COLUMNS, zip(*self._single, strict=True), strict=True):
            if name in _TEXTS:
                values = tuple(_NULL if v is None else self.text(v) for v in values)
            columns[name] = np.array([_NULL if v is None else v for v in values], _kind(name))
        first = self._count - len(self._single)
        self._blocks.append(Block(first, np.array(self._single_keys, np.int64), columns))
        self._single, self._single_keys = [], []

    def give_steps(self, positions: Any, steps: Any, splits: Any) -> None:
        """Say to which step and split the ops at these positions belong; -1 = none."""
        self._step_of.append((positions, steps, splits))

    def set_step(self, op: int, step: int) -> None:
        """Say to which step an op belongs that stands elsewhere."""
        self._chosen_steps[op] = step

    def number_at(self, position: int) -> int | None:
        """Return the number of the op of the record at `position`, once ops are numbered."""
        key = position * 4 + SELF
        at = int(np.searchsorted(self._sorted, key))
        return at if at < len(self._sorted) and self._sorted[at] == key else None

    def finish(self) -> pa.Table:
        """Number the ops in issue order and return the table. Nothing can be added afterwards."""
        self._close()
        n = self._count
        keys = np.concatenate([np.empty(0, np.int64), *(b.keys for b in self._blocks)])
        order = np.argsort(keys, kind="stable")
        self._sorted = keys[order]
        places = dict(zip(("step", "split"), self._places(keys), strict=True))
        self.numbered = np.empty(n, np.int64)
        self.numbered[order] = np.arange(n)
        arrays = []
        for f in SCHEMAS["ops"]:
            if f.name == "op":
                arrays.append(pa.array(np.arange(n), f.type))
            elif f.name in places:
                where = places[f.name][order]
                arrays.append(pa.array(where, f.type, mask=where < 0))
            elif f.name not in _COLUMNS:
                arrays.append(pa.nulls(n, f.type))
            else:
                values = self._column(f.name)[order]
                if f.name in _REFERENCES:
                    there = values >= 0
                    values[there] = self.numbered[values[there]]
                arrays.append(self._words(values, f.type) if f.name in _TEXTS else _numbers(values, f.type))
        return pa.Table.from_arrays(arrays, schema=SCHEMAS["ops"])

    def _column(self, name: str) -> npt.NDArray[Any]:
        """Return a column of all blocks, which lose it."""
        null = self.text("observed") if name == "origin" else _NULL
        parts = [np.empty(0, _kind(name))]
        for b in self._blocks:
            values = b.columns.pop(name, None)
            if values is None:
                values = np.full(len(b.keys), null, _kind(name))
            elif null != _NULL:
                values[values == _NULL] = null
            parts.append(values.astype(_kind(name), copy=False))
        return np.concatenate(parts)

    def _words(self, values: npt.NDArray[Any], kind: pa.DataType) -> Any:
        """Return texts by their numbers."""
        encoded = _numbers(values, pa.int32()).dictionary_encode()
        texts = list(self._texts)
        used = pa.array([texts[i] for i in encoded.dictionary.to_pylist()], pa.string())
        words = pa.DictionaryArray.from_arrays(encoded.indices, used)
        return words.cast(kind) if pa.types.is_dictionary(kind) else words.dictionary_decode()

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


def _kind(name: str) -> type[np.signedinteger[Any]]:
    return np.int64 if name in _WIDE else np.int32


def _numbers(values: npt.NDArray[Any], kind: pa.DataType) -> Any:
    null = values < 0
    if not null.any():
        return pa.array(values, kind)
    return pa.array(np.where(null, 0, values), kind, mask=null)  # a null's bytes are on the disk, too


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


def _array(values: Any, kind: pa.DataType) -> Any:
    plain = pa.array(values, pa.string() if pa.types.is_dictionary(kind) else kind)
    return plain.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else plain
