"""A writer of spools, small and independent of the reader: it follows native/spool.h only; and an NVML."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from .small_commands import ENTRY

STANDIN_NVML = Path(__file__).parent / "telemetry" / "standin_nvml.c"
COMMIT = 0x7AD0C0DE
NONE = 0xFFFFFFFF
NO_QUEUE = 0xFFFF
KINDS = (
    "none", "compute", "copy", "set", "get", "memset", "clear", "event_record", "event_wait", "event_sync",
    "sync", "buffer_alloc", "buffer_free", "event_free", "queue_init", "queue_free", "exec",
    "split_copy_wait", "delay", "gap", "sched_compute", "sched_alloc", "sched_reset",
)  # fmt: skip
HOST, FOREIGN, FAILED, META, CHILD, SPAN = 1, 2, 4, 8, 16, 32
MODES = ["read", "write", "update", "may_write", "reduce"]


def text(s: str) -> bytes:
    data = s.encode()
    return struct.pack("<I", len(data)) + data


class SpoolWriter:
    """Writes what a process would have left behind; times are nanoseconds of its monotonic clock."""

    def __init__(
        self, stem: Path, *, mono_ns: int = 0, wall_ns: int = 1_000_000, pid: int = 4711, boot: int = 0
    ) -> None:
        self.stem = stem
        self.head: dict[str, Any] = {
            "magic": 0x304C4F4F50534454, "version": 0, "record_bytes": 64, "mono_ns": mono_ns,
            "wall_ns": wall_ns, "pid": pid, "flags": 1, "lost": 0, "boot": boot,
        }  # fmt: skip
        self.slots: list[bytes] = []
        self.frames: list[bytes] = []
        self.count: dict[int, int] = {}
        self.names: dict[str, int] = {}
        self.now = mono_ns

    # --- definitions

    def frame(self, kind: int, payload: bytes) -> None:
        body = struct.pack("<I", kind) + payload
        self.frames.append(struct.pack("<II", len(payload), zlib.crc32(body)) + body)

    def _next(self, kind: int) -> int:
        self.count[kind] = self.count.get(kind, 0) + 1
        return self.count[kind] - 1

    def process(self, engine: str = "ggml", build: str = "b1", api: int = 2) -> None:
        self.frame(1, struct.pack("<I", api) + text(engine) + text(build) + struct.pack("<I", 1))

    def thread(self) -> int:
        i = self._next(2)
        self.frame(2, struct.pack("<I", i))
        return i

    def device(
        self, name: str, kind: int = 1, test: bool = True, profile: str = "vulkan-like", *, reg: str = "REG",
        bus: str = "",
    ) -> int:  # fmt: skip
        i = self._next(3)
        words = text(name) + text("a device of /home/somebody") + text(reg) + text(profile) + text(bus)
        self.frame(3, struct.pack("<IIII", i, kind, test, 7) + words)
        return i

    def queue(self, device: int, name: str, is_async: bool = True) -> int:
        i = self._next(4)
        self.frame(4, struct.pack("<III", i, device, is_async) + text(name))
        return i

    def buffer(
        self, device: int, size: int, *, host: bool = False, flags: int = 0, base: int = 0x7F00_0000_0000,
        again: int | None = None, name: str = "buft",
    ) -> int:  # fmt: skip
        i = self._next(5) if again is None else again
        self.frame(5, struct.pack("<IIIQQ", i, device, flags | host, size, base) + text(name))
        return i

    def event(self, device: int, *, late: bool = False) -> int:
        i = self._next(6)
        self.frame(6, struct.pack("<III", i, device, late))
        return i

    def name(self, s: str) -> int:
        if s not in self.names:
            self.names[s] = self._next(7)
            self.frame(7, struct.pack("<I", self.names[s]) + text(s))
        return self.names[s]

    def set(self, accesses: Iterable[tuple[Any, ...]]) -> int:
        """Accesses: (buffer, offset, bytes, mode, name[, flags])."""
        rows = b""
        n = 0
        for node, (buffer, offset, size, mode, name, *flags) in enumerate(accesses):
            rows += struct.pack(
                "<IIQQBBHI",
                buffer,
                self.name(name),
                offset,
                size,
                MODES.index(mode),
                flags[0] if flags else 0,
                0,
                node,
            )
            n += 1
        i = self._next(8)
        self.frame(8, struct.pack("<II", i, n) + rows)
        return i

    def switch(self, name: str, word: str) -> None:
        self.frame(9, text(name) + text(word))

    def note(self, s: str) -> None:
        self.frame(10, text(s))

    def sched(self, backends: Iterable[tuple[int, int, str]], *, flags: int = 2, copies: int = 1) -> int:
        """Backends: (queue, device, buffer type)."""
        i, rows = self._next(12), list(backends)
        body = b"".join(struct.pack("<II", queue, device) + text(t) for queue, device, t in rows)
        self.frame(12, struct.pack("<IIII", i, flags, copies, len(rows)) + body)
        return i

    def graph(self, sched: int, nodes: Iterable[dict[str, Any]], n_leafs: int = 0) -> int:
        """Nodes, then leafs: each with what differs from a tensor of 4 floats without sources."""
        rows = [self._node(**n) for n in nodes]
        i = self._next(11)
        self.frame(11, struct.pack("<IIII", i, sched, len(rows) - n_leafs, n_leafs) + b"".join(rows))
        return i

    def _node(
        self, name: str = "t", op: str = "NONE", *, shape: tuple[int, ...] = (4, 1, 1, 1),
        strides: tuple[int, ...] = (4, 16, 16, 16), sources: tuple[int, ...] = (), view: int = -2,
        view_offset: int = 0, flags: int = 0, memory: int = NONE, user: int = NONE, usage: int = 0xFF,
        host: int = 0, params: tuple[int, ...] | None = (), dtype: str = "f32",
    ) -> bytes:  # fmt: skip
        words = [*(params or ()), *[0] * (16 - len(params or ()))]
        return struct.pack(
            "<4q4QQ10iiIIIiII16iBBB9x", *shape, *strides, view_offset, *sources, *[-2] * (10 - len(sources)),
            view, self.name(name), self.name(op), self.name(dtype), flags, memory, user, *words, usage, host,
            params is not None,
        )  # fmt: skip

    def tap(self, version: int = 1) -> None:
        self.frame(14, struct.pack("<I", version))

    # --- records

    def record(
        self, kind: str, *, thread: int = 0, queue: int = NO_QUEUE, at: int | None = None, end: int = 0,
        a: int = 0, b: int = 0, c: int = 0, d: int = NONE, e: int = NONE, name: str | None = None,
        flags: int = 0,
    ) -> int:  # fmt: skip
        self.now = at if at is not None else self.now + 10
        slot = len(self.slots)
        self.slots.append(
            struct.pack(
                "<QQQQQIIIIHBBI",
                self.now,
                end,
                a,
                b,
                c,
                d,
                e,
                NONE if name is None else self.name(name),
                thread,
                queue,
                KINDS.index(kind),
                flags,
                (COMMIT ^ slot) & 0xFFFFFFFF,
            )
        )
        return slot

    def hole(self) -> None:
        self.slots.append(bytes(64))

    # --- files

    def header(self) -> bytes:
        h = self.head
        return struct.pack(
            "<QIIQQIIQQQ", h["magic"], h["version"], h["record_bytes"], h["mono_ns"], h["wall_ns"], h["pid"],
            h["flags"], h["lost"], h["boot"], 0,
        )  # fmt: skip

    @property
    def rec(self) -> Path:
        return self.stem.with_suffix(".rec")

    @property
    def definitions(self) -> Path:
        return self.stem.with_suffix(".def")

    def write(self) -> Path:
        self.rec.write_bytes(self.header() + b"".join(self.slots) + bytes(64 * 16))
        self.definitions.write_bytes(b"".join(self.frames))
        return self.rec


class Engine:
    """A spool with what most tests need: a CPU, test devices, a host buffer and a device buffer."""

    def __init__(self, writer: SpoolWriter, devices: int = 1, threads: int = 1) -> None:
        self.w = writer
        writer.process()
        for _ in range(threads):
            writer.thread()
        self.cpu = writer.device("CPU", kind=0, test=False, profile="")
        self.cpu_queue = writer.queue(self.cpu, "CPU", is_async=False)
        self.devices = [writer.device(f"TAPE{i}") for i in range(devices)]
        self.queues = [writer.queue(d, f"TAPE{i}") for i, d in enumerate(self.devices)]
        self.host = writer.buffer(self.cpu, 4096, host=True, name="CPU")
        self.memory = writer.buffer(self.devices[0] if self.devices else self.cpu, 4096, name="TAPE0")


@pytest.fixture
def spool_writer(tmp_path: Path) -> Callable[..., SpoolWriter]:
    """Make spool writers in one directory, ``tmp_path / "spool"``."""
    directory = tmp_path / "spool"
    directory.mkdir()
    made: list[SpoolWriter] = []

    def make(**head: Any) -> SpoolWriter:
        made.append(SpoolWriter(directory / f"{4711 + len(made)}-{len(made)}", **head))
        return made[-1]

    return make


@pytest.fixture
def engine(spool_writer: Callable[..., SpoolWriter]) -> Callable[..., Engine]:
    """Make engines' spools."""

    def make(devices: int = 1, threads: int = 1, **head: Any) -> Engine:
        return Engine(spool_writer(**head), devices, threads)

    return make


@pytest.fixture(scope="session")
def standin(compiled: Callable[..., Path]) -> Callable[[str], dict[str, str]]:
    """Return the environment in which ``pynvml`` finds the stand-in, in a scenario of it."""
    flags = ["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    folder = compiled("libnvidia-ml.so.1", *flags, STANDIN_NVML).parent

    def environment(scenario: str = "") -> dict[str, str]:
        known = os.environ.get("LD_LIBRARY_PATH", "")
        return {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, [str(folder), known])), "STANDIN": scenario}

    return environment


@pytest.fixture(scope="session")
def no_driver(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment in which no driver's library can be loaded, whatever the machine has."""
    folder = tmp_path_factory.mktemp("no-driver")
    (folder / "libnvidia-ml.so.1").write_text("no library")
    return {"LD_LIBRARY_PATH": str(folder)}


@pytest.fixture
def cli(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``tapedelay`` in ``tmp_path`` with a plugin that exists but that nobody loads."""
    plugin = tmp_path / "plugin.so"
    plugin.write_text("")

    def call(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", ENTRY, *words],
            cwd=tmp_path,
            env={**os.environ, "TAPEDELAY_PLUGIN": str(plugin), **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return call
