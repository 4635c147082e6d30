"""What the profiles of the devices declare, and switches add: orders that no row of the tape says."""

from __future__ import annotations

from collections.abc import Sequence

from ..plain import NULL, flat, ids, words
from ..profiles import Profile, find_profile
from ..switches import DIRECTIONS
from ..tape import Tape
from .columns import Ops, Queues, Table
from .switched import Added

__all__ = ["Declared"]


class Declared:
    """The profiles of a tape's devices and what they mean for its queues, buffers and access sets."""

    def __init__(self, tape: Tape, check: Table, added: Sequence[Added]) -> None:
        self._tape = tape
        self.added = added
        self._check = check
        devices = flat(tape.table("devices"))
        check.dense(ids(devices, "device"), "device")
        self.devices: int = devices.num_rows
        self._host_devices = [k == "host" for k in words(devices, "kind")]
        found: dict[str, Profile] = {}
        self.profiles: list[Profile] = []
        for name in words(devices, "profile"):
            if str(name) not in found:
                found[str(name)] = find_profile(str(name), tape.manifest.profiles, where=tape.where)
            self.profiles.append(found[str(name)])
        buffers = flat(tape.table("buffers"))
        self.buffers: int = buffers.num_rows
        self.buffer_device = ids(buffers, "device")
        self._buffer_kind = words(buffers, "kind")
        check.below(self.buffer_device, self.devices, "device", nullable=False)

    def default_queues(self, queues: Queues) -> list[bool]:
        """Return which queues are legacy default queues that block the others of their device."""
        return [
            queues.kind[q] == "default" and self.profiles[queues.device[q]].default_queue_blocks
            for q in range(queues.rows)
        ]

    def waits_for_device(self, ops: Ops, row: int) -> int:
        """Return the device that an alloc or free waits for, or `NULL`."""
        target = ops.target[row]
        if target == NULL:
            return NULL
        device = self.buffer_device[target]
        profile = self.profiles[device]
        waits = profile.free_synchronises if ops.kind[row] == "free" else profile.alloc_synchronises
        return device if waits else NULL

    def blocking_sets(self) -> dict[int, set[int]]:
        """Return, per device that has blocking copies, the access sets that are such copies."""
        wanted = {
            d: set(p.blocking_copies) | {w for i, w in enumerate(DIRECTIONS) if a.block_copies >> i & 1}
            for d, (p, a) in enumerate(zip(self.profiles, self.added, strict=True))
            if p.blocking_copies or a.block_copies
        }
        if not wanted:
            return {}
        table = flat(self._tape.table("accesses"))
        sides: dict[int, tuple[set[str], set[str]]] = {}
        rows = zip(ids(table, "set"), ids(table, "buffer"), words(table, "mode"), strict=True)
        for key, buffer, mode in rows:
            if buffer != NULL and not 0 <= buffer < len(self.buffer_device):
                raise self._check.error(f"access set {key}: buffer {buffer}", "a buffer of this tape")
            if buffer == NULL:
                side = "h"
            elif self._buffer_kind[buffer] == "pinned":
                side = "p"
            else:
                side = "h" if self._host_devices[self.buffer_device[buffer]] else "d"
            reads, writes = sides.setdefault(key, (set(), set()))
            (reads if mode == "read" else writes).add(side)
        return {
            device: {
                key
                for key, (reads, writes) in sides.items()
                if any(f"{a}2{b}" in directions for a in reads for b in writes)
            }
            for device, directions in wanted.items()
        }
