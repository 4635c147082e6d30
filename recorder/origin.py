"""Where the times and processes of a recording come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Origin"]


@dataclass(frozen=True)
class Origin:
    """Where the times and processes of a tape's device ops come from.

    Attributes
    ----------
    since_ns : int or None
        What turns CLOCK_MONOTONIC into times of the tape; None: nothing was recorded.
    processes : mapping of int to int
        Ordinal of each process id.
    """

    since_ns: int | None = None
    processes: Mapping[int, int] = field(default_factory=dict)
