"""What a tape holds, as data: the content of ``tapedelay info``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .columns import Columns
from .requests.counts import steps_of
from .sampled import sampled
from .tape import Tape
from .window import windows

__all__ = ["summarise"]


def summarise(tape: Tape) -> dict[str, Any]:
    """Return counts and facts of a tape; every value is plain JSON."""
    m = tape.manifest
    ops = Columns(tape.table("ops"))
    kinds = _counts(tape, "ops", "kind")
    steps = ops.ints("step")[ops.valid("step")] if ops.rows else np.zeros(0, np.int64)
    states = ops.words("wait_state")
    per_queue = (
        np.bincount(np.clip(ops.ints("queue"), 0, None), minlength=0) if ops.rows else np.zeros(0, np.int64)
    )
    queues = []
    for i, q in enumerate(tape.table("queues").to_pylist()):
        c = tape.coverage(q["queue"])
        queues.append(
            {
                "queue": q["queue"],
                "name": q["name"],
                "kind": q["kind"],
                "device": q["device"],
                "ops": int(per_queue[i]) if i < len(per_queue) else 0,
                "coverage": {
                    "accesses": c.accesses,
                    "host_accesses": c.host_accesses,
                    "waits": c.waits,
                    "times": c.times,
                },
            }
        )
    return {
        "tape": tape.name,
        "format_write": m.format_write,
        "format_read": m.format_read,
        "read_only": tape.read_only,
        "created_by": m.created_by,
        "engine": m.engine,
        "switches": m.switches,
        "complete": m.complete,
        "lost": m.lost,
        "dropped": m.dropped,
        "delays": [{"line": d.line, "text": d.text, "count": d.count} for d in m.delays],
        "processes": len(m.processes),
        "devices": [
            {k: d[k] for k in ("device", "name", "kind", "profile", "process")}
            for d in tape.table("devices").to_pylist()
        ],
        "queues": queues,
        "ops": ops.rows,
        "ops_by_kind": kinds,
        "steps": len(np.unique(steps)) if len(steps) else None,
        "span_ns": _span_ns(ops) if ops.rows else _span_of_inputs(tape),
        "unresolved": int(states.isin(("unresolved",)).sum()),
        "unknown_accesses": int((~ops.valid("access_set")).sum()),
        "schedulers": _schedulers(tape),
        "tables": {n: tape.table(n).num_rows for n in tape.present},
        "access_sets": pc.count_distinct(tape.table("accesses").column("set")).as_py(),
        "telemetry": _telemetry(tape),
        "windows": list(windows(m)),
        "notes": [*tape.remarks, *m.notes],
    }


def _span_ns(ops: Columns) -> int | None:
    """Return the time from the first issue to the last thing that was seen; None if no issue was."""
    known = ops.valid("issue_ns") if ops.rows else np.zeros(0, np.bool_)
    if not known.any():
        return None
    issued = ops.ints("issue_ns")[known]
    # Nulls are 0 here; floats cannot overflow where a damaged tape has huge times, and only choose the row.
    after, took = (np.clip(ops.ints(c)[known], 0, None) for c in ("start_after_issue_ns", "duration_ns"))
    last = int(np.argmax(issued.astype(np.float64) + after + took))
    end = max(int(issued.max()), int(issued[last]) + int(after[last]) + int(took[last]))
    return end - int(issued.min())


def _span_of_inputs(tape: Tape) -> int | None:
    at = Columns(tape.table("inputs"))
    known = at.ints("at_ns")[at.valid("at_ns")] if at.rows else np.zeros(0, np.int64)
    return int(known.max()) - int(known.min()) if len(known) else None


def _schedulers(tape: Tape) -> list[dict[str, Any]]:
    """Return what each request scheduler is and how much reached it."""
    pools = tape.table("pools").to_pylist()
    requests = Columns(tape.table("requests")).ints("scheduler")
    inputs = tape.table("inputs").select(["scheduler", "kind"])
    steps = steps_of(tape)
    found = []
    for s in tape.table("schedulers").to_pylist():
        number = s["scheduler"]
        mine = inputs.filter(pc.equal(inputs.column("scheduler"), number))
        found.append(
            {
                **{k: s[k] for k in ("scheduler", "process", "engine", "engine_version", "config")},
                "requests": int((requests == number).sum()),
                "steps": steps.get(number, 0),
                "inputs": mine.num_rows,
                "inputs_by_kind": _tally(mine.column("kind")),
                "pools": [
                    {k: p[k] for k in ("name", "units", "reserved", "tokens_per_unit")}
                    for p in pools
                    if p["scheduler"] == number
                ],
            }
        )
    return found


def _telemetry(tape: Tape) -> list[dict[str, Any]]:
    """Return what each counter of each device showed; the extremes of a not-a-number are null."""
    names = tape.table("devices").column("name").to_pylist()
    return [
        {
            "device": None if s.device < 0 else s.device,
            "name": None if s.device < 0 else names[s.device] if s.device < len(names) else f"{s.device}",
            "metric": s.metric,
            "unit": s.unit,
            "samples": len(s.value),
            **_spread(s.value),
        }
        for s in sampled(tape)
    ]


def _spread(value: Any) -> dict[str, float | None]:
    known = value[np.isfinite(value)]
    if not len(known):
        return dict.fromkeys(("min", "median", "max"))
    return {"min": float(known.min()), "median": float(np.median(known)), "max": float(known.max())}


def _counts(tape: Tape, table: str, column: str) -> dict[str, int]:
    return _tally(tape.table(table).column(column))


def _tally(column: pa.ChunkedArray) -> dict[str, int]:
    counts = pc.value_counts(column.cast("string")).to_pylist()
    pairs = sorted(((c["values"], c["counts"]) for c in counts), key=lambda p: (-p[1], p[0]))
    return dict(pairs)
