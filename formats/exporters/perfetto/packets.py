"""Packets of a Perfetto trace: written in batches, texts once each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import IO, Any

from ...errors import InfrastructureError

__all__ = ["Packets", "require_perfetto"]

_BATCH = 512
_SEQUENCE = 1
_CLEARED, _NEEDED = 1, 2


def require_perfetto() -> Any:
    """Return the module of the trace's messages.

    Raises
    ------
    InfrastructureError
        The package `perfetto` is not installed.
    """
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError as e:
        raise InfrastructureError(
            f"the format perfetto needs the package perfetto, which cannot be imported: {e}",
            next_step="pip install 'tapedelay[export]', or: pip install perfetto",
        ) from None
    return perfetto_trace_pb2


class Packets:
    """Writes a trace; nothing but the texts that it names and one batch stays in memory.

    Parameters
    ----------
    file : binary file
        Where to.
    """

    def __init__(self, file: IO[bytes]) -> None:
        messages = require_perfetto()
        self._file = file
        self._new = messages.Trace
        self._batch = self._new()
        self._event = messages.TrackEvent
        self._counter = messages.CounterDescriptor
        self._explicit = messages.TrackDescriptor.ChildTracksOrdering.EXPLICIT
        self._unmerged = messages.TrackDescriptor.SiblingMergeBehavior.SIBLING_MERGE_BEHAVIOR_NONE
        self._interned: dict[str, dict[str, int]] = {}
        self._fresh: list[tuple[str, int, str]] = []
        self._first = True
        self.written = 0

    def _packet(self) -> Any:
        if len(self._batch.packet) >= _BATCH:
            self.flush()
        packet = self._batch.packet.add()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = _CLEARED if self._first else _NEEDED
        if self._first:
            packet.first_packet_on_sequence = True
            self._first = False
        self.written += 1
        return packet

    def flush(self) -> None:
        """Write what is left."""
        self._file.write(self._batch.SerializeToString())
        self._batch = self._new()  # clearing it would free nothing

    def _text(self, sort: str, text: str) -> int:
        known = self._interned.setdefault(sort, {})
        found = known.get(text)
        if found is None:
            found = known[text] = len(known) + 1
            self._fresh.append((sort, found, text))
        return found

    def _intern(self, packet: Any) -> None:
        for sort, number, text in self._fresh:
            entry = getattr(packet.interned_data, sort).add()
            entry.iid = number
            if sort == "debug_annotation_string_values":
                entry.str = text.encode("utf-8", "backslashreplace")
            else:
                entry.name = text
        self._fresh.clear()

    def track(
        self,
        track: int,
        name: str,
        parent: int = 0,
        *,
        rank: int = 0,
        about: str = "",
        unit: str | None = None,
    ) -> None:
        """Describe a track before anything stands on it.

        Parameters
        ----------
        track, parent : int
            Numbers from 1; parent 0: none.
        rank : int
            Where it stands among those with its parent.
        about : str
            What it shows, in words.
        unit : str, optional
            Makes it a counter: ``count``, ``bytes`` or any other unit.
        """
        found = self._packet().track_descriptor
        found.uuid, found.name = track, name
        if parent:
            found.parent_uuid = parent
        found.sibling_order_rank = rank
        found.child_ordering = self._explicit
        found.sibling_merge_behavior = self._unmerged
        if about:
            found.description = about
        if unit == "count":
            found.counter.unit = self._counter.UNIT_COUNT
        elif unit == "bytes":
            found.counter.unit = self._counter.UNIT_SIZE_BYTES
        elif unit is not None:
            found.counter.unit_name = unit

    def event(
        self,
        track: int,
        at_ns: int,
        name: str,
        categories: Iterable[str] = (),
        notes: Mapping[str, int | str] | None = None,
        *,
        instant: bool = False,
        flows: Iterable[int] = (),
        ends: Iterable[int] = (),
    ) -> None:
        """Begin a slice, or write an instant.

        Parameters
        ----------
        notes : mapping
            Shown beside the event.
        flows, ends : iterable of int
            Flows that go on from here, and that end here.
        """
        packet = self._packet()
        packet.timestamp = at_ns
        event = packet.track_event
        event.type = self._event.TYPE_INSTANT if instant else self._event.TYPE_SLICE_BEGIN
        event.track_uuid = track
        event.name_iid = self._text("event_names", name)
        for category in categories:
            event.category_iids.append(self._text("event_categories", category))
        for key, value in (notes or {}).items():
            note = event.debug_annotations.add()
            note.name_iid = self._text("debug_annotation_names", key)
            if isinstance(value, int):
                note.int_value = value
            else:
                note.string_value_iid = self._text("debug_annotation_string_values", value)
        event.flow_ids.extend(flows)
        event.terminating_flow_ids.extend(ends)
        if self._fresh:
            self._intern(packet)

    def end(self, track: int, at_ns: int) -> None:
        """End the slice that began last on a track."""
        packet = self._packet()
        packet.timestamp = at_ns
        event = packet.track_event
        event.type = self._event.TYPE_SLICE_END
        event.track_uuid = track

    def count(self, track: int, at_ns: int, value: int | float) -> None:
        """Write a value of a counter."""
        packet = self._packet()
        packet.timestamp = at_ns
        event = packet.track_event
        event.type = self._event.TYPE_COUNTER
        event.track_uuid = track
        if isinstance(value, int):
            event.counter_value = value
        else:
            event.double_counter_value = value
