"""A tape in memory: the manifest and its tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from .schema import FORMAT_READ, FORMAT_WRITE, SCHEMAS

__all__ = ["Coverage", "Manifest", "Process", "Tape"]


@dataclass(frozen=True)
class Coverage:
    """What the recorder saw of one queue; each of ``full``, ``partial``, ``none``.

    Attributes
    ----------
    queue : int
        Queue id.
    accesses : str
        Bytes touched by the ops of the queue.
    host_accesses : str
        Bytes touched by host code between the ops (host threads only; ``full`` elsewhere).
    waits : str
        Waits and host-to-host synchronisation. A host thread with less than ``full`` makes unordered pairs
        between host threads ``unknown``.
    times : str
        Start and duration.
    """

    queue: int
    accesses: str = "full"
    host_accesses: str = "full"
    waits: str = "full"
    times: str = "full"


@dataclass(frozen=True)
class Process:
    """One recorded process.

    Attributes
    ----------
    process : int
        Ordinal, first seen first.
    complete : bool
        Whether its recording ended cleanly.
    records, lost : int
        Records collected and records known to be lost.
    wall_offset_ns : int or None
        Wall-clock time at the tape's origin minus 0, so that several processes line up.
    """

    process: int
    complete: bool = True
    records: int = 0
    lost: int = 0
    wall_offset_ns: int | None = None


@dataclass(frozen=True)
class Manifest:
    """What ``manifest.json`` says beside the tables.

    Attributes
    ----------
    engine : dict
        ``name``, ``build``, ``api_version`` and other known words; no paths, no command line.
    profiles : dict
        Definitions of the profiles that the devices name, see ``formats/profiles.py``.
    coverage : tuple of Coverage
        One entry per queue; a queue without an entry has full coverage.
    switches : dict
        Debugging switches of the engine: ``on``, ``off`` or a known word.
    notes : tuple of str
        What the recorder has to say in words (for example "split and step: not seen without the tap").
    complete : bool
        The recording ended cleanly.
    lost : int
        Records lost.
    """

    engine: dict[str, Any] = field(default_factory=dict)
    profiles: dict[str, dict[str, Any]] = field(default_factory=dict)
    processes: tuple[Process, ...] = (Process(0),)
    coverage: tuple[Coverage, ...] = ()
    switches: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    complete: bool = True
    lost: int = 0
    format_write: int = FORMAT_WRITE
    format_read: int = FORMAT_READ
    created_by: str = ""


class Tape:
    """A tape: a manifest and tables that are loaded on demand.

    Parameters
    ----------
    manifest : Manifest
        The manifest.
    tables : mapping of str to pyarrow.Table or callable
        Tables by name, or functions that load them. A missing table reads as an empty one.
    name : str
        File name or other short name.
    where : str
        The path as it was given, for messages; the name where there is none.
    read_only : bool
        A newer version wrote it: it is not written again.
    remarks : tuple of str
        What the reader has to say about it, in words.

    Raises
    ------
    CorruptTape
        From `table`, when a table's bytes are damaged.
    """

    def __init__(
        self,
        manifest: Manifest,
        tables: Mapping[str, pa.Table | Callable[[], pa.Table]],
        *,
        name: str = "tape",
        where: str = "",
        read_only: bool = False,
        remarks: tuple[str, ...] = (),
    ) -> None:
        self.manifest = manifest
        self.name = name
        self.where = where or name
        self.read_only = read_only
        self.remarks = remarks
        self._tables: dict[str, pa.Table | Callable[[], pa.Table]] = dict(tables)

    def table(self, name: str) -> pa.Table:
        """Return table `name` with exactly the schema of `formats.schema`."""
        got = self._tables.get(name)
        if got is None:
            return SCHEMAS[name].empty_table()
        if not isinstance(got, pa.Table):
            got = self._tables[name] = got()
        return got

    @property
    def present(self) -> tuple[str, ...]:
        """Names of the tables that the tape has."""
        return tuple(n for n in SCHEMAS if n in self._tables)

    def coverage(self, queue: int) -> Coverage:
        """Return the coverage of a queue (full where the manifest has no entry)."""
        for c in self.manifest.coverage:
            if c.queue == queue:
                return c
        return Coverage(queue)
