"""Files of a spool: regular ones only, opened without waiting, read no further than they may be long."""

from __future__ import annotations

import errno
import os
import stat
from io import FileIO
from pathlib import Path

from ..formats.errors import InfrastructureError, SpoolError

__all__ = ["DEFINITIONS_BYTES_MAX", "REPORT_BYTES_MAX", "cannot_read", "open_regular", "read_regular"]

DEFINITIONS_BYTES_MAX = 1 << 30
REPORT_BYTES_MAX = 1 << 16


def open_regular(path: Path) -> FileIO:
    """Open a file of a spool.

    Raises
    ------
    SpoolError
        It is a link, a pipe, a device or a directory: no recorder makes those.
    FileNotFoundError
        It is not there.
    InfrastructureError
        It cannot be opened.
    """
    # NOFOLLOW: a link could name any file; NONBLOCK: opening a pipe must not wait for its writer
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
    except FileNotFoundError:
        raise
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.ENXIO):  # a link; a socket
            raise _strange(path) from None
        raise cannot_read(path, e) from e
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _strange(path)
    return FileIO(fd, "rb")


def read_regular(path: Path, limit_bytes: int) -> bytes:
    """Return the bytes of a file of a spool, at most `limit_bytes`.

    Raises
    ------
    SpoolError
        It is no regular file, or longer.
    FileNotFoundError
        It is not there.
    InfrastructureError
        It cannot be read.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit_bytes:
            raise SpoolError(
                f"{size} bytes",
                expected=f"at most {limit_bytes}",
                where=path.name,
                next_step="record again; this spool is damaged",
            )
        try:
            return file.read(size)
        except OSError as e:
            raise cannot_read(path, e) from e


def cannot_read(path: Path, error: OSError) -> InfrastructureError:
    """Return the error for a file that the system does not give."""
    return InfrastructureError(
        error.strerror or "cannot be read", expected="a spool file that can be read", where=path.name
    )


def _strange(path: Path) -> SpoolError:
    return SpoolError(
        "not a regular file",
        expected="the files that the recorder wrote: no links, pipes or devices",
        where=path.name,
        next_step="copy the files themselves into the spool",
    )
