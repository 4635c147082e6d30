"""Where each access of a program lies, in the device's arena or in host memory, and what kernels read of it.

All device memory of a tape is one OpenCL buffer, the *arena*, laid out by `replayer.layout`; all host memory
is one piece of pinned memory that numpy sees. An op on a device queue that touches host memory has a *stage*
in the arena for it: the bytes go there and back by asynchronous copies. Memory that ops reduce into is in the
arena wherever it was recorded, since only a device adds to it atomically.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....formats.columns import Columns
from ....formats.errors import Unsupported
from ....formats.schema import ACCESS_MODES
from ...layout import FEWER, SCALE_DOWN, Layout
from ...program import Program
from .graph import Graph
from .values import Bytes, first_of, pattern

__all__ = ["COLUMNS", "KIN", "SLOTS", "XOR", "Access", "Copy", "Memory", "map_memory"]

READ, FOLD, WRITE, XOR, KIN, TARGET = 1, 2, 4, 8, 16, 32
_MODE = {
    "read": READ | FOLD,
    "write": WRITE,
    "update": READ | FOLD | WRITE,
    "may_write": FOLD | WRITE,
    "reduce": XOR,
}  # fmt: skip
(DATA, BYTES, NOMINAL, MODE, COPIED, COPIED_TO, SNAP, OP, SEQ, COLUMNS) = range(10)
BEFORE, AFTER, STAMP, TORN, SLOTS = range(5)

ARENA_LIMIT_BYTES = 1 << 30
SNAP_LIMIT_BYTES = 64 << 20
_COPY_KINDS = ("copy", "rdma")
_HOST_KINDS = ("host", "pinned")


@dataclass(frozen=True, slots=True)
class Access:
    """One range that an op touches.

    Attributes
    ----------
    index : int
        Row of the kernels' table.
    row, access : int
        Row of `ops` and of `accesses`.
    op, seq : int
        Op id, and which of its ranges.
    mode : int
        Bits, as in ``kernels.cl``.
    root, begin, end : int
        As recorded.
    host : bool
        It lies in host memory.
    at, bytes : int
        Where, in the arena or in host memory, and how much of it.
    stage : int
        Its place in the arena where a device queue touches host memory; -1 elsewhere.
    """

    index: int
    row: int
    access: int
    op: int
    seq: int
    mode: int
    root: int
    begin: int
    end: int
    host: bool
    at: int
    bytes: int
    stage: int

    @property
    def data(self) -> int:
        """Return where kernels find it in the arena."""
        return self.stage if self.stage >= 0 else self.at

    @property
    def judged(self) -> bool:
        """Whether its content is compared with the reference."""
        return bool(self.mode & READ)


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes that an op really moves from one range to another."""

    source: Access
    target: Access
    bytes: int


@dataclass
class Memory:
    """Memory of a program.

    Attributes
    ----------
    device, host : Layout
        Of the roots in the arena and in host memory.
    of_unit : dict
        Ranges of a unit, adjacent in `table`.
    copies : dict
        By unit.
    all : list of Access
        Row by row of `table`.
    table : numpy.ndarray of int64, shape (n, COLUMNS)
        What the kernels read.
    arena_bytes, host_bytes, snap_bytes : int
        Sizes.
    arena_first, host_first : numpy.ndarray of uint8
        Content before the first op.
    """

    device: Layout
    host: Layout
    of_unit: dict[int, list[Access]]
    copies: dict[int, list[Copy]]
    all: list[Access]
    table: npt.NDArray[np.int64]
    arena_bytes: int
    host_bytes: int
    snap_bytes: int
    arena_first: Bytes
    host_first: Bytes


