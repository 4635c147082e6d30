"""A tape as stable text: one line per row, for tests and for diff."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from .schema import TABLES, Column
from .tape import Tape

__all__ = ["dump_lines", "dump_rows"]

_BARE = re.compile(r"[A-Za-z0-9_.:+\-/#@%]+")
_BATCH_ROWS = 1 << 14


def dump_lines(tape: Tape, *, times: bool = True) -> Iterator[str]:
    """Yield ``table{row} column=value ...`` for every row of every table, and the manifest before them.

    Nulls are left out; text is quoted as in JSON unless it is one plain word; bytes are hexadecimal.

    Parameters
    ----------
    tape : Tape
        The tape.
    times : bool
        False leaves out what differs between two runs of the same schedule: every column in nanoseconds, the
        wall clock, and the telemetry.
    """
    yield from _manifest_lines(tape, times)
    for name, row, values in dump_rows(tape, times=times):
        yield " ".join([f"{name}{{{row}}}", *(f"{k}={_SHOW[type(v)](v)}" for k, v in values.items())])


def dump_rows(tape: Tape, *, times: bool = True) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield table, row number and values of every row; nulls are left out."""
    for name, spec in TABLES.items():
        if name == "telemetry" and not times:
            continue
        columns = [c for c in spec.columns if times or not _is_time(c)]
        table = tape.table(name).select([c.name for c in columns])
        row = 0
        for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
            for values in _rows(batch):
                yield name, row, values
                row += 1


def _is_time(column: Column) -> bool:
    return column.unit == "ns"


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    names = batch.schema.names
    for values in zip(*(c.to_pylist() for c in batch.columns), strict=True):
        yield {n: v for n, v in zip(names, values, strict=True) if v is not None}


def _manifest_lines(tape: Tape, times: bool) -> Iterator[str]:
    m = tape.manifest
    yield (
        f"manifest format_write={m.format_write} format_read={m.format_read} complete={_flag(m.complete)} "
        + (f"lost={m.lost}" + (f" dropped={m.dropped}" if m.dropped else ""))
    )
    for part in ("engine", "switches", "profiles"):
        value = getattr(m, part)
        for key in sorted(value):
            yield f"manifest.{part} {_text(key)}={_any(value[key])}"
    for i, p in enumerate(m.processes):
        values = dataclasses.asdict(p)
        if not times:
            del values["wall_offset_ns"]
        yield " ".join(
            [f"manifest.processes{{{i}}}", *(f"{k}={_any(v)}" for k, v in values.items() if v is not None)]
        )
    for i, c in enumerate(m.coverage):
        yield " ".join(
            [f"manifest.coverage{{{i}}}", *(f"{k}={_any(v)}" for k, v in dataclasses.asdict(c).items())]
        )
    for i, d in enumerate(m.delays):
        yield f"manifest.delays{{{i}}} line={d.line} text={_text(d.text)} count={d.count}"
    for i, note in enumerate(m.notes):
        yield f"manifest.notes{{{i}}} {_text(note)}"


def _text(value: str) -> str:
    return value if _BARE.fullmatch(value) else json.dumps(value)


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _any(value: Any) -> str:
    return _SHOW.get(type(value), lambda v: json.dumps(v, sort_keys=True, separators=(",", ":")))(value)


_SHOW: dict[type, Callable[[Any], str]] = {
    str: _text,
    int: str,
    float: repr,
    bool: _flag,
    bytes: bytes.hex,
    list: lambda v: json.dumps(v, separators=(",", ":")),
}
