"""Small random delays that are the same on every machine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..tape import Tape
from .exact import exact_plan
from .plan import MAX_NS, MAX_SEED, Plan
from .print import print_time
from .resolved import BEFORE_START, PLACES, Delays

__all__ = ["random_delays", "random_ns", "random_plan"]

_Ints = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]


def _mixed(z: _Words) -> _Words:
    """SplitMix64 (Steele, Lea, Flood 2014), one step."""
    with np.errstate(over="ignore"):
        z = z + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def random_ns(seed: int, op_ids: npt.ArrayLike, max_ns: int) -> _Ints:
    """Return the random delay of each op: ``mix(mix(seed) + op) mod (max_ns + 1)``.

    Parameters
    ----------
    seed : int
        From 0 to 2^64 - 1.
    op_ids : array_like of int, shape (n,)
        Op ids; what an op gets depends on no other op.
    max_ns : int
        The most, in ns.

    Returns
    -------
    numpy.ndarray of int64, shape (n,)
        Each from 0 to `max_ns`.

    Raises
    ------
    ValueError
        `seed` or `max_ns` is out of range.
    """
    if not 0 <= seed <= MAX_SEED:
        raise ValueError(f"seed {seed}: not from 0 to {MAX_SEED}")
    if not 0 <= max_ns <= MAX_NS:
        raise ValueError(f"max_ns {max_ns}: not from 0 to {MAX_NS}")
    start = _mixed(np.array([seed], np.uint64))
    with np.errstate(over="ignore"):
        z = _mixed(start + np.asarray(op_ids, np.int64).astype(np.uint64))
    return (z % np.uint64(max_ns + 1)).astype(np.int64)


def random_delays(op_ids: npt.ArrayLike, seed: int, max_ns: int, place: int = BEFORE_START) -> Delays:
    """Return the random delays of every op, by row.

    Parameters
    ----------
    op_ids : array_like of int, shape (rows,)
        Op id of each row.
    seed, max_ns
        See `random_ns`.
    place : int
        Index into `PLACES`.
    """
    ns = random_ns(seed, op_ids, max_ns)
    rows = np.flatnonzero(ns).astype(np.int32)
    return Delays(rows, np.full(len(rows), place, np.int8), ns[rows])


def random_plan(tape: Tape, seed: int, max_ns: int, place: int = BEFORE_START) -> Plan:
    """Return the random delays of every op of a tape as an exact plan.

    Raises
    ------
    ValueError
        `seed` or `max_ns` is out of range, or the tape has more ops than a plan may have lines.
    """
    op_ids = tape.table("ops").column("op").to_numpy()
    made = f"random seed={seed} max={print_time(max_ns)} every op {PLACES[place]}, of {tape.name}"
    return exact_plan(random_delays(op_ids, seed, max_ns, place), op_ids, (made,))
