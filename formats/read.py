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
from .manifest import MANIFEST_BYTES_MAX, MANIFEST_NAME, TableEntry, manifest_from_json
from .schema import REQUIRED, SCHEMAS
from .table_file import TableFile
from .tape import TableSource, Tape
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
    tables: dict[str, Callable[[], TableSource]] = {
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


def _load(box: Container, entry: TableEntry, newer: bool) -> TableFile:
    where = f"{box.where}/{entry.file}"
    data = box.read(entry.file, entry.bytes)
    if len(data) != entry.bytes or hashlib.sha256(data).hexdigest() != entry.sha256:
        raise CorruptTape(
            "the bytes changed after they were written",
            expected="the checksum in the manifest",
            where=where,
            next_step="record again, or take the tape from where it came from",
        )
    return TableFile(memoryview(data), entry, newer=newer, where=where)


def decode_table(data: bytes, entry: TableEntry, *, newer: bool = False, where: str = "") -> pa.Table:
    """Decode one table file whose checksum is known to fit.

    Raises
    ------
    CorruptTape
        Its framing, counts, schema or values do not hold.
    """
    return TableFile(memoryview(data), entry, newer=newer, where=where).columns(SCHEMAS[entry.name].names)
