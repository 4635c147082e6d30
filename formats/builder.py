"""Build a tape row by row, in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from .schema import SCHEMAS, TABLES
from .tape import Manifest, Tape

__all__ = ["Access", "TapeBuilder"]

Access = tuple[Any, ...]
_DEFAULTS: dict[str, dict[str, Any]] = {
    "devices": {"kind": "other", "profile": "strict", "process": 0},
    "queues": {"kind": "queue", "in_order": True, "clock": "host", "process": 0},
    "syncs": {"kind": "event"},
    "buffers": {"kind": "device", "generation": 0},
    "accesses": {"offset_per_arg": 0, "bytes_per_arg": 0, "origin": "observed"},
    "ops": {"origin": "observed"},
    "edges": {"kind": "order", "origin": "observed"},
}


class TapeBuilder:
    """Collects rows and returns a `Tape`.

    Ids are given out in order; keyword arguments are the columns of `formats.schema`; a column left out is
    null or its default.

    Examples
    --------
    >>> b = TapeBuilder()
    >>> host = b.device(name="host", kind="host")
    >>> h = b.queue(device=host, name="H", kind="host_thread")
    >>> m = b.buffer(device=host, name="M0", bytes=4096, kind="host")
    >>> s = b.access_set([dict(buffer=m, offset=0, bytes=4096, mode="write")])
    >>> b.op(kind="host", queue=h, issuer=h, access_set=s)
    0
    >>> b.build().table("ops").num_rows
    1
    """

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {name: [] for name in SCHEMAS}
        self._sets: dict[tuple[tuple[Any, ...], ...], int] = {}
        self._lists: dict[tuple[int, ...], int] = {}

    def add(self, table: str, **columns: Any) -> dict[str, Any]:
        """Append a row to any table and return it (it may still be changed before `build`)."""
        known = SCHEMAS[table].names
        unknown = [c for c in columns if c not in known]
        if unknown:
            raise TypeError(f"{table} has no column {unknown[0]!r}")
        row = {**dict.fromkeys(known), **_DEFAULTS.get(table, {}), **columns}
        self._rows[table].append(row)
        return row

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows added so far."""
        return self._rows[table]

    def _keyed(self, table: str, columns: dict[str, Any]) -> int:
        key = TABLES[table].key
        assert key is not None
        rows = self._rows[table]
        value: int = (
            columns.pop(key, None) if columns.get(key) is not None else (rows[-1][key] + 1 if rows else 0)
        )
        self.add(table, **{key: value}, **{k: v for k, v in columns.items() if k != key})
        return value

    def device(self, **columns: Any) -> int:
        """Add a device and return its id."""
        return self._keyed("devices", columns)

    def queue(self, **columns: Any) -> int:
        """Add a queue and return its id."""
        return self._keyed("queues", columns)

    def sync(self, **columns: Any) -> int:
        """Add an event, semaphore or collective and return its id."""
        return self._keyed("syncs", columns)

    def buffer(self, **columns: Any) -> int:
        """Add a buffer generation and return its id."""
        return self._keyed("buffers", columns)

    def op(self, **columns: Any) -> int:
        """Add an op and return its id."""
        return self._keyed("ops", columns)

    def edge(self, src: int, dst: int, kind: str = "order", origin: str = "observed") -> None:
        """Add an explicit edge."""
        self.add("edges", src=src, dst=dst, kind=kind, origin=origin)

    def access_set(self, accesses: Iterable[dict[str, Any]]) -> int:
        """Return the id of the set with exactly these accesses, in this order (0 for none)."""
        names = [n for n in SCHEMAS["accesses"].names if n not in ("set", "seq")]
        full = [{**_DEFAULTS["accesses"], **a} for a in accesses]
        key = tuple(tuple(a.get(n) for n in names) for a in full)
        if not key:
            return 0
        found = self._sets.get(key)
        if found is None:
            found = len(self._sets) + 1
            self._sets[key] = found
            for seq, a in enumerate(full):
                self.add("accesses", set=found, seq=seq, **a)
        return found

    def unit_list(self, units: Sequence[int]) -> int:
        """Return the id of the list with exactly these units."""
        key = tuple(units)
        found = self._lists.get(key)
        if found is None:
            found = len(self._lists)
            self._lists[key] = found
            for u in key:
                self.add("lists", list=found, unit=u)
        return found

    def build(self, manifest: Manifest | None = None, *, name: str = "tape") -> Tape:
        """Return the tape. Tables without rows are left out unless every tape has them."""
        from .schema import REQUIRED

        tables = {n: table_from_rows(n, rows) for n, rows in self._rows.items() if rows or n in REQUIRED}
        return Tape(manifest or Manifest(), tables, name=name)


def table_from_rows(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Return rows as an Arrow table with the exact schema of table `name`."""
    schema = SCHEMAS[name]
    arrays = []
    for f in schema:
        values = [r[f.name] for r in rows]
        if pa.types.is_dictionary(f.type):
            plain = pa.array(values, pa.string()).dictionary_encode()
            arrays.append(plain.cast(f.type))
        else:
            arrays.append(pa.array(values, f.type))
    return pa.Table.from_arrays(arrays, schema=schema)
