"""What can be seen of a worker from outside: where it is, what its engine printed, how much memory it has."""

from __future__ import annotations

import fcntl
import os

from .worker import IDLE, STATUS, status_of

__all__ = ["Vitals", "own_bytes"]

_TAIL_BYTES = 2_000
_SAID_BYTES_MAX = 1 << 20


class Vitals:
    """Two files that outlive the process. They lie in memory: no full disk can look like an engine's fault.

    Attributes
    ----------
    status : int
        Descriptor of the file that always says what the worker is doing.
    said : int
        Descriptor for what the engine prints.
    """

    def __init__(self) -> None:
        self.status = self.said = -1
        try:
            self.status = os.memfd_create("tapedelay-status")
            self.said = os.memfd_create("tapedelay-said")
            os.pwrite(self.status, STATUS.pack(0, IDLE, 0, b""), 0)
            # writers go on at its end, wherever `trim` has put that
            fcntl.fcntl(self.said, fcntl.F_SETFL, fcntl.fcntl(self.said, fcntl.F_GETFL) | os.O_APPEND)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of both."""
        for fd in (self.status, self.said):
            if fd >= 0:
                os.close(fd)
        self.status = self.said = -1

    def doing(self) -> tuple[int, int, int, str]:
        """Return the message, the call, its beat and its kind that the worker is in."""
        return status_of(os.pread(self.status, STATUS.size, 0))

    def trim(self) -> None:
        """Forget what the engine printed where that has become much."""
        if os.fstat(self.said).st_size > _SAID_BYTES_MAX:
            os.ftruncate(self.said, 0)

    def last_words(self) -> str:
        """Return the last line that was printed, after a colon; "" where there is none."""
        size = os.fstat(self.said).st_size
        tail = os.pread(self.said, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        lines = tail.decode(errors="replace").strip().splitlines()
        return f": {lines[-1][:300]}" if lines else ""


def own_bytes(pid: int) -> int:
    """Return the memory that a process has for itself alone, in use or swapped out; 0 where nobody says."""
    try:
        with open(f"/proc/{pid}/status", "rb") as f:
            rows = dict(line.split(b":", 1) for line in f if line.startswith((b"RssAnon:", b"VmSwap:")))
    except OSError:
        return 0
    return sum(int(row.split()[0]) for row in rows.values()) * 1024
