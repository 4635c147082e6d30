"""The tracks of a trace: devices, their queues, and lanes where ops of a queue overlap."""

from __future__ import annotations

from ...shown import printable
from ...tape import Tape
from ..lanes import Lanes
from .packets import Packets

__all__ = ["Tracks"]

_FINDINGS_RANK, _DEVICES_RANK = 1, 10
_COUNTERS_RANK, _QUEUES_RANK = 0, 1000


class Tracks:
    """Numbers of tracks, described to the trace when they are first needed."""

    def __init__(self, tape: Tape, packets: Packets) -> None:
        self._packets = packets
        self._last = 0
        self._devices: dict[int, int] = {}
        self._queues: dict[int, int] = {}
        self._lanes: dict[tuple[int, str], Lanes] = {}
        self._known: dict[tuple[int, str, int], int] = {}
        self._device_rows = tape.table("devices").to_pylist()
        self._queue_rows = tape.table("queues").to_pylist()
        self._many = len(tape.manifest.processes) > 1
        self.root = self.new(printable(tape.name), about="a tape; what it says of itself stands at 0")

    def new(
        self, name: str, parent: int = 0, *, rank: int = 0, about: str = "", unit: str | None = None
    ) -> int:
        """Describe a track and return its number."""
        self._last += 1
        self._packets.track(self._last, name, parent, rank=rank, about=about, unit=unit)
        return self._last

    def findings(self, about: str) -> int:
        """Return a new track above the devices."""
        return self.new("findings", self.root, rank=_FINDINGS_RANK, about=about)

    def device(self, device: int) -> int:
        """Return the track of a device."""
        found = self._devices.get(device)
        if found is None:
            row = self._device_rows[device]
            name = f"{printable(row['name'])} ({row['kind']})"
            if self._many:
                name += f", process {row['process']}"
            rank = _DEVICES_RANK + device
            found = self._devices[device] = self.new(name, self.root, rank=rank, about="a device")
        return found

    def queue(self, queue: int) -> int:
        """Return the track of a queue; its ops lie there."""
        found = self._queues.get(queue)
        if found is None:
            row = self._queue_rows[queue]
            what = "a host thread" if row["kind"] == "host_thread" else "a queue"
            found = self._queues[queue] = self.new(
                self._name(queue), self.device(row["device"]), rank=_QUEUES_RANK + queue, about=what
            )
        return found

    def counter(self, device: int, name: str, unit: str, about: str) -> int:
        """Return a new counter of a device, -1 for none."""
        parent = self.device(device) if device >= 0 else self.root
        return self.new(name, parent, rank=_COUNTERS_RANK, about=about, unit=unit)

    def place(self, queue: int, sort: str, op: int, parent: int, start: int, end: int) -> int:
        """Return the track where an op of a queue lies.

        Parameters
        ----------
        sort : str
            Empty for work; otherwise the name of the tracks for ops of that sort.
        op, parent, start, end : int
            See `Lanes.place`.
        """
        lanes = self._lanes.setdefault((queue, sort), Lanes())
        lane = lanes.place(op, parent, start, end)
        key = (queue, sort, lane)
        found = self._known.get(key)
        if found is None:
            own = self.queue(queue)
            if not sort and not lane:
                found = own
            else:
                name = " ".join(
                    [self._name(queue), *([sort] if sort else []), *([f"overlap {lane}"] * (lane > 0))]
                )
                found = self.new(name, own, rank=2 * lane + (not sort))
            self._known[key] = found
        return found

    def _name(self, queue: int) -> str:
        return printable(self._queue_rows[queue]["name"]) or f"queue {queue}"
