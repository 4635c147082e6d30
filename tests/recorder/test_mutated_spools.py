"""A spool that somebody changed gives a tape that keeps the specification, or `SpoolError`; nothing else."""

from __future__ import annotations

import contextlib
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapedelay.formats.errors import SpoolError
from tapedelay.formats.load import load_tape
from tapedelay.recorder.asked import Asked
from tapedelay.recorder.engines.ggml.layout import COMMIT, HEADER, RECORD
from tapedelay.recorder.session import collect_spool

EDGES = (
    0, 1, 2, 3, 7, 255, 0xFFFF, 0xFFFFFFFF, 1 << 31, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, 1 << 63,
    (1 << 64) - 1,
)  # fmt: skip
COLUMNS = ("issue_ns", "end_ns", "a", "b", "c", "d", "e", "name", "thread", "queue", "kind", "flags")
SMALL = ("d", "e", "queue", "thread", "name")
HEADS = ((16, 8), (24, 8), (36, 4), (40, 8))
"""Clocks, flags and lost records of the header."""


def received(e: Any, n: int) -> list[dict[str, Any]]:
    """Return a graph: nodes of all kinds, and one leaf."""
    shape = {"shape": (n, 1, 1, 1), "strides": (4, 4 * n, 4 * n, 4 * n)}
    return [
        {"name": "a", "op": "ADD", "sources": (3, -1), "user": e.devices[0], **shape},
        {"name": "v", "op": "VIEW", "view": 0, "view_offset": 4, "sources": (0,), **shape},
        {"name": "c", "op": "MAP_CUSTOM1", "sources": (1, -2, 0), "params": None, "flags": 2, **shape},
        {"name": "in", "flags": 1, "memory": e.cpu, "usage": 0, "host": 1, **shape},
    ]


def write_sample(e: Any) -> None:
    """Every kind of record, each as a program may leave it."""
    w = e.w
    meta = w.queue(w.device("Meta", kind=4, test=False, profile=""), "Meta")
    event = w.event(e.devices[0])
    w.switch("GGML_SCHED_DEBUG", "on")
    w.note("a device was refused")
    sets = [
        w.set([(e.host, 64 * i, 64, "read", f"in{i}", 1), (e.memory, 128 * i, 128, "write", "out")])
        for i in range(4)
    ]
    q = e.queues
    w.tap()
    sched = w.sched([(q[0], e.devices[0], "TAPE0"), (e.cpu_queue, e.cpu, "CPU")])
    graphs = [w.graph(sched, received(e, n), n_leafs=1) for n in (4, 8)]
    for i in range(6):
        w.record("sched_reset", e=sched, end=w.now + 12)
        w.record("sched_alloc", e=sched, d=graphs[i % 2], a=i, end=w.now + 15)
        w.record("set", e=e.host, b=0, c=16, name="in")
        w.record("sched_compute", e=sched, d=graphs[i % 2], a=i, b=i, c=2, end=w.now + 75, thread=i % 2)
        own = w.buffer(e.devices[0], 256)
        w.record("buffer_alloc", e=own)
        w.record("set", e=e.host, b=64 * i, c=64)
        w.record("copy", queue=q[0], d=e.host, a=64 * i, e=own, b=0, c=64, thread=i % 2)
        slot = w.record("compute", queue=q[0], d=sets[i % 4], thread=i % 2)
        w.record("exec", a=slot, thread=0, end=w.now + 5)
        w.record("event_record", queue=q[0], d=event, a=i + 1)
        w.record("event_wait", queue=q[1], d=event, a=i + 1)
        w.record("memset", queue=q[1], e=e.memory, b=0, c=32)
        w.record("compute", queue=meta, flags=8, e=3)
        w.record("compute", queue=q[1], d=sets[0], flags=16)
        moved = w.record("copy", queue=q[0], d=own, a=0, e=e.memory, b=512, c=128)
        w.record("split_copy_wait", queue=q[1], a=moved)
        w.record("sync", queue=q[1], end=w.now + 20)
        w.record("event_sync", d=event, a=i + 1, end=w.now + 20)
        w.record("buffer_free", e=own)
    w.record("event_free", d=event)
    w.record("queue_free", queue=q[1])


