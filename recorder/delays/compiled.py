"""A plan as the plugin reads it, and the counts that it leaves (``native/delay_plan.hpp``; a test compares).

The plan's file: header, anchors, entries, tokens. Entries of one anchor stand together, sorted by number.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ...formats.delays import Glob, Pattern, Plan
from ...formats.delays.plan import ANY_KIND
from ..files import read_regular
from .plans import ENGINE_KINDS

__all__ = ["ANCHOR", "COUNTS", "ENTRY", "HEADER", "compiled", "empty_counts", "read_counts"]

PLAN_MAGIC = 0x30594C4544534454
COUNTS_MAGIC = 0x30544E5544534454
VERSION = 0
ANY_RUN, ANY_ONE = 0x110000, 0x110001
NONE = 0xFFFFFFFF

HEADER = np.dtype(
    [
        ("magic", "<u8"),
        ("version", "<u4"),
        ("crc", "<u4"),
        ("bytes", "<u8"),
        ("lines", "<u4"),
        ("anchors", "<u4"),
        ("entries", "<u4"),
        ("tokens", "<u4"),
        ("reserved", "<u8", (2,)),
    ]
)
ANCHOR = np.dtype([(n, "<u4") for n in ("kinds", "of", "touching", "on", "first", "count")])
ENTRY = np.dtype(
    [
        ("nth", "<u8"),
        ("ns", "<u8"),
        ("seed", "<u8"),
        ("further", "<u4"),
        ("line", "<u4"),
        ("place", "<u4"),
        ("random", "<u4"),
    ]
)
COUNTS = np.dtype(
    [
        ("magic", "<u8"),
        ("version", "<u4"),
        ("lines", "<u4"),
        ("processes", "<u4"),
        ("refused", "<u4"),
        ("reserved", "<u8", (5,)),
    ]
)
LINE = np.dtype([("applied", "<u8"), ("missed", "<u8")])
_CRC_FROM = 16
_COUNT_MAX = 1 << 62


def compiled(plan: Plan) -> bytes:
    """Return a plan of patterns as the plugin reads it."""
    anchors: dict[tuple[str, Glob | None, Glob | None, Glob | None], int] = {}
    of_line = np.zeros(len(plan.lines), np.int64)
    entries = np.zeros(len(plan.lines), ENTRY)
    for i, line in enumerate(plan.lines):
        p = line.anchor
        assert isinstance(p, Pattern), "refused before"
        key = (p.kind, p.name, p.touching, p.on)
        of_line[i] = anchors.setdefault(key, len(anchors))
        entries[i] = (p.which, line.ns, line.seed or 0, p.further, i, line.place, line.seed is not None)
    order = np.lexsort((entries["line"], entries["nth"], of_line))
    counts = np.bincount(of_line, minlength=len(anchors))
    tokens: list[int] = []
    table = np.zeros(len(anchors), ANCHOR)
    first = 0
    for i, (kind, *globs) in enumerate(anchors):
        starts = [_put(tokens, g) for g in globs]
        table[i] = (_mask(kind), *starts, first, counts[i])
        first += int(counts[i])
    words = np.array(tokens, "<u4")
    header = np.zeros(1, HEADER)
    size = HEADER.itemsize + table.nbytes + entries.nbytes + words.nbytes
    header[0] = (
        PLAN_MAGIC, VERSION, 0, size, len(plan.lines), len(anchors), len(entries), len(words), (0, 0),
    )  # fmt: skip
    body = table.tobytes() + entries[order].tobytes() + words.tobytes()
    header["crc"] = zlib.crc32(body, zlib.crc32(header.tobytes()[_CRC_FROM:]))
    return header.tobytes() + body


def empty_counts(lines: int) -> bytes:
    """Return the counts of a plan that nobody has read."""
    header = np.zeros(1, COUNTS)
    header[0] = (COUNTS_MAGIC, VERSION, lines, 0, 0, (0,) * 5)
    return header.tobytes() + bytes(lines * LINE.itemsize)


def read_counts(path: Path, lines: int) -> tuple[int, int, npt.NDArray[np.uint64]] | None:
    """Return how many processes read the plan, how many refused it, and (applied, missed) of each line.

    None where the file is not what the plugin leaves.
    """
    size = COUNTS.itemsize + lines * LINE.itemsize
    data = read_regular(path, size + 1)
    if len(data) != size:
        return None
    header = np.frombuffer(data, COUNTS, 1)[0]
    if (header["magic"], header["version"], header["lines"]) != (COUNTS_MAGIC, VERSION, lines):
        return None
    counts = np.frombuffer(data, "<u8", offset=COUNTS.itemsize).reshape(lines, 2)
    if counts.max(initial=0) > _COUNT_MAX:
        return None
    return int(header["processes"]), int(header["refused"]), counts


def _mask(kind: str) -> int:
    if kind == ANY_KIND:
        return (1 << len(ENGINE_KINDS)) - 1
    return 1 << ENGINE_KINDS.index(kind) if kind in ENGINE_KINDS else 0


def _put(tokens: list[int], glob: Glob | None) -> int:
    if glob is None:
        return NONE
    start = len(tokens)
    wild = {"any": ANY_RUN, "one": ANY_ONE}
    tokens.append(len(glob.tokens))
    tokens += [wild[t] if t in wild else ord(t) for t in glob.tokens]
    return start
