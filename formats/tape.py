"""A tape in memory: the manifest and its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from .schema import FORMAT_READ, FORMAT_WRITE, SCHEMAS

__all__ = ["Coverage", "Manifest", "Process", "TableSource", "Tape"]


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
class DelayLine:
    """A line of the plan under which the recording was made.

    Attributes
    ----------
    line : int
        Which delay of the plan, from 1.
    text : str
        The line; it names ops, queues and tensors.
    count : int
        Ops that it held up, of all processes.
    """

    line: int
    text: str
    count: int


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
    dropped : int
        Older records that a flight recorder dropped on purpose.
    delays : tuple of DelayLine
        The plan that the recorder applied; of a long one its first lines.
    """

    engine: dict[str, Any] = field(default_factory=dict)
    profiles: dict[str, dict[str, Any]] = field(default_factory=dict)
    processes: tuple[Process, ...] = (Process(0),)
    coverage: tuple[Coverage, ...] = ()
    switches: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    complete: bool = True
    lost: int = 0
    dropped: int = 0
    delays: tuple[DelayLine, ...] = ()
    format_write: int = FORMAT_WRITE
    format_read: int = FORMAT_READ
    created_by: str = ""


class TableSource(Protocol):
    """Where the columns of a table come from that is not in memory. Each method may raise `CorruptTape`."""

    rows: int

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Return columns in the order asked for."""

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the columns of some rows after another."""


class Tape:
    """A tape: a manifest and tables that are loaded on demand.

    Parameters
    ----------
    manifest : Manifest
        The manifest.
    tables : mapping of str to pyarrow.Table or callable
        Tables by name, or functions that return where their columns come from. A missing table reads as an
        empty one.
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
        From `table`, `columns`, `batches` and `rows`, when a table's bytes are damaged.
    """

    def __init__(
        self,
        manifest: Manifest,
        tables: Mapping[str, pa.Table | Callable[[], TableSource]],
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
        self._names = frozenset(tables)
        self._tables: dict[str, pa.Table] = {n: t for n, t in tables.items() if isinstance(t, pa.Table)}
        self._openers = {n: t for n, t in tables.items() if not isinstance(t, pa.Table)}
        self._sources: dict[str, TableSource] = {}
        self._columns: dict[str, dict[str, pa.ChunkedArray]] = {}

    def table(self, name: str) -> pa.Table:
        """Return table `name` with exactly the schema of `formats.schema`."""
        got = self._tables.get(name)
        if got is None:
            got = self._tables[name] = self.columns(name, SCHEMAS[name].names)
            # all is decoded: what it was decoded from is not needed any more
            self._openers.pop(name, None)
            self._sources.pop(name, None)
            self._columns.pop(name, None)
        return got

    def columns(self, name: str, names: Sequence[str]) -> pa.Table:
        """Return some columns of table `name`, in the order asked for; only these are decoded, and kept."""
        if name in self._tables:
            return self._tables[name].select(list(names))
        source = self._source(name)
        if source is None:
            return SCHEMAS[name].empty_table().select(list(names))
        kept = self._columns.setdefault(name, {})
        missing = [n for n in names if n not in kept]
        if missing:
            kept.update(zip(missing, source.columns(missing).columns, strict=True))
        schema = SCHEMAS[name]
        fields = [schema.field(n) for n in names]
        return pa.Table.from_arrays(
            [kept[n] for n in names], schema=pa.schema(fields, metadata=schema.metadata)
        )

    def batches(self, name: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of table `name`, some rows after another; nothing is kept that is not yet."""
        source = None if name in self._tables else self._source(name)
        if source is None or set(names) <= set(self._columns.get(name, ())):
            return iter(self.columns(name, names).to_batches())
        return source.batches(names)

    def rows(self, name: str) -> int:
        """Return the number of rows of table `name`; nothing is decoded."""
        if name in self._tables:
            return int(self._tables[name].num_rows)
        source = self._source(name)
        return 0 if source is None else source.rows

    def _source(self, name: str) -> TableSource | None:
        found = self._sources.get(name)
        if found is None and name in self._openers:
            found = self._sources[name] = self._openers[name]()
        return found

    @property
    def present(self) -> tuple[str, ...]:
        """Names of the tables that the tape has."""
        return tuple(n for n in SCHEMAS if n in self._names)

    def coverage(self, queue: int) -> Coverage:
        """Return the coverage of a queue (full where the manifest has no entry)."""
        for c in self.manifest.coverage:
            if c.queue == queue:
                return c
        return Coverage(queue)
