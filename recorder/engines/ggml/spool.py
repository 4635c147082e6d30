"""Read the spool that the plugin writes (layout: ``native/spool.h``).

A spool is what a process left behind, perhaps while it was being killed: a torn last definition, slots that
were never filled and a missing end mark are normal and make the recording incomplete. Anything that a dying
writer cannot produce is damage, and refused with `SpoolError`.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ....formats.errors import MissingInput, SpoolError
from ...files import cannot_read, open_regular
from .definitions import INT64_MAX, Spool, damaged, int64, read_definitions
from .layout import COMMIT, HEADER, MAGIC, NO_QUEUE, NONE, RECORD, SPOOL_VERSION, HeaderFlag, Kind
from .ring import Dropped, read_ring
from .soundness import check_header, check_sets, impossible

__all__ = ["read_spool", "read_spools"]

_CHUNK_SLOTS = 1 << 16


def read_spools(directory: Path) -> list[Spool]:
    """Read every process's spool in a directory, oldest process first.

    Raises
    ------
    MissingInput
        The directory is not there.
    SpoolError
        A spool is damaged, foreign or of another version.
    """
    if not directory.is_dir():
        raise MissingInput(
            "no such spool directory",
            where=directory.name,
            next_step="give the directory kept by --keep-spool",
        )
    found = [read_spool(p) for p in sorted(directory.glob("*.rec")) if p.is_file() and not p.is_symlink()]
    return sorted(found, key=lambda s: (not s.wall_ns, s.wall_ns, s.mono_ns))


def read_spool(path: Path) -> Spool:
    """Read one process's spool (``STEM.rec`` and ``STEM.def``).

    Without a header there was no place for it, but for a process that was killed in its first moments: the
    spool is empty and `failed`.

    Raises
    ------
    SpoolError
        The spool is damaged, foreign or of another version.
    """
    where = path.name
    try:
        with open_regular(path) as file:
            head = file.read(HEADER.itemsize)
            if len(head) < HEADER.itemsize or not any(head):
                return _without_header()
            _header(head, where)
            parts = _Parts(path, file, read_ring(path.with_suffix(".ring")))
            records, slots, unreadable = parts.committed()
            # What was lost and dropped is read after the records: a writer may still be at work.
            file.seek(0)
            header = _header(file.read(HEADER.itemsize), where)
    except OSError as e:
        raise cannot_read(path, e) from e
    order = np.lexsort((slots, records["issue_ns"]))
    flags = int(header["flags"])
    gone = parts.dropped.lost if parts.dropped else 0
    spool = Spool(
        records=records[order],
        slots=slots[order],
        mono_ns=int64(int(header["mono_ns"]), "mono_ns", where),
        wall_ns=int64(int(header["wall_ns"]), "wall_ns", where),
        lost=max(0, int64(int(header["lost"]), "lost", where) - gone) + unreadable,
        ended=bool(flags & HeaderFlag.ENDED),
        failed=bool(flags & HeaderFlag.FAILED),
        why=int(header["why"]),
        error=int(header["error"]),
        dropped=parts.dropped.dropped if parts.dropped else 0,
        last_records=parts.dropped.records if parts.dropped else 0,
        last_ns=parts.dropped.ns if parts.dropped else 0,
        boot=int(header["boot"]),
        pid=int(header["pid"]),
    )
    check_header(spool, where)
    read_definitions(path.with_suffix(".def"), spool)
    check_sets(spool, where)
    _check(spool, where)
    return spool


def _without_header() -> Spool:
    return Spool(
        np.empty(0, RECORD), np.empty(0, np.int64), mono_ns=0, wall_ns=0, lost=0, ended=False, failed=True
    )


def _header(head: bytes, where: str) -> Any:
    header = np.frombuffer(head, HEADER)[0]
    if int(header["magic"]) != MAGIC:
        raise damaged("foreign file", "a spool", where)
    if int(header["version"]) != SPOOL_VERSION:
        raise SpoolError(
            f"spool version {int(header['version'])}",
            expected=f"version {SPOOL_VERSION}",
            where=where,
            next_step="collect it with the version of tapedelay that recorded it",
        )
    if int(header["record_bytes"]) != RECORD.itemsize:
        raise damaged(f"records of {int(header['record_bytes'])} bytes", f"{RECORD.itemsize}", where)
    return header


class _Parts:
    """The records of one process, in one file or, of a flight recorder, in a file per segment."""

    def __init__(self, path: Path, first: FileIO, dropped: Dropped | None) -> None:
        self._path = path
        self._first = first
        self.dropped = dropped

    def committed(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], int]:
        """Return the committed records, their slots, and how many records are unreadable."""
        records, slots, broken = [np.empty(0, RECORD)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        seen = set()
        for segment, file in self._files():
            seen.add(segment)
            base = segment * (self.dropped.segment_bytes if self.dropped else 0) // RECORD.itemsize - 1
            for index, chunk in _chunks(file, HEADER.itemsize if segment == 0 else 0):
                numbers = np.arange(base + index, base + index + len(chunk), dtype=np.int64)
                good = chunk["commit"] == (np.uint32(COMMIT) ^ (numbers & 0xFFFFFFFF).astype(np.uint32))
                # The commit word is stored last into zeroed memory: anything else in its place is damage.
                broken.append(numbers[(chunk["commit"] != 0) & ~good])
                records.append(chunk[good])
                slots.append(numbers[good])
        every, numbers, bad = np.concatenate(records), np.concatenate(slots), np.concatenate(broken)
        if self.dropped is not None:
            self.dropped = read_ring(self._path.with_suffix(".ring")) or self.dropped
            first = max(1, self.dropped.first_segment)
            there = sorted(s for s in seen if s >= first)  # not a range: the last one may have any number
            missing = next((n for n, s in enumerate(there, first) if n != s), None)
            if missing is not None:
                raise damaged(f"segment {missing} is missing", "all segments", self._path.name)
            kept = self.dropped.counts(numbers)
            every, numbers, bad = every[kept], numbers[kept], bad[self.dropped.counts(bad)]
        return every, numbers, len(bad)

    def _files(self) -> Iterator[tuple[int, FileIO]]:
        yield 0, self._first
        if self.dropped is None:
            return
        stem = self._path.stem
        found = sorted(
            (int(m[1]), p)
            for p in self._path.parent.glob(f"{stem}.*.part")
            if (m := re.fullmatch(rf"{re.escape(stem)}\.([1-9][0-9]{{0,11}})\.part", p.name))
        )
        for segment, path in found:
            try:
                file = open_regular(path)
            except FileNotFoundError:  # dropped meanwhile
                continue
            with file:
                yield segment, file


def _chunks(file: FileIO, begin: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Yield (index, records) of the parts of a file that hold data, from `begin` on; a hole costs nothing."""
    size = os.fstat(file.fileno()).st_size
    last = size // RECORD.itemsize
    at = begin // RECORD.itemsize
    while at < last:
        try:
            data = os.lseek(file.fileno(), at * RECORD.itemsize, os.SEEK_DATA)
        except OSError as e:
            if e.errno == errno.ENXIO:  # nothing but a hole up to the end
                return
            raise
        at = max(at, data // RECORD.itemsize)
        file.seek(at * RECORD.itemsize)
        read = file.read(min(_CHUNK_SLOTS, last - at) * RECORD.itemsize)
        count = len(read) // RECORD.itemsize
        if not count:
            return
        yield at, np.frombuffer(read, RECORD, count)
        at += count


_BUFFER_BOTH = (Kind.COPY, Kind.SET, Kind.GET)
_BUFFER_D = (*_BUFFER_BOTH, Kind.MEMSET, Kind.CLEAR)
_BUFFER_E = (Kind.MEMSET, Kind.CLEAR, Kind.BUFFER_ALLOC, Kind.BUFFER_FREE)
_SCHEDS = (Kind.SCHED_COMPUTE, Kind.SCHED_ALLOC, Kind.SCHED_RESET)
_GRAPHS = (Kind.SCHED_COMPUTE, Kind.SCHED_ALLOC)
_EVENTS = (Kind.EVENT_RECORD, Kind.EVENT_WAIT, Kind.EVENT_SYNC, Kind.EVENT_FREE)


def _check(s: Spool, where: str) -> None:
    """Refuse records that name what is not defined; where definitions were cut, count them as lost."""
    r = s.records
    if not len(r):
        return
    if int(r["kind"].max()) > max(Kind) or int(r["kind"].min()) == Kind.NONE:
        raise damaged("a record of an unknown kind", f"1 to {int(max(Kind))}", where)
    for column in ("a", "b", "c"):
        if int(r[column].max()) > INT64_MAX // 2:
            raise damaged(f"column {column} holds {int(r[column].max())}", "a number below 2^62", where)
    kind = r["kind"]
    wrong = r["thread"] >= s.threads
    wrong |= (r["queue"] >= len(s.queues)) & (r["queue"] != NO_QUEUE)
    wrong |= (r["name"] >= len(s.names)) & (r["name"] != NONE)
    wrong |= np.isin(kind, _BUFFER_D) & (r["d"] >= len(s.buffers)) & (r["d"] != NONE)
    wrong |= np.isin(kind, _BUFFER_BOTH) & (r["e"] >= len(s.buffers)) & (r["e"] != NONE)
    wrong |= np.isin(kind, _BUFFER_E) & (r["e"] >= len(s.buffers))
    wrong |= np.isin(kind, _EVENTS) & (r["d"] >= len(s.events))
    wrong |= (kind == Kind.COMPUTE) & (r["d"] >= len(s.sets)) & (r["d"] != NONE)
    wrong |= np.isin(kind, _SCHEDS) & (r["e"] >= len(s.scheds))
    wrong |= np.isin(kind, _GRAPHS) & (r["d"] >= len(s.graphs)) & (r["d"] != NONE)
    needs_queue = (Kind.COMPUTE, Kind.EVENT_RECORD, Kind.EVENT_WAIT, Kind.SYNC, Kind.SPLIT_COPY_WAIT)
    wrong |= np.isin(kind, needs_queue) & (r["queue"] == NO_QUEUE)
    cannot = impossible(s, ~wrong)
    if cannot.any():
        first = int(s.slots[np.flatnonzero(cannot)[0]])
        raise damaged(
            f"the record in slot {first} says what cannot be",
            "bytes inside of buffers, each of which begins once and ends after that",
            where,
        )
    if not wrong.any():
        return
    if not (s.torn or s.failed):
        first = int(s.slots[np.flatnonzero(wrong)[0]])
        raise damaged(
            f"the record in slot {first} names what is not defined", "definitions before records", where
        )
    s.lost += int(wrong.sum())
    s.records, s.slots = r[~wrong], s.slots[~wrong]
