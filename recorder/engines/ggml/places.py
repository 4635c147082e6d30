"""Devices, queues, threads, buffers and events of one process under the ids of the tape."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from ....formats.builder import TapeBuilder
from .aliases import Root, common_roots
from .definitions import DeviceType, Spool
from .last import used_buffers, used_events
from .layout import NONE, BufferFlag
from .thread_rows import ThreadRows

__all__ = ["OTHER_THREADS", "Naming", "Places"]

OTHER_THREADS = "other threads"
"""Name of a row of threads which nothing orders."""

_ADDRESS_END = 1 << 63


class Naming:
    """Names that differ within a table: the second queue ``TAPE0`` is ``TAPE0.2``."""

    def __init__(self) -> None:
        self._used: dict[str, Counter[str]] = defaultdict(Counter)

    def fresh(self, table: str, name: str) -> str:
        """Return `name`, numbered if the table has it already."""
        used = self._used[table]
        used[name] += 1
        return name if used[name] == 1 else self.fresh(table, f"{name}.{used[name]}")


class Places:
    """Maps the ids of one process's spool to the tape's.

    Attributes
    ----------
    host : int
        Host device. The engine's CPU device is the same memory and has no queue of its own.
    threads : list of int or None
        Queue of each host thread, which it may share (`thread_rows`); None for the plugin's own workers.
    queues : list of int or None
        Queue of each backend object; None where it works on the calling thread.
    devices, buffers, syncs : list of int
        Tape ids by spool id.
    """

    def __init__(
        self, spool: Spool, builder: TapeBuilder, naming: Naming, process: int, rows: ThreadRows
    ) -> None:
        self.spool = spool
        self.process = process
        self._builder = builder
        prefix = f"p{process}." if process else ""
        cpu = next((d for d in spool.devices if d.kind == "host"), None)
        self.host = builder.device(
            name=naming.fresh("devices", prefix + (cpu.name if cpu else "host")),
            kind="host",
            profile="ggml-host",
            process=process,
        )
        self.devices = [self._device(i, naming, prefix) for i in range(len(spool.devices))]
        self.threads = self._threads(naming, prefix, rows)
        self.queues = [self._queue(i, naming, prefix) for i in range(len(spool.queues))]
        # A flight recorder's window: what nothing in it names is left out. Nobody asks for its id.
        whole = not spool.dropped
        events = np.full(len(spool.events), True) if whole else used_events(spool)
        buffers = np.full(len(spool.buffers), True) if whole else used_buffers(spool)
        self.syncs = [self._event(i, naming, prefix) if u else -1 for i, u in enumerate(events)]
        seen_twice = common_roots(spool, [self._has_address(i) for i in range(len(spool.buffers))])
        self._roots: dict[Root, int] = {}
        self.buffers: list[int] = []
        for i, used in enumerate(buffers):
            self.buffers.append(self._buffer(i, naming, prefix, seen_twice.get(i)) if used else -1)

    def _device(self, index: int, naming: Naming, prefix: str) -> int:
        d = self.spool.devices[index]
        if d.kind == "host":
            return self.host
        profile = d.profile if d.is_test and d.profile else "ggml-gpu"
        return self._builder.device(
            name=naming.fresh("devices", prefix + d.name), kind=d.kind, profile=profile, process=self.process
        )

    def _threads(self, naming: Naming, prefix: str, rows: ThreadRows) -> list[int | None]:
        made: dict[int, int] = {}
        callers = [t for t, leader in enumerate(rows.leaders) if leader is not None]
        for number, thread in enumerate(callers):
            if rows.leaders[thread] == thread:
                name = OTHER_THREADS if thread in rows.shared else f"host{number}"
                made[thread] = self._thread(naming.fresh("queues", prefix + name))
        return [None if leader is None else made[leader] for leader in rows.leaders]

    def _thread(self, name: str) -> int:
        return self._builder.queue(device=self.host, name=name, kind="host_thread", process=self.process)

    def _queue(self, index: int, naming: Naming, prefix: str) -> int | None:
        q = self.spool.queues[index]
        if not q.is_async:
            return None
        name = naming.fresh("queues", prefix + q.name)
        return self._builder.queue(
            device=self.devices[q.device],
            name=name,
            kind="queue",
            # A meta device has no queue of its own: what it passes on is ordered where it runs.
            in_order=self.spool.devices[q.device].type != DeviceType.META,
            process=self.process,
        )

    def _event(self, index: int, naming: Naming, prefix: str) -> int:
        device = self.spool.events[index]
        owner = None if device == NONE else self.devices[device]
        return self._builder.sync(
            name=naming.fresh("syncs", f"{prefix}event{index}"), device=owner, process=self.process
        )

    def _has_address(self, index: int) -> bool:
        """Whether the base of a buffer is where its bytes really are."""
        b = self.spool.buffers[index]
        meta = b.device != NONE and self.spool.devices[b.device].type == DeviceType.META
        return self.on_host(index) and not meta and b.bytes > 0 and 0 < b.base < _ADDRESS_END - b.bytes

    def _buffer(self, index: int, naming: Naming, prefix: str, root: Root | None) -> int:
        b = self.spool.buffers[index]
        on_host = self.on_host(index)
        device = self.host if on_host else self.devices[b.device]
        if b.flags & BufferFlag.WEIGHTS:
            kind = "weights"
        elif on_host:
            made_by_host = b.device == NONE or self.devices[b.device] == self.host
            kind = "host" if made_by_host else "pinned"
        else:
            kind = "device"
        place = {}
        if root is not None:
            if root not in self._roots:
                self._roots[root] = self._builder.buffer(
                    device=device,
                    name=naming.fresh("buffers", f"{prefix}shared memory"),
                    bytes=root.bytes,
                    kind=kind,
                )
            place = {"parent": self._roots[root], "parent_offset": b.base - root.base}
        return self._builder.buffer(
            device=device,
            name=naming.fresh("buffers", prefix + (b.type_name or "buffer")),
            bytes=b.bytes,
            kind=kind,
            **place,
        )

    def on_host(self, buffer: int) -> bool:
        """Return whether a buffer (spool id) is host memory."""
        b = self.spool.buffers[buffer]
        return bool(b.flags & BufferFlag.HOST) or b.device == NONE

    def queue_of(self, queue: int, thread: int) -> int:
        """Return the tape queue on which work of a backend object runs when `thread` calls."""
        own = self.queues[queue] if queue < len(self.queues) else None
        return self.thread(thread) if own is None else own

    def thread(self, thread: int) -> int:
        """Return the tape queue of a host thread."""
        queue = self.threads[thread]
        assert queue is not None, "a thread that calls the engine has a queue"
        return queue
