"""Write the raw recording of this process's request schedulers, one system call per input.

What was written survives the death of the process; what cannot be written ends the recording, never the
engine.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import zlib

from .layout import ENDED, FRAME, FRAME_BYTES_MAX, HEADER, MAGIC, RUNNING, STATUS, STATUS_AT, STOPPED, VERSION

__all__ = ["Writer", "enabled", "said", "stop", "writer"]

_NUMBERS_MAX = 10_000


_asked = os.environ.get("TAPEDELAY_SPOOL", "")
"""The folder of the recording that goes on: what a program does to its environment does not end it."""


def enabled() -> bool:
    """Return whether this process is recorded; a program that took that from its environment is told."""
    global _asked
    directory = os.environ.get("TAPEDELAY_SPOOL", "")
    if directory:
        _asked = directory
    elif _asked:
        said(_asked, _REMOVED)
    return bool(directory)


_REMOVED = (
    "a request scheduler is not recorded (the program removed TAPEDELAY_SPOOL from its environment before it "
    "was built)"
)


class Writer:
    """One file of one process; opened with the first frame, in the process that writes it.

    Parameters
    ----------
    directory : str
        The folder of the raw recording.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.over = False
        """Nothing is written any more."""
        self.faulty = False
        """Something that should be here is not."""
        self.pid = os.getpid()
        self._fd = -1
        self._file: tuple[int, int] | None = None
        self._bytes = 0
        self._schedulers = 0

    def next_scheduler(self) -> int:
        """Return a number for another scheduler of this process."""
        self._schedulers += 1
        return self._schedulers - 1

    def write(self, payload: bytes) -> bool:
        """Append one frame; return whether it lies there."""
        if self.over:
            return False
        try:
            if self._fd < 0:
                self._open()
            if len(payload) > FRAME_BYTES_MAX:
                raise ValueError(f"an input of {len(payload)} bytes")
            if not self._mine():
                raise OSError(9, "its file was closed by the program")
            data = FRAME.pack(len(payload), zlib.crc32(payload)) + payload
            done = os.write(self._fd, data)
            if done < len(data):  # the disk is full: a second call says so
                done += os.write(self._fd, data[done:])
            if done < len(data):
                raise OSError(0, "it was written in part only")
            self._bytes += done
        except (OSError, ValueError) as e:
            self._stop(e)
            return False
        return True

    def end(self, status: int = ENDED, error: int = 0) -> None:
        """Close the file and note in it why it ends."""
        self.over = True
        if self.faulty:
            status = STOPPED
        mine, fd, self._fd = self._mine(), self._fd, -1
        if not mine or self.pid != os.getpid():
            return
        with contextlib.suppress(OSError):
            os.ftruncate(fd, self._bytes)  # half a frame is none
        with contextlib.suppress(OSError):
            os.pwrite(fd, STATUS.pack(status, error), STATUS_AT)
        with contextlib.suppress(OSError):
            os.close(fd)

    def _mine(self) -> bool:
        """Return whether the descriptor is still that of the file.

        A program that closes what it did not open gets the number again, for a file or socket of its own.
        """
        try:
            found = os.fstat(self._fd)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._file

    def _open(self) -> None:
        self.pid = os.getpid()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        for number in range(_NUMBERS_MAX):
            try:
                self._fd = os.open(
                    os.path.join(self.directory, f"requests-{self.pid}-{number}.frames"), flags, 0o600
                )
                break
            except FileExistsError:
                continue
        else:
            raise OSError(0, f"{_NUMBERS_MAX} recordings of one process")
        opened = os.fstat(self._fd)
        self._file = opened.st_dev, opened.st_ino
        head = HEADER.pack(MAGIC, VERSION, RUNNING, 0, self.pid, time.monotonic_ns(), time.time_ns())
        if os.write(self._fd, head) != len(head):
            raise OSError(28, os.strerror(28))
        self._bytes = len(head)

    def _stop(self, error: Exception) -> None:
        number = (error.errno or 0) if isinstance(error, OSError) else 0
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        self.end(STOPPED, number)
        said(self.directory, f"recording stopped early: the request scheduler's ({why})")


_writer: Writer | None = None
_lock = threading.Lock()


def writer() -> Writer | None:
    """Return the writer of this process; None where nothing is recorded."""
    global _writer
    if not enabled():
        return None
    directory = os.environ["TAPEDELAY_SPOOL"]
    with _lock:
        if _writer is None or _writer.over or _writer.directory != directory or _writer.pid != os.getpid():
            _writer = Writer(directory)
            _end_with_process()
        return _writer


def stop() -> None:
    """End the recording of this process's request schedulers; the engine goes on."""
    global _asked
    _asked = ""
    with _lock:
        if _writer is not None and _writer.pid == os.getpid():
            _writer.end()


def _forked() -> None:
    """Forget, in a child, the lock that another thread of its parent may hold for ever."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)

_watched = -1


def _end_with_process() -> None:
    global _watched
    if _watched == os.getpid():
        return
    _watched = os.getpid()
    atexit.register(stop)
    util = sys.modules.get("multiprocessing.util")
    if util is not None:  # its children leave without the functions of atexit
        util.Finalize(None, stop, exitpriority=0)


_words: set[str] = set()


def said(directory: str, text: str) -> None:
    """Say a fault of the recording once: on stderr, and in the raw recording, where `record` finds it."""
    if _writer is not None:
        _writer.faulty = True
        directory = directory or _writer.directory  # the program may have cleared its environment
    if text in _words:
        return
    _words.add(text)
    with contextlib.suppress(Exception):  # it may be closed
        sys.stderr.write(f"tapedelay: {text}; the engine goes on\n")
    if not directory:
        return
    with contextlib.suppress(Exception):
        path = os.path.join(directory, f"refused-requests-{os.getpid()}.txt")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(fd, text[:400].replace("\n", " ").encode("utf-8", "replace") + b"\n")
        finally:
            os.close(fd)
