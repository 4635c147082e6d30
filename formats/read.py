"""Read a tape: `open_tape`.

A tape may come from anybody. Sizes and checksums are compared before anything is decoded, what decoding would
cost is known before memory is taken, and no file content chooses a path or code to run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from .container import Container, open_container
from .errors import CorruptTape
from .framing import scan_frames
from .manifest import MANIFEST_BYTES_MAX, MANIFEST_NAME, TableEntry, manifest_from_json
from .schema import REQUIRED, SCHEMAS
from .tape import Tape
from .versions import is_newer_writer, newer_writer_note

__all__ = ["LIMITS", "Limits", "decode_table", "open_tape"]


@dataclass(frozen=True)
class Limits:
    """What a reader accepts before it takes a tape for a trap.

    Attributes
    ----------
    rows : int
        Rows per table.
    decoded_bytes : int
        Decompressed size of all tables together.
    ratio : int
        Decompressed over stored size of a table, beyond its slack. A table has a column that counts, so even
        constants beside it compress to no more than half of this.
    slack_bytes : int
        Decompressed size that any table may have.
    slack_total_bytes : int
        Slack that all tables together may use.
    rows_per_byte : int
        Rows of a table per byte of its file, beyond the first `slack_rows`.
    slack_rows : int
        Rows that any table may have.
    """

    rows: int = 1 << 31
    decoded_bytes: int = 8 << 30
    ratio: int = 400
    slack_bytes: int = 16 << 20
    slack_total_bytes: int = 64 << 20
    rows_per_byte: int = 16
    slack_rows: int = 1 << 17


LIMITS = Limits()


def open_tape(path: str | Path, *, limits: Limits = LIMITS) -> Tape:
    """Open a tape; its tables are read when they are asked for.

    Parameters
    ----------
    path : str or Path
        A directory ``NAME.tape`` or a zip file ``NAME.tape.zip``.
    limits : Limits
        What to accept.

    Returns
    -------
    Tape
        With ``read_only`` set, and a remark, when a newer version wrote it.

    Raises
    ------
    MissingInput
        There is nothing to open.
    NotATape
        It is something else, or too little of it is left.
    VersionError
        It needs a newer reader.
    CorruptTape
        Its bytes are not those that were written. Also from `Tape.table`.
    """
    box = open_container(path)
    manifest, entries = manifest_from_json(
        box.read(MANIFEST_NAME, MANIFEST_BYTES_MAX), where=f"{box.where}/{MANIFEST_NAME}"
    )
    newer = is_newer_writer(manifest.format_write)
    _check_entries(box, entries, newer, limits)
    tables: dict[str, pa.Table | Callable[[], pa.Table]] = {
        e.name: partial(_load, box, e, newer) for e in entries if e.name in SCHEMAS
    }
    return Tape(
        manifest,
        tables,
        name=box.name,
        where=box.where,
        read_only=newer,
        remarks=(newer_writer_note(manifest.format_write),) if newer else (),
    )


def _check_entries(box: Container, entries: tuple[TableEntry, ...], newer: bool, limits: Limits) -> None:
    listed = {e.name for e in entries}
    for name in REQUIRED:
        if name not in listed:
            raise CorruptTape(
                f"no table {name}",
                expected="tables " + ", ".join(REQUIRED),
                where=box.where,
                next_step="record again",
            )
    if not newer and (strange := sorted(listed - set(SCHEMAS))):
        raise CorruptTape(f"an unknown table {strange[0]}", expected="tables of this format", where=box.where)
    for e in entries:
        got = box.size(e.file)
        if got is None:
            raise CorruptTape(f"{e.file} is missing", expected="the tables of the manifest", where=box.where)
        if got != e.bytes:
            raise CorruptTape(
                f"{e.file} has {got} bytes",
                expected=f"{e.bytes}, as the manifest says",
                where=box.where,
                next_step="it may have been cut short: copy it again",
            )
        # every row of every table holds at least one id of four bytes
        if (
            e.rows > min(limits.rows, limits.rows_per_byte * e.bytes + limits.slack_rows)
            or _slack(e, limits) > limits.slack_bytes
            or (e.name in SCHEMAS and 4 * e.rows > e.decoded_bytes)
        ):
            raise _absurd(box.where, e)
    if (
        sum(e.decoded_bytes for e in entries) > limits.decoded_bytes
        or sum(_slack(e, limits) for e in entries) > limits.slack_total_bytes
    ):
        raise _absurd(box.where, max(entries, key=lambda e: e.decoded_bytes))


def _slack(e: TableEntry, limits: Limits) -> int:
    """Return how much more a table decodes to than its file accounts for."""
    return max(0, e.decoded_bytes - limits.ratio * e.bytes)


def _absurd(where: str, e: TableEntry) -> CorruptTape:
    return CorruptTape(
        f"{e.name} claims {e.rows} rows and {e.decoded_bytes} bytes out of {e.bytes}",
        expected="believable counts",
        where=where,
        next_step="do not trust this file; a tape that really is this big opens with open_tape(limits=...)",
    )


def _load(box: Container, entry: TableEntry, newer: bool) -> pa.Table:
    where = f"{box.where}/{entry.file}"
    data = box.read(entry.file, entry.bytes)
    if len(data) != entry.bytes or hashlib.sha256(data).hexdigest() != entry.sha256:
        raise CorruptTape(
            "the bytes changed after they were written",
            expected="the checksum in the manifest",
            where=where,
            next_step="record again, or take the tape from where it came from",
        )
    return decode_table(data, entry, newer=newer, where=where)


def decode_table(data: bytes, entry: TableEntry, *, newer: bool = False, where: str = "") -> pa.Table:
    """Decode one table file whose checksum is known to fit.

    Raises
    ------
    CorruptTape
        Its framing, counts, schema or values do not hold.
    """
    frames = scan_frames(memoryview(data), where)
    if (frames.rows, frames.decoded_bytes) != (entry.rows, entry.decoded_bytes):
        raise CorruptTape(
            f"{frames.rows} rows and {frames.decoded_bytes} decoded bytes",
            expected=f"{entry.rows} and {entry.decoded_bytes}, as the manifest says",
            where=where,
        )
    try:
        with pa.ipc.open_file(pa.py_buffer(data)) as reader:
            columns = _columns(reader.schema, entry.name, newer, where)
            table = reader.read_all()
        table = pa.Table.from_arrays([table.column(c) for c in columns], schema=SCHEMAS[entry.name])
        table.validate(full=True)
    # pyarrow reports damage with its own errors, OSError and plain ValueError alike
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, MemoryError) as e:
        raise CorruptTape(
            f"cannot be decoded ({str(e).splitlines()[0][:100] if str(e) else type(e).__name__})",
            expected="an Arrow IPC file",
            where=where,
            next_step="record again",
        ) from None
    if table.num_rows != entry.rows:
        raise CorruptTape(f"{table.num_rows} rows", expected=f"{entry.rows}", where=where)
    _check_nulls(table, where)
    return table


def _columns(schema: pa.Schema, name: str, newer: bool, where: str) -> list[int]:
    """Return the position of each known column; names, types and nullability have to be the spec's."""
    wanted = SCHEMAS[name]
    if not newer and schema.names != wanted.names:
        strange = [n for n in schema.names if n not in wanted.names] or ["their order or number"]
        lacking = [n for n in wanted.names if n not in schema.names]
        raise CorruptTape(
            f"columns differ: no {lacking[0]}" if lacking else f"columns differ: {strange[0]}",
            expected="the columns of the specification",
            where=where,
        )
    positions = []
    for f in wanted:
        at = [i for i, n in enumerate(schema.names) if n == f.name]
        if len(at) != 1:
            raise CorruptTape(f"{len(at)} columns {f.name}", expected="one", where=where)
        got = schema.field(at[0])
        if got.type != f.type or got.nullable != f.nullable:
            raise CorruptTape(
                f"column {f.name} is {got.type}{'' if got.nullable else ' not null'}"[:120],
                expected=f"{f.type}{'' if f.nullable else ' not null'}",
                where=where,
            )
        positions.append(at[0])
    return positions


def _check_nulls(table: pa.Table, where: str) -> None:
    for f, column in zip(table.schema, table.columns, strict=True):
        if not f.nullable and column.null_count:
            raise CorruptTape(f"column {f.name} holds a null", expected="a value in every row", where=where)
        if pa.types.is_dictionary(f.type) and any(c.dictionary.null_count for c in column.chunks):
            raise CorruptTape(f"column {f.name} has a null in its dictionary", expected="words", where=where)
