"""Tapes for the native core: Arrow columns handed over in place, words as the core's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..formats.errors import InvalidTape
from ..formats.profiles import COPY_DIRECTIONS, Profile, find_profile
from ..formats.schema import ACCESS_MODES, ACCESS_ORIGINS, OP_KINDS, SYNC_TARGETS, WAIT_STATES
from ..formats.tape import Tape
from . import _core

__all__ = ["core_tape"]

_TIMES = ("issue_ns", "start_after_issue_ns", "duration_ns")
_NO_EDGE = WAIT_STATES.index("none")


def core_tape(tape: Tape, *, times: bool = True) -> _core.Tape:
    """Return a tape as the native core reads it, with its edges resolved.

    Columns are not copied, but for words whose dictionary is another than the schema's, and for columns of
    several chunks.

    Parameters
    ----------
    tape : Tape
        The tape; its tables are kept alive as long as the result needs them.
    times : bool
        Whether to take the columns of times as well.

    Raises
    ------
    InvalidTape
        If a reference points nowhere or a device names an unknown profile.
    CorruptTape
        If a table cannot be read.
    """
    devices, queues, buffers = (tape.table(n) for n in ("devices", "queues", "buffers"))
    for name, key in (("devices", "device"), ("queues", "queue"), ("syncs", "sync"), ("buffers", "buffer")):
        _dense(tape, tape.table(name), key)
    tables = {
        "ops": _ops(tape, times=times),
        "devices": _devices(tape, devices),
        "buffers": {
            **_plain(buffers, "device", "parent", "bytes", "parent_offset", "shared_key"),
            "pinned": _is(buffers, "kind", "pinned"),
        },
        "accesses": _accesses(tape),
        "edges": _plain(tape.table("edges"), "src", "dst"),
        "lists": _plain(tape.table("lists"), "list", "unit"),
        "syncs": {"rows": tape.table("syncs").num_rows},
    }
    tables["queues"] = _queues(queues, tables["devices"].pop("default_queue_blocks"))
    return _core.Tape(tables, tape.where)


def _error(tape: Tape, found: str, expected: str) -> InvalidTape:
    return InvalidTape(
        found,
        expected=expected,
        where=tape.where,
        next_step="`tapedelay info --validate` lists every fault",
    )


def _dense(tape: Tape, table: pa.Table, key: str) -> None:
    ids = table.column(key).to_numpy()
    if not np.array_equal(ids, np.arange(len(ids))):
        raise _error(tape, f"{key} ids have gaps", f"0 .. {len(ids) - 1}, in order")


def _array(table: pa.Table, name: str) -> pa.Array | None:
    """Return a column in one piece; None where it has no value."""
    column = table.column(name)
    if column.null_count == len(column):
        return None
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _plain(table: pa.Table, *names: str) -> dict[str, Any]:
    return {"rows": table.num_rows, **{n: _array(table, n) for n in names}}


def _codes(
    table: pa.Table, name: str, words: Sequence[str], *, null: int = -1, other: int = -1
) -> pa.Array | None:
    """Return a column of words as numbers of `words`; None where it has no value and null stays null."""
    column = table.column(name)
    if column.null_count == len(column) and null == -1:
        return None
    numbers = {w: i for i, w in enumerate(words)}
    parts = []
    for chunk in column.chunks:
        known = [numbers.get(w, other) for w in chunk.dictionary.to_pylist()]
        indices = chunk.indices
        if (
            known == list(range(len(known)))
            and indices.type == pa.int8()
            and (null == -1 or not chunk.null_count)
        ):
            parts.append(indices)
            continue
        at = indices.fill_null(-1) if indices.null_count else indices
        parts.append(pa.array(np.array([*known, null], np.int8)[at.to_numpy(zero_copy_only=False)]))
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts) if parts else None


def _is(table: pa.Table, name: str, *words: str) -> pa.Array | None:
    """Return 1 where a column holds one of these words, else 0."""
    column = table.column(name)
    return pa.array(np.array([w in words for w in column.to_pylist()], np.int8)) if len(column) else None


def _ops(tape: Tape, *, times: bool) -> dict[str, Any]:
    names = (
        "op",
        "queue",
        "issuer",
        "parent",
        "sync",
        "value",
        "sync_of",
        "target",
        "access_set",
        "arg",
        "list",
    )
    words = ("kind", "wait_state", "target_kind", "origin")
    # no more than is needed: the whole table is three times as large
    table = tape.columns("ops", (*names, *words, *(_TIMES if times else ())))
    return {
        **_plain(table, *names, *(_TIMES if times else ())),
        "kind": _codes(table, "kind", OP_KINDS),
        "wait_state": _codes(table, "wait_state", WAIT_STATES, other=_NO_EDGE),
        "target_kind": _codes(table, "target_kind", SYNC_TARGETS),
        "origin": _codes(table, "origin", ACCESS_ORIGINS),
    }


def _accesses(tape: Tape) -> dict[str, Any]:
    table = tape.table("accesses")
    modes = _codes(table, "mode", ACCESS_MODES)
    if table.num_rows:
        unknown = np.flatnonzero(modes.to_numpy(zero_copy_only=False) < 0) if modes is not None else [0]
        if len(unknown):
            row = int(unknown[0])
            key, mode = (table.column(c)[row].as_py() for c in ("set", "mode"))
            raise _error(tape, f"access set {key}: mode {mode!r}", ", ".join(ACCESS_MODES))
    names = ("set", "buffer", "offset", "bytes", "offset_per_arg", "bytes_per_arg", "unit_bytes")
    return {
        **_plain(table, *names),
        "mode": modes,
        "origin": _codes(table, "origin", ACCESS_ORIGINS),
    }


def _flags(values: Iterable[int]) -> pa.Array | None:
    found = pa.array(np.fromiter(values, np.int8))
    return found if len(found) else None


def _devices(tape: Tape, table: pa.Table) -> dict[str, Any]:
    """Return what the profiles of the devices declare."""
    defined: Mapping[str, Any] = tape.manifest.profiles
    found: dict[str, Profile] = {}
    for name in table.column("profile").to_pylist():
        if str(name) not in found:
            found[str(name)] = find_profile(str(name), defined, where=tape.where)
    profiles = [found[str(name)] for name in table.column("profile").to_pylist()]
    bits = {d: 1 << i for i, d in enumerate(COPY_DIRECTIONS)}
    return {
        "rows": table.num_rows,
        "host": _is(table, "kind", "host"),
        "free_synchronises": _flags(p.free_synchronises for p in profiles),
        "alloc_synchronises": _flags(p.alloc_synchronises for p in profiles),
        "blocking_copies": _flags(sum(bits[d] for d in set(p.blocking_copies)) for p in profiles),
        "default_queue_blocks": [p.default_queue_blocks for p in profiles],
    }


def _queues(table: pa.Table, default_queue_blocks: list[bool]) -> dict[str, Any]:
    kinds = table.column("kind").to_pylist()
    host = [k == "host_thread" for k in kinds]
    devices = table.column("device").to_pylist()
    blocks = [
        k == "default" and 0 <= d < len(default_queue_blocks) and default_queue_blocks[d]
        for k, d in zip(kinds, devices, strict=True)
    ]
    # A host thread runs its program in order whatever the column says.
    in_order = [bool(o) or h for o, h in zip(table.column("in_order").to_pylist(), host, strict=True)]
    return {
        **_plain(table, "device", "process"),
        "host": _flags(host),
        "in_order": _flags(in_order),
        "blocks": _flags(blocks),
    }
