"""The process that has the engine: reads messages, one JSON object a line, and answers each.

Standard library only: it runs in the engine's own Python. Started by `workers.py`, never by hand.
"""

from __future__ import annotations

import contextlib
import gc
import json
import mmap
import os
import struct
import sys

__all__ = ["BUILD", "IDLE", "STATUS", "main", "status_of"]

STATUS = struct.Struct("<qqq16s")
"""Message that is answered, call into the engine (`IDLE`: none), a number that is another each time that this
is written, and the kind of the call."""

IDLE = -1
BUILD = "build"
"""Kind of the call that makes a scheduler."""

_COLLECT_AT = 20_000
"""New objects at which Python looks for garbage: a run keeps nearly all that it makes until its end."""


def status_of(data: bytes) -> tuple[int, int, int, str]:
    """Return the message, the call, its beat and its kind that a worker is in."""
    message, call, beat, kind = STATUS.unpack(data[: STATUS.size])
    return message, call, beat, kind.rstrip(b"\0").decode(errors="replace")


def main(file: int) -> None:
    """Serve until the input ends.

    Parameters
    ----------
    file : int
        Descriptor of a file of `STATUS.size` bytes that always says what goes on: it outlives a crash.
    """
    # When memory runs out, the kernel ends this process before any other of the machine.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what an engine prints goes beside its errors
    sys.stdout = sys.stderr
    status = mmap.mmap(file, STATUS.size)
    os.close(file)
    number = beat = 0

    def told(call: int, kind: str) -> None:
        nonlocal beat
        beat += 1
        STATUS.pack_into(status, 0, number, call, beat, kind.encode())

    told(IDLE, "import")
    from .serving import Server

    server = Server(told)
    told(IDLE, "")
    for line in sys.stdin:
        number += 1
        told(IDLE, "")
        answer = server.handle(json.loads(line))
        if number == 1:
            gc.collect()
            gc.freeze()  # what an engine's import leaves behind need not be looked through in every run
            gc.set_threshold(_COLLECT_AT, 10, 10)
        told(IDLE, "answer")
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
