"""How much a tape has of each request scheduler."""

from __future__ import annotations

import pyarrow.compute as pc

from ..tape import Tape

__all__ = ["steps_of"]


def steps_of(tape: Tape) -> dict[int, int]:
    """Return how many steps each scheduler made, by its id: its inputs ``step``, also the empty ones."""
    inputs = tape.table("inputs").select(["scheduler", "kind"])
    steps = inputs.filter(pc.equal(inputs.column("kind").cast("string"), "step")).column("scheduler")
    made = dict.fromkeys(tape.table("schedulers").column("scheduler").to_pylist(), 0)
    return made | {c["values"]: c["counts"] for c in pc.value_counts(steps).to_pylist()}