def frames(data: bytes) -> list[tuple[int, bytes]]:
    """Return (type, payload) of every definition."""
    at, found = 0, []
    while at < len(data):
        n, _, kind = struct.unpack_from("<III", data, at)
        found.append((kind, data[at + 12 : at + 12 + n]))
        at += 12 + n
    return found


def packed(definitions: list[tuple[int, bytes]]) -> bytes:
    """Return definitions with checksums that fit, whatever they say."""
    return b"".join(
        struct.pack("<III", len(p), zlib.crc32(struct.pack("<I", k) + p), k) + p for k, p in definitions
    )


def mutate(rng: random.Random, rec: bytes, definitions: bytes) -> tuple[bytes, bytes]:
    """Return both files with a few plausible lies in them."""
    head, records = bytearray(rec[: HEADER.itemsize]), np.frombuffer(rec[HEADER.itemsize :], RECORD).copy()
    live = np.flatnonzero(records["commit"]).tolist()
    every, cut = frames(definitions), None
    for _ in range(rng.randint(1, 4)):
        choice = rng.random()
        if choice < 0.5:
            column = rng.choice(COLUMNS)
            value = rng.choice(EDGES) & ((1 << 8 * RECORD[column].itemsize) - 1)
            if column == "kind":
                value = rng.randint(1, 17)
            elif column == "flags":
                value = rng.randint(0, 63)
            elif column in SMALL and rng.random() < 0.7:
                value = rng.randint(0, 8)
            records[column][rng.choice(live)] = value
        elif choice < 0.62:
            to, of = rng.choice(live), rng.choice(live)
            records[to] = records[of]
            records["commit"][to] = COMMIT ^ to
        elif choice < 0.66:
            records["commit"][rng.choice(live)] = rng.choice((0, 5))
        elif choice < 0.74:
            at, size = rng.choice(HEADS)
            head[at : at + size] = (rng.choice(EDGES) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        elif choice < 0.92:
            i = rng.randrange(len(every))
            kind, payload = every[i]
            changed = bytearray(payload)
            if changed:
                at = rng.randrange(0, len(changed), 4)
                size = rng.choice((1, 4, 8))
                changed[at : at + size] = (rng.choice(EDGES) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
            every[i] = kind, bytes(changed[: len(payload)])
        elif choice < 0.95:
            every.insert(rng.randrange(len(every)), rng.choice(every))
        elif choice < 0.98:
            every.pop(rng.randrange(len(every)))
        else:
            cut = rng.randrange(len(definitions))
    return bytes(head) + records.tobytes(), packed(every)[:cut]


def collects(spool: Path, output: Path) -> bool:
    """Whether a spool gives a tape, which is then valid; if not, there is none."""
    with contextlib.suppress(SpoolError):
        result = collect_spool(spool, output, Asked(), force=True)
        assert result.written == output.exists()
        if result.written:
            load_tape(output, validate=True)
        return True
    assert not output.exists()
    return False


@pytest.mark.parametrize("count", [300, pytest.param(2000, marks=pytest.mark.soak)])
def test_mutants(engine: Callable[..., Any], tmp_path: Path, count: int) -> None:
    e = engine(devices=2, threads=2)
    write_sample(e)
    rec, definitions = e.w.write().read_bytes(), e.w.definitions.read_bytes()
    output = tmp_path / "run.tape"
    assert collects(e.w.rec.parent, output)
    good = 0
    for seed in range(count):
        for path in output.glob("*"):
            path.unlink()
        if output.exists():
            output.rmdir()
        e.w.rec.write_bytes((files := mutate(random.Random(seed), rec, definitions))[0])
        e.w.definitions.write_bytes(files[1])
        try:
            good += collects(e.w.rec.parent, output)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
    assert count * 0.1 < good < count * 0.9
