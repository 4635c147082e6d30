"""Delays that the plugin applied: rows of the ``delays`` table, and the plan they come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....formats.delays.plan import MAX_LINES, MAX_TOTAL_NS
from ....formats.schema import DELAY_PLACES, SCHEMAS
from .definitions import Spool
from .layout import Kind

__all__ = ["FILLER", "Applied", "applied", "before_start_ns", "delays_table", "sound_delays", "wanted_slots"]

FILLER = 16
"""Added to the place of a delay that work on the device made (``DELAY_FILLER``)."""

Applied = tuple[npt.NDArray[Any], npt.NDArray[np.int64]]
"""Records of delays, and the provisional op of each; -1 where its own record was lost."""


def sound_delays(records: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which records say what a delay can be: a place, a line of a plan, a length."""
    sound: npt.NDArray[np.bool_] = np.isin(records["e"] % FILLER, range(len(DELAY_PLACES)))
    sound &= (records["e"] < 2 * FILLER) & (records["d"] < MAX_LINES) & (records["b"] <= MAX_TOTAL_NS)
    return sound


def wanted_slots(spool: Spool) -> set[int]:
    """Return the slots of the records whose ops were held up."""
    r = spool.records
    return set(r["a"][r["kind"] == Kind.DELAY].tolist())


def applied(spool: Spool, op_of_slot: Mapping[int, int]) -> Applied:
    """Return the delays of one process and the ops that they held up."""
    r = spool.records
    rows = r[r["kind"] == Kind.DELAY]
    return rows, np.array([op_of_slot.get(s, -1) for s in rows["a"].tolist()], np.int64)


def before_start_ns(spool: Spool) -> dict[int, int]:
    """Return how long calls that the host executes were held up before their start, by slot."""
    r = spool.records
    rows = r[(r["kind"] == Kind.DELAY) & (r["e"] == DELAY_PLACES.index("before_start")) & (r["end_ns"] > 0)]
    found: dict[int, int] = {}
    for slot, true_ns in zip(rows["a"].tolist(), rows["c"].tolist(), strict=True):
        found[slot] = found.get(slot, 0) + true_ns
    return found


def delays_table(parts: list[Applied], numbered: npt.NDArray[np.int64]) -> pa.Table | None:
    """Return the ``delays`` table; None where nothing was held up.

    Parameters
    ----------
    parts : list
        Of each process.
    numbered : numpy.ndarray of int64
        Op id of each provisional op.
    """
    kept = [(rows[op >= 0], op[op >= 0]) for rows, op in parts]
    if not sum(len(op) for _, op in kept):
        return None
    rows = np.concatenate([rows for rows, _ in kept])
    ops = numbered[np.concatenate([op for _, op in kept])]
    place = rows["e"] % FILLER
    order = np.lexsort((rows["d"], place, ops))
    rows, ops, place = rows[order], ops[order], place[order]
    ended = rows["end_ns"] > 0
    schema = SCHEMAS["delays"]
    words = pa.DictionaryArray.from_arrays(
        pa.array(place.astype(np.int64)), pa.array(DELAY_PLACES, pa.string())
    ).cast(schema.field("place").type)
    return pa.Table.from_arrays(
        [
            pa.array(ops, pa.int64()),
            words,
            pa.array(rows["d"].astype(np.int64) + 1),
            pa.array(rows["b"].astype(np.int64)),
            pa.array(rows["c"].astype(np.int64), mask=~ended),
            pa.array(rows["e"] >= FILLER),
        ],
        schema=schema,
    )
