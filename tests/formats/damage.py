"""Ways to damage a tape, with and without seals that fit."""

from __future__ import annotations

import hashlib
import io
import json
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tapedelay.formats.errors import InputError
from tapedelay.formats.framing import scan_frames
from tapedelay.formats.manifest import MANIFEST_NAME
from tapedelay.formats.read import open_tape

Json = dict[str, Any]


def read_all(path: Path) -> None:
    """Open a tape and decode everything in it."""
    tape = open_tape(path)
    for name in tape.present:
        tape.table(name)


def sealed(obj: Json) -> bytes:
    """Return a manifest with a checksum that fits, whatever it says."""

    def canonical(o: Json) -> bytes:
        return json.dumps(o, sort_keys=True, indent=1).encode() + b"\n"

    obj = {k: v for k, v in obj.items() if k != "crc32"}
    return canonical({**obj, "crc32": zlib.crc32(canonical(obj))})


def change_manifest(tape: Path, change: Callable[[Json], Any]) -> None:
    """Change a directory tape's manifest and seal it again."""
    file = tape / MANIFEST_NAME
    obj = json.loads(file.read_text())
    change(obj)
    file.write_bytes(sealed(obj))


def claims(data: bytes) -> Json:
    """Return what a manifest has to say of a table file, as far as that can be told."""
    try:
        frames = scan_frames(memoryview(data), "table")
        rows, decoded = frames.rows, frames.decoded_bytes
    except InputError:
        rows, decoded = 1, 4
    digest = hashlib.sha256(data).hexdigest()
    return {"rows": rows, "bytes": len(data), "decoded_bytes": decoded, "sha256": digest}


def replace_table(tape: Path, name: str, data: bytes, **lies: Any) -> None:
    """Put other bytes in place of a table, with a manifest that fits them except for the lies."""
    (tape / f"{name}.arrow").write_bytes(data)
    facts = {**claims(data), **lies}
    change_manifest(tape, lambda m: next(t for t in m["tables"] if t["name"] == name).update(facts))


def ipc(table: pa.Table, compression: str | None = "zstd") -> bytes:
    """Return a table as an Arrow file."""
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, table.schema, options=options) as w:
        w.write_table(table)
    return sink.getvalue()


def mutate(r: random.Random, data: bytes) -> bytes:
    """Return bytes with one fault: cut short, a bit or bytes changed, left out or put in."""
    how = r.randrange(6)
    b = bytearray(data)
    at = r.randrange(len(b))
    if how == 0:
        return bytes(b[:at])
    if how == 1:
        b[at] ^= 1 << r.randrange(8)
    elif how == 2:
        b[at : at + 8] = r.choice((0, 1, (1 << 62), (1 << 63) - 1, (1 << 64) - 1, 1 << 31, 1 << 40)).to_bytes(
            8, "little"
        )
    elif how == 3:
        n = r.randrange(1, 64)
        b[at : at + n] = r.randbytes(n)
    elif how == 4:
        del b[at : at + r.randrange(1, 64)]
    else:
        b[at:at] = r.randbytes(r.randrange(1, 64))
    return bytes(b)
