"""Tapes for the native core: Arrow columns handed over in place, words as the core's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..formats.edges import added_by_switches
from ..formats.errors import InvalidTape
from ..formats.profiles import COPY_DIRECTIONS, Profile, find_profile
from ..formats.schema import ACCESS_MODES, ACCESS_ORIGINS, OP_KINDS, SYNC_TARGETS, WAIT_STATES
from ..formats.shown import printable
from ..formats.tape import Tape
from . import _core

__all__ = ["core_tape"]

_TIMES = ("issue_ns", "start_after_issue_ns", "duration_ns")
_NO_EDGE = WAIT_STATES.index("none")


def core_tape(tape: Tape, *, times: bool = True, suppose: Mapping[str, str] | None = None) -> _core.Tape:
    """Return a tape as the native core reads it, with its edges resolved.

    Columns are not copied, but for words whose dictionary is another than the schema's, and for columns of
    several chunks.

    Parameters
    ----------
    tape : Tape
        The tape; its tables are kept alive as long as the result needs them.
    times : bool
        Whether to take the columns of times as well.
    suppose : mapping of str to str, optional
        States of debugging switches that hold instead of what the tape says, see `added_by_switches`.

    Raises
    ------
    InvalidTape
        If a reference points nowhere or a device names an unknown profile.
    CorruptTape
        If a table cannot be read.
    """
    for name, key in (("devices", "device"), ("queues", "queue"), ("syncs", "sync"), ("buffers", "buffer")):
        _dense(tape, name, key)
    devices = _devices(tape, suppose)
    queues = _queues(tape, devices.pop("default_queue_blocks"))
    tables = {
        "ops": _ops(tape, times=times),
        "devices": devices,
        "queues": queues,
        "buffers": {
            **_plain(tape, "buffers", "device", "parent", "bytes", "parent_offset", "shared_key"),
            "pinned": _is(tape, "buffers", "kind", "pinned"),
        },
        "accesses": _accesses(tape),
        "edges": _plain(tape, "edges", "src", "dst"),
        "lists": _plain(tape, "lists", "list", "unit"),
        "syncs": {"rows": tape.rows("syncs")},
    }
    return _core.Tape(tables, printable(tape.where))  # a path may hold bytes that are no text


def _error(tape: Tape, found: str, expected: str) -> InvalidTape:
    return InvalidTape(
        found,
        expected=expected,
        where=tape.where,
        next_step="`tapedelay info --validate` lists every fault",
    )


def _column(tape: Tape, table: str, name: str) -> pa.ChunkedArray:
    return tape.columns(table, [name]).column(0)


def _dense(tape: Tape, table: str, key: str) -> None:
    ids = _column(tape, table, key).to_numpy()
    if not np.array_equal(ids, np.arange(len(ids))):
        raise _error(tape, f"{key} ids have gaps", f"0 .. {len(ids) - 1}, in order")


def _plain(tape: Tape, table: str, *names: str) -> dict[str, Any]:
    """Return columns, each in one piece; None where one has no value."""
    columns: dict[str, Any] = {"rows": tape.rows(table)}
    for name, column in zip(names, tape.columns(table, names).columns, strict=True):
        if column.null_count == len(column):
            columns[name] = None
        else:
            columns[name] = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return columns


def _codes(tape: Tape, table: str, name: str, words: Sequence[str], *, other: int = -1) -> pa.Array | None:
    """Return a column of words as numbers of `words`; None where it has no value."""
    column = _column(tape, table, name)
    if column.null_count == len(column):
        return None
    numbers = {w: i for i, w in enumerate(words)}
    parts = []
    for chunk in column.chunks:
        known = [numbers.get(w, other) for w in chunk.dictionary.to_pylist()]
        indices = chunk.indices
        if known == list(range(len(known))) and indices.type == pa.int8():
            parts.append(indices)
            continue
        at = indices.fill_null(-1) if indices.null_count else indices
        parts.append(pa.array(np.array([*known, -1], np.int8)[at.to_numpy(zero_copy_only=False)]))
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _is(tape: Tape, table: str, name: str, word: str) -> pa.Array | None:
    """Return 1 where a column holds a word, else 0."""
    return _codes(tape, table, name, ["", word])


def _ops(tape: Tape, *, times: bool) -> dict[str, Any]:
    names = (
        "op", "queue", "issuer", "parent", "sync", "value", "sync_of", "target", "access_set", "arg", "list",
    )  # fmt: skip
    return {
        **_plain(tape, "ops", *names, *(_TIMES if times else ())),
        "kind": _codes(tape, "ops", "kind", OP_KINDS),
        "wait_state": _codes(tape, "ops", "wait_state", WAIT_STATES, other=_NO_EDGE),
        "target_kind": _codes(tape, "ops", "target_kind", SYNC_TARGETS),
        "origin": _codes(tape, "ops", "origin", ACCESS_ORIGINS),
    }


def _accesses(tape: Tape) -> dict[str, Any]:
    modes = _codes(tape, "accesses", "mode", ACCESS_MODES)
    if tape.rows("accesses"):
        unknown = np.flatnonzero(modes.to_numpy(zero_copy_only=False) < 0) if modes is not None else [0]
        if len(unknown):
            row = int(unknown[0])
            key, mode = (_column(tape, "accesses", c)[row].as_py() for c in ("set", "mode"))
            raise _error(tape, f"access set {key}: mode {mode!r}", ", ".join(ACCESS_MODES))
    names = ("set", "buffer", "offset", "bytes", "offset_per_arg", "bytes_per_arg", "unit_bytes")
    return {
        **_plain(tape, "accesses", *names),
        "mode": modes,
        "origin": _codes(tape, "accesses", "origin", ACCESS_ORIGINS),
    }


def _flags(values: Iterable[int], dtype: type[np.generic] = np.int8) -> pa.Array | None:
    found = pa.array(np.fromiter(values, dtype))
    return found if len(found) else None


def _devices(tape: Tape, suppose: Mapping[str, str] | None) -> dict[str, Any]:
    """Return what the profiles of the devices declare, and what switches add."""
    found: dict[str, Profile] = {}
    names = [str(n) for n in _column(tape, "devices", "profile").to_pylist()]
    for name in names:
        if name not in found:
            found[name] = find_profile(name, tape.manifest.profiles, where=tape.where)
    profiles = [found[name] for name in names]
    bits = {d: 1 << i for i, d in enumerate(COPY_DIRECTIONS)}  # as DIRECTIONS of formats.switches begins
    added = added_by_switches(tape, suppose)
    copies = [
        sum(bits[d] for d in set(p.blocking_copies)) | a.block_copies
        for p, a in zip(profiles, added, strict=True)
    ]
    return {
        "rows": len(names),
        "host": _is(tape, "devices", "kind", "host"),
        "free_synchronises": _flags(p.free_synchronises for p in profiles),
        "alloc_synchronises": _flags(p.alloc_synchronises for p in profiles),
        "blocking_copies": _flags(copies),
        "blocks": _flags((a.blocks for a in added), np.int32),
        "drains": _flags((a.drains for a in added), np.int32),
        "in_order": _flags((a.in_order for a in added), np.int32),
        "launch_in_order": _flags((a.launch_in_order for a in added), np.int32),
        "collective_waits": _flags(a.collective_waits for a in added),
        "default_queue_blocks": [p.default_queue_blocks for p in profiles],
    }


def _queues(tape: Tape, default_queue_blocks: list[bool]) -> dict[str, Any]:
    table = tape.columns("queues", ["kind", "device", "in_order"])
    kinds, devices, ordered = (c.to_pylist() for c in table.columns)
    host = [k == "host_thread" for k in kinds]
    blocks = [
        k == "default" and 0 <= d < len(default_queue_blocks) and default_queue_blocks[d]
        for k, d in zip(kinds, devices, strict=True)
    ]
    return {
        **_plain(tape, "queues", "device", "process"),
        "host": _flags(host),
        # A host thread runs its program in order whatever the column says.
        "in_order": _flags(o or h for o, h in zip(ordered, host, strict=True)),
        "blocks": _flags(blocks),
    }
