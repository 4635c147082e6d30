"""The counters of the table ``telemetry``: which rows belong to which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .columns import Columns, Ints
from .tape import Tape

__all__ = ["Sampled", "sampled"]


@dataclass(frozen=True)
class Sampled:
    """One counter of one device.

    Attributes
    ----------
    device : int
        Device id, -1 for none.
    metric, unit : str
        As on the tape.
    at_ns : numpy.ndarray of int64, shape (samples,)
        When, ascending.
    value : numpy.ndarray of float64, shape (samples,)
        What, as on the tape: perhaps not a number.
    """

    device: int
    metric: str
    unit: str
    at_ns: Ints
    value: npt.NDArray[np.float64]


def sampled(tape: Tape) -> list[Sampled]:
    """Return the counters of a tape, by device (those without one last) and metric."""
    table = tape.table("telemetry")
    rows = Columns(table)
    if not rows.rows:
        return []
    metrics, units = rows.dictionary("metric"), rows.dictionary("unit")
    devices, device = np.unique(np.where(rows.valid("device"), rows.ints("device"), -1), return_inverse=True)
    counter = (device * len(metrics) + rows.raw("metric")) * len(units) + rows.raw("unit")
    at_ns = rows.ints("at_ns")
    order = np.lexsort((at_ns, counter))
    at_ns, value = at_ns[order], table.column("value").to_numpy()[order]
    kinds, begins = np.unique(counter[order], return_index=True)
    found = []
    for kind, first, end in zip(kinds.tolist(), begins, [*begins[1:], rows.rows], strict=True):
        rest, unit = divmod(kind, len(units))
        which, metric = divmod(rest, len(metrics))
        span = slice(int(first), int(end))
        found.append(Sampled(int(devices[which]), metrics[metric], units[unit], at_ns[span], value[span]))
    return sorted(found, key=lambda s: (s.device < 0, s.device, s.metric, s.unit))
