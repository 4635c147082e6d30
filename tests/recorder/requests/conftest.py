"""Recorders in this process, and a small program that never stops stepping."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from tapedelay.recorder.requests import PoolRow, SchedulerRecorder, spool, stop

HEADER = struct.Struct("<8sIIIIqq")

ENDLESS = """
from tapedelay.recorder.requests import PoolRow, SchedulerRecorder
r = SchedulerRecorder("toy", "1", {"slots": 4}, [PoolRow("kv", 1000, 1, 16)])
keys = ["a", "b", "c", "d"]
step = 0
while step < STEPS:
    if step % 10 == 0:
        for k in keys:
            r.submit(k, prompt_tokens=16, max_tokens=10)
    n = step % 10
    r.begin("step")
    for i, k in enumerate(keys):
        r.blocks("alloc", 0, [1 + n * 4 + i], k)
    r.schedule([(k, 16, 0, True) if n == 0 else (k, 1, 15 + n, False) for k in keys])
    r.resources(0, 999 - 4 * n - 4, 4 * n + 4)
    r.end()
    r.begin("output")
    r.answers([(k, 1, "length" if n == 9 else None) for k in keys])
    if n == 9:
        for i, k in enumerate(keys):
            r.decision("finish", k)
            r.blocks("free", 0, [1 + m * 4 + i for m in range(10)], k)
    r.end()
    step += 1
    if step == 20:
        print("going", flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a raw recording; this process writes into it as an engine would."""
    made = tmp_path / "spool"
    made.mkdir()
    monkeypatch.setenv("TAPEDELAY_SPOOL", str(made))
    monkeypatch.setattr(spool, "_words", set())
    yield made
    stop()


@pytest.fixture
def recorder(folder: Path) -> Callable[..., SchedulerRecorder]:
    """Make recorders of a toy scheduler with one pool."""

    def make(**config: Any) -> SchedulerRecorder:
        return SchedulerRecorder("toy", "1", config, [PoolRow("kv", 64, 1, 16)])

    return make


def frame(*fields: Any) -> bytes:
    return raw_frame(bytes(msgpack.packb(list(fields))))


def raw_frame(payload: bytes) -> bytes:
    return struct.pack("<II", len(payload), zlib.crc32(payload)) + payload


def head(magic: bytes = b"TDREQSTS", version: int = 0, status: int = 1, mono_ns: int = 1000) -> bytes:
    return HEADER.pack(magic, version, status, 0, 4711, mono_ns, 5000)


SCHEDULER = (0, 0, "toy", "1", {"slots": 1}, [["kv", 64, 1, 16]])


def an_input(**changed: Any) -> list[Any]:
    """The fields of an input frame, in their order."""
    fields = {
        "type": 1, "scheduler": 0, "kind": 0, "at_ns": 2000, "request": 0, "requests": None, "step": None,
        "tokens": None, "decode_only": None, "value": None, "word": None,
        "arrive_ns": None,
        "new": [[0, -1, 8, None, None, None, None, None]], "prefixes": [], "events": [], "resources": [],
    }  # fmt: skip
    assert set(changed) <= set(fields)
    return list((fields | changed).values())
