"""The bench tape as a `Tape`: one token's ops repeated, with times, positions and scratch memory of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tapedelay.formats.schema import SCHEMAS, TABLES
from tapedelay.formats.tape import Manifest, Tape

from .memory import ARENA, POSITIONS, SCRATCH, Access, Memory
from .one_token import EVENTS, QUEUES, SCRATCHES, Row, token_rows
from .times import Times, token_times

__all__ = ["bench_tape", "positions"]

Ints = npt.NDArray[np.int64]
SHIFTED = 0.01
"""Share of the kernels whose ranges lie across the others'."""
SCRATCH_BYTES = (4096, 12288, 28672)
FIRST_POSITION = POSITIONS - 11_765
"""Cached tokens before the first: the 11,765 tokens of 2,000,000 ops end at the last position."""


def bench_tape(ops: int = 2_000_000, *, seed: int = 1, race: bool = False) -> Tape:
    """Return a tape of decoded tokens.

    Parameters
    ----------
    ops : int
        Rows of `ops`; the last token is cut off where they are reached.
    seed : int
        Equal seeds give equal tapes.
    race : bool
        Device 2 does not wait for the copy from device 1 in the middle token.

    Returns
    -------
    Tape
        Valid, with times on all ops; nothing but the planted race is unordered.
    """
    memory = Memory()
    rows = token_rows(memory)
    tokens = max(1, -(-ops // len(rows)))
    rng = np.random.default_rng(seed)
    position = positions(tokens)
    scratch = _Scratch(memory, tokens, rng)
    times = token_times(rows, position, rng)
    lost = ops // len(rows) // 2 if race else None
    columns = _columns(rows, position, times, scratch, memory, rng, lost)
    tables = {
        "devices": _table(
            "devices",
            device=range(3),
            name=["CPU", "GPU1", "GPU2"],
            kind=["host", "gpu", "gpu"],
            profile=["ggml-host", "ggml-gpu", "ggml-gpu"],
            process=[0] * 3,
        ),
        "queues": _table(
            "queues",
            queue=range(len(QUEUES)),
            device=[0] * 2 + [1] * 4 + [2] * 4,
            name=QUEUES,
            kind=["host_thread"] * 2 + ["queue"] * 8,
            in_order=[True] * len(QUEUES),
            clock=["host"] * len(QUEUES),
            clock_error_ns=[0] * len(QUEUES),
            process=[0] * len(QUEUES),
        ),
        "syncs": _table("syncs", sync=range(len(EVENTS)), name=EVENTS, kind=["event"] * len(EVENTS)),
        "buffers": scratch.buffers(rows, ops),
        "accesses": _accesses(rows, memory, scratch),
        "ops": _table("ops", **{name: column[:ops] for name, column in columns.items()}),
    }
    return Tape(Manifest(engine={"name": "bench"}), tables, name="bench")


def positions(tokens: int) -> Ints:
    """Return the position of each token; after the last, a new sequence with the same cached prompt."""
    return FIRST_POSITION + np.arange(tokens) % (POSITIONS - FIRST_POSITION)


class _Scratch:
    """The scratch memory of each token: a generation of a range that the sub-allocator picked."""

    def __init__(self, memory: Memory, tokens: int, rng: np.random.Generator) -> None:
        self.memory = memory
        self.first = len(memory.buffers)
        count = len(SCRATCHES)
        self.bytes = np.asarray(SCRATCH_BYTES)[rng.integers(0, len(SCRATCH_BYTES), (tokens, count))]
        place = rng.integers(0, 1 << 30, (tokens, count)) % ((SCRATCH - self.bytes) // 1024 + 1) * 1024
        self.offset = ARENA + np.array([part for _, part in SCRATCHES]) * SCRATCH + place
        self.ids = self.first + np.arange(tokens * count).reshape(tokens, count)

    def buffers(self, rows: Sequence[Row], ops: int) -> pa.Table:
        """Return the table of buffers; what `ops` cuts off is left out."""
        fixed = self.memory.buffers
        names = list(fixed)
        tokens, count = self.ids.shape
        alloc, free = (
            np.arange(tokens)[:, None] * len(rows)
            + np.array([n for n, r in enumerate(rows) if r.kind == kind])[None, :]
            for kind in ("alloc", "free")
        )
        device = np.broadcast_to([d for d, _ in SCRATCHES], (tokens, count))
        parent = np.broadcast_to([names.index(f"arena{d}") for d, _ in SCRATCHES], (tokens, count))
        lived = len(fixed)
        none = np.full(lived, -1)
        n = lived + tokens * count
        alloc_op, free_op = (np.concatenate((none, o.reshape(-1))) for o in (alloc, free))
        return _table(
            "buffers",
            buffer=np.arange(n),
            device=np.concatenate(([d for d, _, _ in fixed.values()], device.reshape(-1))),
            name=_words([*names, "scratch"], np.minimum(np.arange(n), lived)),
            bytes=np.concatenate(([b for _, b, _ in fixed.values()], self.bytes.reshape(-1))),
            kind=_words(
                ["pinned", "weights", "device"],
                np.concatenate((
                    [("pinned", "weights", "device").index(k) for _, _, k in fixed.values()],
                    np.full(tokens * count, 2),
                )),
            ),
            parent=_nullable(np.concatenate((none, parent.reshape(-1)))),
            parent_offset=_nullable(np.concatenate((none, self.offset.reshape(-1)))),
            generation=np.concatenate((np.zeros(lived, np.int64), self._generations())),
            alloc_op=_nullable(np.where(alloc_op < ops, alloc_op, -1)),
            free_op=_nullable(np.where(free_op < ops, free_op, -1)),
        )  # fmt: skip

    def _generations(self) -> Ints:
        """Return how often the range of each scratch memory was handed out before."""
        device = np.broadcast_to([d for d, _ in SCRATCHES], self.ids.shape)
        key = ((device * (ARENA + 2 * SCRATCH) + self.offset) * (1 << 16) + self.bytes).reshape(-1)
        order = np.argsort(key, kind="stable")
        new = np.diff(key[order], prepend=-1) != 0
        starts = np.flatnonzero(new)
        found = np.empty(len(key), np.int64)
        found[order] = np.arange(len(key)) - np.repeat(starts, np.diff(starts, append=len(key)))
        return found


def _columns(
    rows: Sequence[Row],
    position: Ints,
    times: Times,
    scratch: _Scratch,
    memory: Memory,
    rng: np.random.Generator,
    lost: int | None,
) -> dict[str, Any]:
    """Return the columns of `ops`; in token `lost`, the wait for the copy between the devices is a mark."""
    tokens, count = len(position), len(rows)
    n = tokens * count
    index = np.arange(n) % count

    def each(values: Sequence[int]) -> Ints:
        return np.asarray(values, np.int64)[index]

    kinds = list(SCHEMAS["ops"].field("kind").metadata[b"words"].decode().split(","))
    names = sorted({r.name for r in rows})
    sets = np.tile(np.array([r.access_set for r in rows]), (tokens, 1))
    other = np.array([r.other_set for r in rows])
    kernels = other != sets[0]
    shifted = rng.random((tokens, count)) < SHIFTED
    sets = np.where(shifted & kernels, other, sets)
    own = [i for i, r in enumerate(rows) if r.scratch]
    sets[:, own] = len(memory.sets) + 1 + np.arange(tokens * len(own)).reshape(tokens, len(own))
    targets = np.tile(np.array([r.target for r in rows]), (tokens, 1))
    for i, r in enumerate(rows):
        if r.kind in ("alloc", "free"):
            targets[:, i] = scratch.ids[:, r.target]
    recorded = {r.event: i for i, r in enumerate(rows) if r.kind == "record"}
    waits = np.array([recorded[r.event] if r.kind == "wait" else -1 for r in rows])
    sync_of = np.where(waits >= 0, np.arange(tokens)[:, None] * count + waits, -1)
    syncs = [r.kind == "sync" for r in rows]
    kind, sync = each([kinds.index(r.kind) for r in rows]), each([_event(r) for r in rows])
    if lost is not None:
        at = next(i for i, r in enumerate(rows) if r.kind == "wait" and r.event == "moved")
        kind[lost * count + at] = kinds.index("mark")
        sync[lost * count + at] = sync_of[lost, at] = -1
    return {
        "op": np.arange(n),
        "kind": _words(kinds, kind),
        "name": _words(names, each([names.index(r.name) for r in rows])),
        "queue": each([r.queue for r in rows]),
        "issuer": each([r.issuer for r in rows]),
        "sync": _nullable(sync),
        "sync_of": _nullable(sync_of.reshape(-1)),
        "target_kind": _words(["queue", "device", "all"], each([0 if s else -1 for s in syncs])),
        "target": _nullable(targets.reshape(-1)),
        "access_set": sets.reshape(-1),
        "arg": _nullable(np.where([r.arg for r in rows], position[:, None], -1).reshape(-1)),
        "issue_ns": times.issue_ns,
        "start_after_issue_ns": times.start_after_issue_ns,
        "duration_ns": times.duration_ns,
        "step": np.repeat(np.arange(tokens), count),
        "split": _nullable(each([r.split for r in rows])),
        "bytes": _nullable(each([r.bytes for r in rows])),
        "origin": _words(["observed", "inferred", "declared"], np.zeros(n, np.int64)),
    }


def _event(row: Row) -> int:
    return EVENTS.index(row.event) if row.event else -1


def _accesses(rows: Sequence[Row], memory: Memory, scratch: _Scratch) -> pa.Table:
    """Return the access sets: the shared ones, then those of each token."""
    ids = {name: i for i, name in enumerate(memory.buffers)}
    modes = list(SCHEMAS["accesses"].field("mode").metadata[b"words"].decode().split(","))
    shared = [(s, seq, a) for s, accesses in enumerate(memory.sets, 1) for seq, a in enumerate(accesses)]
    own: list[tuple[int, int, Access, int]] = []  # set of the token, seq, access, scratch memory or -1
    for number, r in enumerate(r for r in rows if r.scratch):
        parts = [(a, -1) for a in r.accesses]
        parts += [(("", 0, int(scratch.bytes.min()), mode, 0, 0, "scratch"), n) for n, mode in r.scratch]
        own += [(number, seq, a, n) for seq, (a, n) in enumerate(parts)]
    tokens = len(scratch.ids)
    per_token = max((s for s, _, _, _ in own), default=-1) + 1
    token = np.repeat(np.arange(tokens), len(own))

    def column(of_shared: Sequence[int], of_own: Sequence[int]) -> Ints:
        return np.concatenate(
            (np.asarray(of_shared, np.int64), np.tile(np.asarray(of_own, np.int64), tokens))
        )

    begin = len(shared)
    sets = column([s for s, _, _ in shared], [s for s, _, _, _ in own])
    sets[begin:] += len(memory.sets) + 1 + token * per_token
    buffers = column([ids[a[0]] for _, _, a in shared], [ids.get(a[0], -1) for _, _, a, _ in own])
    memories = np.tile(np.array([n for _, _, _, n in own], np.int64), tokens)
    touched = np.flatnonzero(memories >= 0)
    buffers[begin + touched] = scratch.ids[token[touched], memories[touched]]
    names = sorted({a[6] for _, _, a in shared} | {a[6] for _, _, a, _ in own})

    def of(field: int) -> Ints:
        return column([int(a[field]) for _, _, a in shared], [int(a[field]) for _, _, a, _ in own])

    return _table(
        "accesses",
        set=sets,
        seq=column([q for _, q, _ in shared], [q for _, q, _, _ in own]),
        buffer=buffers,
        offset=of(1),
        bytes=of(2),
        offset_per_arg=of(4),
        bytes_per_arg=of(5),
        mode=_words(
            modes,
            column([modes.index(a[3]) for _, _, a in shared], [modes.index(a[3]) for _, _, a, _ in own]),
        ),
        origin=_words(["observed"], np.zeros(len(sets), np.int64)),
        name=_words(
            names,
            column([names.index(a[6]) for _, _, a in shared], [names.index(a[6]) for _, _, a, _ in own]),
        ),
    )


def _nullable(values: Ints) -> pa.Array:
    """Return integers as an Arrow array; -1 is null."""
    return pa.array(values, mask=values < 0)


def _words(words: Sequence[str], codes: Ints) -> pa.DictionaryArray:
    """Return a dictionary array; code -1 is null."""
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=codes < 0), pa.array(words))


def _table(table: str, /, **columns: Any) -> pa.Table:
    """Return a table with the schema of the format; columns left out are null."""
    rows = len(next(iter(columns.values())))
    arrays = []
    for f in SCHEMAS[table]:
        got = columns.get(f.name)
        if got is None:
            arrays.append(pa.nulls(rows, f.type))
        elif isinstance(got, pa.DictionaryArray):
            arrays.append(pa.DictionaryArray.from_arrays(got.indices.cast(f.type.index_type), got.dictionary))
        elif pa.types.is_dictionary(f.type):
            plain = pa.array(list(got), pa.string()).dictionary_encode()
            arrays.append(plain.cast(f.type))
        else:
            arrays.append(
                pa.array(got).cast(f.type) if not isinstance(got, range) else pa.array(list(got), f.type)
            )
    assert set(columns) <= {c.name for c in TABLES[table].columns}
    return pa.Table.from_arrays(arrays, schema=SCHEMAS[table])
