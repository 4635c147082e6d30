"""The scene of a litmus file: what holds for both of its variants."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ..notation import NAME, Spot, shown
from ..tape import Manifest
from .lines import RefText, RowText, parse_ref
from .names import Names

__all__ = ["Scene", "auto_name", "target_of"]

_NEW = re.compile(rf"({NAME})\s*=\s*(.*)")


@dataclass
class Scene:
    """Everything that holds for both variants of a file."""

    devices: Names = field(default_factory=lambda: Names("device"))
    queues: Names = field(default_factory=lambda: Names("queue"))
    syncs: Names = field(default_factory=lambda: Names("sync"))
    buffers: list[dict[str, Any]] = field(default_factory=list)
    buffer_spots: list[tuple[Spot, dict[str, str | None]]] = field(default_factory=list)
    buffers_declared: bool = False
    lists: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    set_lines: list[tuple[Spot, int, str, str]] = field(default_factory=list)
    manifest: Manifest = field(default_factory=Manifest)
    issuers: dict[int, int | None] = field(default_factory=dict)

    def is_host(self, queue: int) -> bool:
        """Whether a queue is a host thread."""
        return bool(self.queues.rows[queue]["kind"] == "host_thread")

    def default_issuer(self, queue: int) -> int | None:
        """Return who issues a row that names no thread."""
        if queue not in self.issuers:
            if self.is_host(queue):
                return queue
            rows = self.queues.rows
            hosts = [q for q, r in enumerate(rows) if r["kind"] == "host_thread"]
            same = [q for q in hosts if rows[q]["process"] == rows[queue]["process"]]
            self.issuers[queue] = (same or hosts or [None])[0]  # type: ignore[list-item]
        return self.issuers[queue]

    def host_device(self, process: int) -> int | None:
        """Return the host device of a process, implied if no device is declared."""
        devices = self.devices
        for row in devices.rows:
            if row["kind"] == "host" and row["process"] == process:
                return int(row["device"])
        if devices.declared:
            return next((int(r["device"]) for r in devices.rows if r["kind"] == "host"), None)
        return devices.add(f"host{process or ''}", kind="host", profile="strict", process=process)

    def device(self, spot: Spot, name: str, process: int) -> int:
        """Return the device of a name, implied if no device is declared."""
        devices = self.devices
        if devices.find(spot, name) is None and not devices.declared:
            self.host_device(process)
            return devices.add(name, kind="gpu", profile="strict", process=process)
        return devices.get(spot, name)


def target_of(row: RowText) -> tuple[str | None, RefText | None]:
    """Return the new name (or None) and the buffer of an alloc or free row (None: a bare one)."""
    if row.kind not in ("alloc", "free") or not row.target:
        return None, None
    new, text = None, row.target
    if m := _NEW.fullmatch(row.target):
        new, text = m[1], m[2]
    ref = parse_ref(row.spot, text)
    if ref.name == "?" or ref.affine or ref.unit_bytes is not None:
        raise row.spot.error(f"{row.kind} of {shown(text)}", "a buffer or a fixed range of one")
    if new is not None and (row.kind != "alloc" or ref.begin is None):
        raise row.spot.error(f"{shown(row.target)}", "alloc with NAME=BUFFER[begin:end]")
    return new, ref


def auto_name(ref: RefText) -> str:
    """Return the name of a sub-allocation that a row makes without naming it."""
    return f"{ref.name.lstrip('.')}.{ref.begin}-{ref.end}"
