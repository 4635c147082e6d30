"""Times of the bench tape: every token as a recorder would have seen it, from what each op takes.

A token begins when main has got the one before it, so the ops of a token wait for nothing older: the ops are
taken one after another, each for all tokens at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .one_token import QUEUES, Row

__all__ = ["Times", "token_times"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Times:
    """Times of all ops, in row order, in ns."""

    issue_ns: Ints
    start_after_issue_ns: Ints
    duration_ns: Ints


def token_times(rows: Sequence[Row], position: Ints, rng: np.random.Generator) -> Times:
    """Return the times of `rows` repeated once per position.

    Host gaps scatter as an exponential does, what devices do by 1.5 %. An op starts when it is issued, its
    queue is free and what it waits for has ended; a host thread goes on when its own op has ended.
    """
    tokens, count = len(position), len(rows)
    issue = np.zeros((tokens, count), np.int64)
    start = np.zeros((tokens, count), np.int64)
    took = np.zeros((tokens, count), np.int64)
    free = np.zeros((len(QUEUES), tokens), np.int64)  # when the last op of each queue has ended
    events: dict[str, Ints] = {}
    for i, r in enumerate(rows):
        gap = (r.gap_ns * (0.75 + 0.25 * rng.exponential(size=tokens))).astype(np.int64)
        typical = r.duration_ns + r.per_position_ps * position / 1000
        length = (typical * (1 + 0.015 * rng.standard_normal(tokens))).astype(np.int64)
        at = free[r.issuer] + gap
        begin = at if r.queue == r.issuer else np.maximum(at, free[r.queue])
        end = begin + length
        if r.kind == "wait":
            end = np.maximum(end, events[r.event])
        elif r.kind == "sync":
            end = np.maximum(end, free[r.target])
        if r.kind == "record":
            events[r.event] = end
        issue[:, i], start[:, i], took[:, i] = at, begin - at, end - begin
        free[r.queue] = end
        if r.queue != r.issuer:
            free[r.issuer] = at
    # the next token begins when main has ended this one
    last = free[0]
    issue += (np.cumsum(last) - last)[:, None]
    return Times(issue.reshape(-1), start.reshape(-1), took.reshape(-1))
