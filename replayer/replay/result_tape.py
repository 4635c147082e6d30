"""A run as a tape: the tape that ran, with the times of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ...formats.tape import Manifest, Tape
from ..outcome import Outcome

__all__ = ["result_tape"]

_OTHER_CLOCK = {"requests": ("arrive_ns",), "inputs": ("at_ns", "arrive_ns"), "telemetry": None}


def result_tape(tape: Tape, outcome: Outcome, *, note: str) -> Tape:
    """Return a tape with the times of a run; ops that never started have none.

    Parameters
    ----------
    tape : Tape
        What ran.
    outcome : Outcome
        One run of all of its rows.
    note : str
        What the manifest says about the run.

    Returns
    -------
    Tape
        The same rows and ids. Times of the recording's clock are left out, with them the telemetry.
    """
    tables: dict[str, pa.Table | Callable[[], pa.Table]] = {}
    for name in tape.present:
        table = tape.table(name)
        if name in _OTHER_CLOCK:
            columns = _OTHER_CLOCK[name]
            if columns is None:
                continue
            for column in columns:
                table = _with(table, column, pa.nulls(len(table), pa.int64()))
        tables[name] = table
    issue, start, end = (
        np.asarray(a, np.int64) for a in (outcome.issue_ns, outcome.start_ns, outcome.end_ns)
    )
    issued = issue >= 0
    started = issued & (start >= 0)
    ended = started & (end >= 0)
    ops = tape.table("ops")
    for column, values, valid in (
        ("issue_ns", issue, issued),
        ("start_after_issue_ns", start - issue, started),
        ("duration_ns", end - start, ended),
    ):
        ops = _with(ops, column, pa.array(values, pa.int64(), mask=~valid))
    tables["ops"] = ops
    return Tape(_manifest(tape, note), tables, name=f"{tape.name}, replayed", read_only=tape.read_only)


def _with(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), values)


def _manifest(tape: Tape, note: str) -> Manifest:
    manifest = tape.manifest
    coverage = tuple(replace(c, times="full") for c in manifest.coverage)
    return replace(manifest, coverage=coverage, notes=(*manifest.notes, note), created_by="")
