"""What a manifest says about one process's recording, in words."""

from __future__ import annotations

import os
from collections.abc import Sequence

from .definitions import Spool
from .layout import Stop
from .thread_rows import ThreadRows

__all__ = ["exec_notes", "process_notes"]

_STOPPED = {
    Stop.MEMORY: "the process ran out of memory",
    Stop.THREAD: "the process could have no more threads",
    Stop.FORK: "forks of the process could not be seen",
}


def process_notes(
    spool: Spool, *, failed_computes: int, unresolved: int, unsplit: int, threads: ThreadRows
) -> list[str]:
    """Return what is to be said about the recording of a process.

    Parameters
    ----------
    spool : Spool
        What it wrote.
    failed_computes, unresolved, unsplit : int
        Computes that failed, waits whose record was not seen, steps without splits.
    threads : ThreadRows
        Where its host threads are.
    """
    found = list(spool.notes)
    if failed_computes:
        found.append(f"{failed_computes} computes failed: how much of their work was done is not known")
    if unresolved:
        found.append(
            f"{unresolved} waits whose record was not seen: findings that depend on them are unknown"
        )
    if unsplit:
        found.append(
            f"{unsplit} steps were computed in other pieces than the scheduler's splits: "
            "their ops have no split"
        )
    if threads.begins:
        callers = len(threads.leaders) - threads.leaders.count(None)
        found.append(
            f"{callers:,} host threads: more than a tape has queues, so that {len(threads.begins):,} of them "
            f"share {len(threads.shared)} with others though nothing orders them; nothing is called clean"
        )
    if spool.torn:
        found.append("the last definition was cut short: the process died while it wrote it")
    if spool.failed:
        found.append(_stopped(spool))
    return found


def exec_notes(spools: Sequence[Spool]) -> list[str]:
    """Return which processes went on as another program, which cuts their recordings short."""
    found = []
    for i, s in enumerate(spools):
        later = [
            j
            for j, t in enumerate(spools)
            if s.pid and (t.pid, t.boot) == (s.pid, s.boot) and t.mono_ns > s.mono_ns
        ]
        if later and not s.ended:
            after = min(later, key=lambda j: spools[j].mono_ns)
            found.append(
                f"process {i} went on as another program (exec), which is process {after}: "
                "its recording stops there without an end"
            )
    return found


def _stopped(s: Spool) -> str:
    """Return why a process's recording ended before the process did."""
    text = "recording stopped early: "
    if s.why in _STOPPED:
        return text + _STOPPED[Stop(s.why)]
    reason = f" ({os.strerror(s.error)})" if 0 < s.error < 4096 else ""
    return f"{text}the spool could not be written any more{reason}"
