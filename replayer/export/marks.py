"""Findings of `check` as the exporters take them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ...formats.columns import Columns
from ...formats.exporters.mark import Mark
from ...formats.tape import Tape
from ..check import Finding, Group, OpView
from ..check.hiding import hidden_text

__all__ = ["marks_of"]

_ENDS = ("free", "destroy")
_NAMED = 8
_LINKS = {
    "free-in-flight": "missing edge",
    "destroy-pending": "missing edge",
    "use-before-alloc": "missing edge",
    "use-after-free": "used after its end",
    "use-after-destroy": "used after its end",
    "double-free": "freed twice",
}


def marks_of(tape: Tape, groups: Iterable[Group]) -> list[Mark]:
    """Return one mark per kind of finding: its first example."""
    ids = Columns(tape.table("ops")).ints("op")
    return [_mark(ids, g) for g in groups]


def _mark(ids: np.ndarray, group: Group) -> Mark:
    f = group.example
    ops = _ordered(f)
    rows = tuple(np.searchsorted(ids, [o.op for o in ops]).tolist())
    times = "once" if group.count == 1 else f"{group.count} times"
    title = f.verdict.upper() + (f" {f.fault}" if f.fault != f.verdict else "")
    if f.buffer:
        title += f" on `{f.buffer}`"
    facts = [("found", times)]
    if f.begin is not None and f.end is not None:
        size = "in several ranges" if f.hull else f"{f.end - f.begin:,} bytes"
        facts.append(("bytes", f"{f.begin:,} to {f.end:,} ({size})"))
    named = [o for o in ops if o.tensor or o.name][:_NAMED]
    facts.extend((o.label, f"{o.mode or o.kind} `{o.tensor or o.name}`") for o in named)
    if f.verdict in ("possible", "unknown"):
        why = {
            "possible": "it rests on an inferred or over-approximated fact",
            "unknown": "a wait that was not seen may order them",
        }
        facts.append((f.verdict, why[f.verdict]))
    if f.hidden_by:
        facts.append(("hidden by", hidden_text(f.hidden_by)))
    delays = (("a delay that hides it", f.delay_hides), ("a delay that shows it", f.delay_shows))
    facts.extend((what, line) for what, line in delays if line)
    return Mark(
        title=title,
        text=f.text,
        rows=rows,
        labels=tuple(o.label for o in ops),
        link=_link(f),
        facts=tuple(facts),
    )


def _link(f: Finding) -> str:
    if f.kind == "deadlock":
        return ""
    return "missing edge" if f.kind == "race" else _LINKS.get(f.fault, "")


def _ordered(f: Finding) -> tuple[OpView, ...]:
    """Return the ops of a finding, the one that should come first first."""
    if f.kind != "lifetime" or len(f.ops) != 2:
        return f.ops
    first, second = f.ops
    if f.fault == "use-before-alloc":
        swap = second.kind == "alloc" and first.kind != "alloc"
    elif f.fault in ("free-in-flight", "destroy-pending"):
        swap = first.kind in _ENDS and second.kind not in _ENDS
    else:
        swap = second.kind in _ENDS and first.kind not in _ENDS
    return (second, first) if swap else f.ops
