"""Several processes on one clock, and the end of a flight recorder's recording."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .definitions import Spool
from .layout import NONE, Kind

__all__ = ["cut_off", "keep_last", "line_up", "used_buffers", "used_events"]

_MOVES = (Kind.COPY, Kind.SET, Kind.GET)


def line_up(spools: Sequence[Spool]) -> None:
    """Give processes of one boot one offset to wall time: that of the first.

    Their monotonic clock is the same, and the wall clock may have been set between their starts.
    """
    for boot in {s.boot for s in spools if s.boot}:
        same = [s for s in spools if s.boot == boot]
        first = min(same, key=lambda s: s.mono_ns)
        for s in same:
            s.common_ns = first.wall_ns - first.mono_ns


def cut_off(spools: Sequence[Spool], until_ns: int) -> None:
    """Leave out what processes that go on recorded from a time of CLOCK_MONOTONIC on.

    Without it a later record could be there and an earlier one of another thread not.
    """
    for s in spools:
        late = s.records["end_ns"] >= until_ns
        # How long a command ran is written when it ends: that was not there yet.
        early = (s.records["issue_ns"] < until_ns) & ~(late & (s.records["kind"] == Kind.EXEC))
        s.records, s.slots, late = s.records[early], s.slots[early], late[early]
        # A call that returned later had not returned yet; a gap goes on up to here.
        if late.any():
            s.records = s.records.copy()
            s.records["end_ns"][late] = np.where(s.records["kind"][late] == Kind.GAP, until_ns, 0)
        s.ended = False


def keep_last(spools: Sequence[Spool]) -> None:
    """Cut a flight recorder's spools to exactly the last records, or time, asked for.

    The writer keeps at least that and says what it dropped; what is cut off here counts as dropped as well.
    """
    records = max((s.last_records for s in spools), default=0)
    last_ns = max((s.last_ns for s in spools), default=0)
    times = [s.records["issue_ns"].astype(np.int64) + s.shift_ns for s in spools]
    real = [s.records["kind"] != Kind.GAP for s in spools]
    every = np.concatenate([np.empty(0, np.int64), *(t[r] for t, r in zip(times, real, strict=True))])
    if not len(every) or not (records or last_ns):
        return
    if records:
        if len(every) <= records:
            return
        order = np.argsort(every, kind="stable")  # as collecting numbers them
        keep = np.zeros(len(every), np.bool_)
        keep[order[-records:]] = True
        since = int(every[order[-records]])
    else:
        since = int(every.max()) - last_ns
        keep = every >= since
    ends = np.cumsum([int(np.count_nonzero(r)) for r in real])
    for s, mine, is_real in zip(spools, np.split(keep, ends[:-1]), real, strict=True):
        _cut(s, mine, is_real, since)


def _cut(s: Spool, keep: npt.NDArray[np.bool_], real: npt.NDArray[np.bool_], since: int) -> None:
    chosen = np.zeros(len(s.records), np.bool_)
    chosen[real] = keep
    ends = s.records["end_ns"].astype(np.int64) + s.shift_ns
    chosen[~real] = ends[~real] >= since
    s.dropped += int(np.count_nonzero(~keep))
    s.lost -= min(s.lost, int(s.records["a"][~real & ~chosen].sum()))
    s.records, s.slots = s.records[chosen], s.slots[chosen]


def used_buffers(s: Spool) -> npt.NDArray[np.bool_]:
    """Return which buffers the records name, directly or in an access set."""
    r = s.records
    used = np.zeros(len(s.buffers) + 1, np.bool_)
    moves = np.isin(r["kind"], _MOVES)
    fills = np.isin(r["kind"], (Kind.MEMSET, Kind.CLEAR, Kind.BUFFER_ALLOC, Kind.BUFFER_FREE))
    _mark(used, r["d"][moves], r["e"][moves | fills])
    sets = np.unique(r["d"][(r["kind"] == Kind.COMPUTE) & (r["d"] != NONE)])
    _mark(used, *(s.sets[i]["buffer"] for i in sets.tolist()))
    return used[:-1]


def used_events(s: Spool) -> npt.NDArray[np.bool_]:
    """Return which events the records name."""
    r = s.records
    kinds = (Kind.EVENT_RECORD, Kind.EVENT_WAIT, Kind.EVENT_SYNC, Kind.EVENT_FREE)
    used = np.zeros(len(s.events) + 1, np.bool_)
    _mark(used, r["d"][np.isin(r["kind"], kinds)])
    return used[:-1]


def _mark(used: npt.NDArray[np.bool_], *ids: npt.NDArray[np.uint32]) -> None:
    for some in ids:
        used[some[some != NONE]] = True
