"""Whether the tap saw the schedulers of a recording, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .definitions import Spool
from .layout import Kind

__all__ = ["NOT_SEEN", "UNTAPPED", "tap_notes"]

NOT_SEEN = "split and step: not seen"
UNTAPPED = f"{NOT_SEEN} though --tap was asked for"


def tap_notes(spools: Sequence[Spool], asked: bool) -> list[str]:
    """Return what is to be said of the processes whose schedulers nobody saw; nothing if there are none."""
    blind = [s for s in spools if _count(s, Kind.COMPUTE) and not _count(s, Kind.SCHED_COMPUTE)]
    seen = any(_count(s, Kind.SCHED_COMPUTE) for s in spools)
    if seen and blind:
        return [f"{NOT_SEEN} in {len(blind)} of {len(spools)} processes: their ops have none"]
    if seen:
        return []
    if not asked:
        return [f"{NOT_SEEN} (function tables do not show them; record --tap does)"]
    if any(s.tap for s in spools):
        why = (
            "the tap was in the process, but no call on a scheduler passed through it (the engine's "
            "libraries bind such calls inside, or the program does not use ggml's scheduler)"
        )
    else:
        why = (
            "the tap was not in the process that loaded the plugin (a program that is linked statically or "
            "runs with more rights, or one that clears LD_PRELOAD)"
        )
    return [f"{UNTAPPED}: {why}"]


def _count(s: Spool, kind: Kind) -> int:
    return int(np.count_nonzero(s.records["kind"] == kind))
