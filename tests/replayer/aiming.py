"""Delays that put one op behind another, and small random ones, by row."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tapedelay.formats.delays.resolved import BEFORE_START, PLACES, Delays
from tapedelay.replayer.backends.protocol import Loaded
from tapedelay.replayer.program import Program

__all__ = ["NONE", "behind", "small_delays"]

NONE = Delays.of()


def behind(loaded: Loaded, first: int, second: int) -> Delays:
    """Return the delay after which one op starts when the other has ended, by a run without any."""
    plain = loaded.run(NONE)
    ns = int(plain.end_ns[second]) - int(plain.start_ns[first]) + 1
    return Delays.of([(first, BEFORE_START, max(ns, 1))])


def small_delays(program: Program, count: int, *, max_ns: int = 3000, seed: int = 0) -> list[Delays]:
    """Return plans that delay about half of all ops, each at a random place."""
    rng = np.random.default_rng(seed)
    chosen = rng.random((count, program.rows)) < 0.5
    plan, row = np.nonzero(chosen)
    place = rng.integers(0, len(PLACES), len(row)).astype(np.int8)
    ns = rng.integers(0, max_ns + 1, len(row))
    rows = row.astype(np.int32)
    first = np.searchsorted(plan, np.arange(count + 1)).tolist()
    return [Delays(rows[a:b], place[a:b], ns[a:b]) for a, b in pairwise(first)]
