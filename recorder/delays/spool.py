"""The files of a plan in the spool: compiled for the plugin, its counts, and its text for the collector."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ...formats.delays import Plan, print_line
from ...formats.errors import InfrastructureError, SpoolError
from ..files import read_regular
from .compiled import compiled, empty_counts, read_counts
from .plans import never
from .report import LineCount

__all__ = ["PLAN_FILE", "leave_plan", "read_line_counts"]

PLAN_FILE = "delays.bin"
_TEXT_FILE = "delays.json"
_TEXT_BYTES_MAX = 1 << 29


def leave_plan(plan: Plan, spool: Path) -> dict[str, str]:
    """Write a plan into the spool; return the variables with which the plugin finds it.

    Raises
    ------
    InfrastructureError
        There is no room for it.
    """
    path = spool / PLAN_FILE
    try:
        path.write_bytes(compiled(plan))
        # Written, not only made longer: a page that finds no room when it is counted in would end the engine.
        with open(f"{path}.counts", "wb") as file:
            file.write(empty_counts(len(plan.lines)))
            file.flush()
            os.posix_fallocate(file.fileno(), 0, file.tell())
        (spool / _TEXT_FILE).write_text(json.dumps(_entries(plan)), encoding="ascii")
    except OSError as e:
        raise InfrastructureError(
            f"the plan cannot be written beside the tape: {e.strerror}", next_step="free space on that disk"
        ) from e
    return {"TAPEDELAY_DELAYS": str(path)}


def _entries(plan: Plan) -> list[tuple[str, str]]:
    """Return text of each line, and why it cannot match."""
    entries = []
    for line in plan.lines:
        p = line.anchor
        assert not isinstance(p, int)
        entries.append((print_line(line), never(p.kind, p.touching is not None)))
    return entries


def read_line_counts(spool: Path) -> tuple[int, int, list[LineCount]] | None:
    """Return how many processes read the plan and how many could not, and what came of each line.

    None where the recording was made without a plan.

    Raises
    ------
    SpoolError
        The files are not what the recorder leaves.
    """
    try:
        text = read_regular(spool / _TEXT_FILE, _TEXT_BYTES_MAX)
    except FileNotFoundError:
        return None
    try:
        entries = json.loads(text)
        counts = read_counts(spool / f"{PLAN_FILE}.counts", len(entries))
        lines = [(_text(t), _text(why)) for t, why in entries]
    except (ValueError, TypeError, RecursionError, FileNotFoundError):
        counts = None
    if counts is None:
        raise SpoolError(
            "the counts of its delays are not what a recorder leaves",
            expected=f"{PLAN_FILE}.counts beside {_TEXT_FILE}",
            where=spool.name,
            next_step="record again; this spool is damaged",
        )
    processes, refused, table = counts
    found = [
        LineCount(i, t, int(a), int(m), why)
        for i, ((t, why), (a, m)) in enumerate(zip(lines, table.tolist(), strict=True), 1)
    ]
    return processes, refused, found


def _text(value: Any) -> str:
    """Return a text that a tape can hold.

    Raises
    ------
    ValueError
        It is none: JSON can spell lone surrogates.
    """
    if not isinstance(value, str):
        raise ValueError
    value.encode()
    return value
