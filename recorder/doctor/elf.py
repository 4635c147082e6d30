"""The little that is asked of ELF files: which symbols one exports and which it needs.

A reader for this alone is a page; the packages that know all of ELF are three orders of magnitude larger.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Symbols", "holds_ggml", "symbols"]

_SHT_DYNSYM = 11
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MARKS = (b"GGML_ASSERT(%s) failed", b"ggml_backend_buffer_init", b"ggml_new_object")
_ANCHOR = "ggml_backend_buffer_init"


@dataclass(frozen=True)
class Symbols:
    """Dynamic symbols of a file, by name.

    Attributes
    ----------
    exported, needed : frozenset of str
        Those that it defines, and those that others must define for it.
    glibc : tuple of int
        The newest version of glibc that it asks for; (0, 0) for none.
    """

    exported: frozenset[str] = frozenset()
    needed: frozenset[str] = frozenset()
    glibc: tuple[int, int] = (0, 0)


def symbols(path: Path) -> Symbols:
    """Return the dynamic symbols of a 64-bit little-endian ELF file; none where it is another file.

    Raises
    ------
    OSError
        It cannot be read.
    """
    with path.open("rb") as file:
        if file.read(6) != b"\x7fELF\x02\x01":
            return Symbols()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _symbols(data)
            except (struct.error, IndexError, ValueError):  # cut short, or not what it says
                return Symbols()


def _symbols(data: mmap.mmap) -> Symbols:
    table_at = struct.unpack_from("<Q", data, 40)[0]
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [_SECTION.unpack_from(data, table_at + i * size) for i in range(count)]
    exported: set[str] = set()
    needed: set[str] = set()
    glibc = (0, 0)
    for section in sections:
        if section[1] != _SHT_DYNSYM:
            continue
        names = sections[section[6]]
        words = data[names[4] : names[4] + names[5]]
        for name_at, _, _, where, _, _ in _rows(data, section):
            name = words[name_at : words.index(b"\0", name_at)].decode("utf-8", "replace")
            (exported if where else needed).add(name)
        glibc = max([(int(a), int(b)) for a, b in re.findall(rb"GLIBC_(\d+)\.(\d+)", words)], default=(0, 0))
    return Symbols(frozenset(exported), frozenset(needed), glibc)


def _rows(data: mmap.mmap, section: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    at, size = section[4], section[5]
    for i in range(size // _SYMBOL.size):
        yield _SYMBOL.unpack_from(data, at + i * _SYMBOL.size)


def holds_ggml(path: Path) -> str:
    """Return how a file contains ggml: ``exporting`` its functions, ``hidden``, or not (empty).

    A file that asks others for ggml's functions does not contain it, whatever words of it stand there.
    """
    try:
        found = symbols(path)
        if _ANCHOR in found.exported:
            return "exporting"
        if any(name.startswith(("ggml_", "gguf_")) for name in found.needed):
            return ""
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return "hidden" if sum(data.find(mark) >= 0 for mark in _MARKS) >= 2 else ""
    except (OSError, ValueError):  # gone, empty, or not for us
        return ""
