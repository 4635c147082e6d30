"""Delays by row, written out as a plan."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .plan import MAX_LINES, Line, Plan
from .resolved import Delays

__all__ = ["exact_plan"]


def exact_plan(delays: Delays, op_ids: npt.NDArray[np.int64], notes: tuple[str, ...] = ()) -> Plan:
    """Return delays by row as a plan of op ids.

    Parameters
    ----------
    delays : Delays
        What is to be written out.
    op_ids : numpy.ndarray of int64, shape (rows,)
        Op id of each row.
    notes : tuple of str
        Comment lines at its top.

    Raises
    ------
    ValueError
        There are more than a plan may have lines.
    """
    if len(delays) > MAX_LINES:
        raise ValueError(f"{len(delays):,} delays: a plan has at most {MAX_LINES:,} lines")
    ids, places, ns = op_ids[delays.row].tolist(), delays.place.tolist(), delays.ns.tolist()
    return Plan(tuple(map(Line, ids, ns, places)), notes)
