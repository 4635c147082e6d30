"""Files alike everywhere: errors name the path as it was given, outputs replace nothing unasked."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from .errors import InfrastructureError, MissingInput, UsageError

__all__ = [
    "binary_output",
    "cannot_read",
    "cannot_write",
    "check_output",
    "hidden_sibling",
    "open_regular",
    "write_text",
]


def cannot_read(path: str | Path, error: OSError | ValueError, expected: str) -> MissingInput:
    """Return the error for a path that cannot be opened or read."""
    denied = getattr(error, "errno", None) in (errno.EACCES, errno.EPERM)
    return MissingInput(
        f"cannot be opened: {getattr(error, 'strerror', None) or 'not a usable path'}",
        expected=expected,
        where=str(path),
        next_step="check permissions" if denied else "check the path",
    )


def open_regular(path: str | Path) -> IO[bytes]:
    """Open a file for reading, without waiting for what stands at the other end of a pipe.

    Raises
    ------
    OSError
        It cannot be opened, or is no regular file.
    """
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "no regular file")
    return os.fdopen(fd, "rb")


def cannot_write(path: str | Path, error: OSError) -> InfrastructureError:
    """Return the error for a place that takes no file."""
    steps = {
        errno.EACCES: "check permissions, or choose another place",
        errno.EPERM: "check permissions, or choose another place",
        errno.EROFS: "choose another place: this one is read-only",
        errno.ENOENT: "make its folder, or choose another place",
        errno.ENOTDIR: "choose another place: a part of the path is a file",
        errno.ENOSPC: "make space, or choose another place",
    }
    return InfrastructureError(
        f"cannot write: {error.strerror or error}",
        expected="a place with space that may be written",
        where=str(path),
        next_step=steps.get(error.errno or 0, "check the place, its space and its permissions"),
    )


def check_output(out: Path, *, tape: str | Path | None = None, force: bool = False) -> None:
    """Refuse an output that would replace something, or lie inside of the tape that is read.

    Parameters
    ----------
    out : Path
        The file to write.
    tape : path, optional
        The tape that is read; neither it nor what lies inside of it is ever replaced.
    force : bool
        Whether a file that is there may be replaced.

    Raises
    ------
    UsageError
        It must not be written.
    """
    if out.is_dir():
        raise UsageError(
            "a directory is there",
            expected="the name of a file to write",
            where=str(out),
            next_step="choose another name",
        )
    if tape is not None:
        source, target = Path(tape).resolve(), out.resolve()
        if target == source or source in target.parents:
            raise UsageError(
                "that is the tape itself" if target == source else "that lies inside of the tape",
                expected="a file beside the tape",
                where=str(out),
                next_step="choose another name",
            )
    if out.is_file() and not force:
        raise UsageError(
            "a file is there",
            expected="a new name",
            where=str(out),
            next_step="choose another name, or replace it with --force",
        )


def hidden_sibling(path: Path, suffix: str = ".tmp") -> Path:
    """Return a free name beside a path, for what takes its place when it is finished.

    Only the beginning of the name is in it, so that it is not too long where the name itself is not.
    """
    return path.with_name(f".{path.name[:32]}.{uuid.uuid4().hex[:8]}{suffix}")


def write_text(out: Path, text: str) -> None:
    """Write a file as a whole: it is there completely or as it was.

    Raises
    ------
    InfrastructureError
        The disk does not take it.
    """
    temporary = hidden_sibling(out)
    try:
        if out.exists() and not out.is_file():  # a terminal, a pipe
            out.write_text(text, encoding="utf-8")
            return
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, out)
    except OSError as e:
        raise cannot_write(out, e) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def binary_output(out: Path) -> Iterator[IO[bytes]]:
    """Open a file to be written piece by piece; it appears under its name when all of it is there.

    Raises
    ------
    InfrastructureError
        The disk does not take it.
    """
    temporary = hidden_sibling(out)
    special = out.exists() and not out.is_file()  # a pipe
    try:
        with (out if special else temporary).open("wb") as file:
            yield file
        if not special:
            os.replace(temporary, out)
    except OSError as e:
        raise cannot_write(out, e) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