def map_memory(program: Program, graph: Graph, *, compact: bool) -> Memory:
    """Place everything that the units of a graph touch.

    Raises
    ------
    Unsupported
        It takes too much memory.
    """
    first, roots, begin, end, modes, access = program.core.accesses()
    root, mode = roots.astype(np.int64), modes.astype(np.int64)
    used = (root >= 0) & (end > begin)
    in_host = _in_host(program, root[used], mode[used])
    where = program.tape.where
    real = np.full((2, len(root)), -1, np.int64)
    layouts = []
    for host in (False, True):
        some = np.flatnonzero(used)[in_host == host]
        layout = Layout.of(
            root[some], begin[some], end[some], compact=compact, limit_bytes=ARENA_LIMIT_BYTES, where=where
        )
        real[0, some], real[1, some] = layout.begin, layout.end
        layouts.append(layout)
    host_of = np.zeros(len(root), np.bool_)
    host_of[np.flatnonzero(used)] = in_host

    found: list[Access] = []
    of_unit: dict[int, list[Access]] = {}
    arena = layouts[0].bytes
    for unit in sorted(graph.home):
        ours: list[Access] = []
        for row in graph.contract.rows_of(unit):
            some = [i for i in range(int(first[row]), int(first[row + 1])) if used[i]]
            for seq, i in enumerate(some):
                at, size = int(real[0, i]), int(real[1, i] - real[0, i])
                stage = -1
                if host_of[i] and not graph.is_host(unit):
                    stage = arena + at % 8
                    arena = -(-(stage + size) // 8) * 8
                bits = _MODE[ACCESS_MODES[int(mode[i])]]
                a = Access(
                    len(found) + len(ours), row, int(access[i]), int(program.op_ids[row]), seq, bits,
                    int(root[i]), int(begin[i]), int(end[i]), bool(host_of[i]), at, size, stage,
                )  # fmt: skip
                ours.append(a)
        if ours:
            of_unit[unit] = _kin(ours, everything=graph.has_parts(unit))
            found += of_unit[unit]
    if arena > ARENA_LIMIT_BYTES:
        raise Unsupported(
            f"device memory and stages need {arena:,} bytes",
            expected=f"at most {ARENA_LIMIT_BYTES:,}",
            where=where,
            next_step=FEWER if compact else SCALE_DOWN,
        )
    copies = {u: c for u in of_unit if (c := _copies(program, graph, of_unit[u]))}
    table, snap = _table(found, copies)
    return Memory(
        layouts[0], layouts[1], of_unit, copies, found, table,
        max(arena, 64), max(layouts[1].bytes, 64), max(snap, 64),
        _first(layouts[0], max(arena, 64)), _first(layouts[1], max(layouts[1].bytes, 64)),
    )  # fmt: skip


def _in_host(
    program: Program, root: npt.NDArray[np.int64], mode: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return which accesses go to host memory."""
    buffers, devices = Columns(program.tape.table("buffers")), Columns(program.tape.table("devices"))
    host = devices.words("kind").isin(["host"])[buffers.ints("device")]
    host |= buffers.words("kind").isin(_HOST_KINDS)
    reduced = np.unique(root[mode == ACCESS_MODES.index("reduce")])
    found: npt.NDArray[np.bool_] = host[root] & ~np.isin(root, reduced)
    return found


def _kin(accesses: list[Access], *, everything: bool) -> list[Access]:
    """Mark ranges that other parts of the same op write: what happens there is no race."""
    kin = {a.index for a in accesses} if everything else _overlapping(accesses)
    if not kin:
        return accesses
    fields = Access.__slots__
    return [
        Access(**{f: getattr(a, f) for f in fields} | {"mode": a.mode | KIN}) if a.index in kin else a
        for a in accesses
    ]


def _overlapping(accesses: list[Access]) -> set[int]:
    found: set[int] = set()
    reach: list[Access] = []
    for a in sorted(accesses, key=lambda a: (a.root, a.begin)):
        reach = [b for b in reach if b.root == a.root and b.end > a.begin]
        for b in reach:
            if (a.mode | b.mode) & (WRITE | XOR):
                found |= {a.index, b.index}
        reach.append(a)
    return found


def _copies(program: Program, graph: Graph, accesses: list[Access]) -> list[Copy]:
    """Pair what a copy reads with what it writes."""
    kinds = graph.contract.ops.kind
    found = []
    for row in dict.fromkeys(a.row for a in accesses):
        if kinds[row] not in _COPY_KINDS:
            continue
        reads = [a for a in accesses if a.row == row and a.mode == READ | FOLD]
        writes = [a for a in accesses if a.row == row and a.mode == WRITE]
        # What is kin overlaps another range of the op: those are only stamped.
        found += [Copy(r, w, min(r.bytes, w.bytes)) for r, w in zip(reads, writes, strict=False)]
    return found


def _table(accesses: list[Access], copies: dict[int, list[Copy]]) -> tuple[npt.NDArray[np.int64], int]:
    copied = {c.source.index: c for some in copies.values() for c in some}
    targets = {c.target.index for some in copies.values() for c in some}
    table = np.zeros((max(len(accesses), 1), COLUMNS), np.int64)
    snap = 0
    for a in accesses:
        copy = copied.get(a.index)
        mode = a.mode | (TARGET if a.index in targets else 0)
        keeps = mode & (FOLD | TARGET) and snap + 2 * a.bytes <= SNAP_LIMIT_BYTES
        table[a.index] = (
            a.data, a.bytes, a.at, mode, copy.bytes if copy else 0, copy.target.data if copy else 0,
            snap if keeps else -1, a.op, a.seq,
        )  # fmt: skip
        snap += 2 * a.bytes if keeps else 0
    return table, snap


def _first(layout: Layout, size: int) -> Bytes:
    content: Bytes = np.zeros(size, np.uint8)
    for root, begin, end in zip(layout.root, layout.root_begin, layout.root_end, strict=True):
        content[begin:end] = pattern(first_of(int(root)), int(begin), int(end - begin))
    return content
