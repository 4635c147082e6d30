"""Every byte of a recording, for what must not be in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from tapedelay.formats.tape import Tape

__all__ = ["plain_bytes", "raw_bytes", "written"]

_WIDTHS = {pa.int16(): 2, pa.int32(): 4, pa.int64(): 8}
_OF_SCHEDULERS = ("schedulers", "pools", "requests", "prefixes", "inputs", "answers", "decisions", "blocks")


def raw_bytes(folder: Path) -> bytes:
    """Return what the files of a folder hold."""
    return b"".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())


def plain_bytes(tape: Tape) -> bytes:
    """Return the tables of request schedulers, decompressed."""
    plain = []
    for name in _OF_SCHEDULERS:
        sink = pa.BufferOutputStream()
        table = tape.table(name)
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        plain.append(sink.getvalue().to_pybytes())
    return b"".join(plain)


def written(tokens: Sequence[int]) -> list[bytes]:
    """Return these tokens, less than 32,768 each, in every likely notation."""
    found = [pa.array(tokens, t).buffers()[1].to_pybytes()[: len(tokens) * w] for t, w in _WIDTHS.items()]
    found += [", ".join(map(str, tokens)).encode(), ",".join(map(str, tokens)).encode()]
    return [*found, b"".join(map(_msgpack, tokens))]


def _msgpack(token: int) -> bytes:
    if token > 255:
        return b"\xcd" + token.to_bytes(2, "big")
    return b"\xcc" + bytes([token]) if token > 127 else bytes([token])
