"""The accesses of a tape through torch's CUDA sanitizer, which needs no GPU when it is fed by hand.

It knows tensors by their first byte, no ranges, and devices' streams only: it gets less to do than `check`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from tapedelay.formats.columns import Columns
from tapedelay.formats.tape import Tape
from tapedelay.replayer.columns import core_tape

__all__ = ["run_csan"]

_READ = 0
Step = tuple[Callable[..., list[object] | None], tuple[object, ...]]


def run_csan(tape: Tape) -> tuple[float, int]:
    """Feed every op to the sanitizer; return the seconds that it took, and how many errors it found.

    Raises
    ------
    ImportError
        torch is not installed.
    """
    from torch.cuda._sanitizer import EventHandler

    handler = EventHandler()
    steps = list(_steps(tape, handler))
    begin = time.perf_counter()
    errors = 0
    for call, arguments in steps:
        errors += len(call(*arguments) or ())
    return time.perf_counter() - begin, errors


def _steps(tape: Tape, handler: object) -> list[Step]:
    ops = Columns(tape.table("ops"))
    kinds, queues, names = ops.words("kind"), ops.ints("queue").tolist(), ops.words("name")
    records, targets = ops.ints("sync_of").tolist(), ops.ints("target").tolist()
    host = [k == "host_thread" for k in tape.table("queues").column("kind").to_pylist()]
    core = core_tape(tape)
    first, root, begin, _, mode, _ = core.accesses()
    first_of = first.tolist()
    pointers = (np.asarray(root, np.int64) * (1 << 40) + np.asarray(begin, np.int64) + 1).tolist()
    modes = mode.tolist()
    aliases: dict[int, list[str]] = {p: [] for p in set(pointers)}
    calls = {n: getattr(handler, f"_handle_{n}") for n in (
        "kernel_launch", "event_record", "event_wait", "event_synchronization", "stream_synchronization",
    )}  # fmt: skip
    found: list[Step] = []
    for row, queue in enumerate(queues):
        kind = kinds[row]
        if kind == "record":
            found.append((calls["event_record"], (row, queue)))
        elif kind == "wait" and records[row] >= 0:
            # it knows one host thread: what that waits for, everything that follows waits for
            name = "event_synchronization" if host[queue] else "event_wait"
            found.append((calls[name], (records[row],) if host[queue] else (records[row], queue)))
        elif kind == "sync":
            found.append((calls["stream_synchronization"], (targets[row],)))
        elif not host[queue] and first_of[row] < first_of[row + 1]:
            touched = range(first_of[row], first_of[row + 1])
            written = {pointers[i] for i in touched if modes[i] != _READ}
            read = {pointers[i] for i in touched if modes[i] == _READ} - written
            found.append((calls["kernel_launch"], (queue, read, written, set(), names[row] or "", aliases)))
    return found
