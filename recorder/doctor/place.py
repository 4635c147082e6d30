"""The folder where tapes and raw recordings go: space, and what its file system can do."""

from __future__ import annotations

import ctypes
import mmap
import os
import tempfile
from pathlib import Path

from .finding import LIMIT, NO, OK, Finding

__all__ = ["file_system", "look_at_place"]

_ENOUGH_BYTES = 1 << 30
_LEAST_BYTES = 16 << 20
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_PAGE = 4096
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "lustre")


def look_at_place(folder: Path) -> list[Finding]:
    """Return what was found of a folder.

    Parameters
    ----------
    folder : Path
        Where tapes would be written.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return [_space(folder), _maps(file.fileno()), _holes(file.fileno())]
    except OSError as e:
        found = f"no recording can be written here: {e.strerror}"
        return [Finding("place", NO, found, "choose a folder that can be written")]


def _space(folder: Path) -> Finding:
    v = os.statvfs(folder)
    free = v.f_bavail * v.f_frsize
    kind = file_system(folder)
    found = f"{free / (1 << 30):,.1f} GiB free on {kind or 'a file system of unknown kind'}"
    if free < _LEAST_BYTES:
        return Finding("space", NO, found, "free space, or choose another disk")
    if free < _ENOUGH_BYTES:
        return Finding("space", LIMIT, f"{found}: enough for short runs", "free space, or record with --last")
    if kind in _REMOTE:
        return Finding("space", LIMIT, f"{found}: records go over the network", "choose a local disk")
    return Finding("space", OK, found)


def _maps(fd: int) -> Finding:
    try:
        os.posix_fallocate(fd, 0, 2 * _PAGE)
        with mmap.mmap(fd, 2 * _PAGE) as m:
            m[0:1] = b"x"
    except OSError as e:
        found = f"files cannot be mapped and written here: {e.strerror}"
        return Finding("mapping", NO, found, "choose a folder on a local disk or a tmpfs")
    return Finding("mapping", OK, "files can be mapped and written here: records survive a killed engine")


def _holes(fd: int) -> Finding:
    libc = ctypes.CDLL(None, use_errno=True)
    size = ctypes.c_int64
    if libc.fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, size(0), size(_PAGE)) == 0:
        return Finding("holes", OK, "files can have holes here: --last keeps the disk small")
    found = (
        f"files cannot have holes here ({os.strerror(ctypes.get_errno())}): --last does not free disk space"
    )
    return Finding("holes", LIMIT, found, "for --last choose ext4, xfs, btrfs or tmpfs")


def file_system(folder: Path) -> str:
    """Return the kind of file system that a folder lies on; empty where it is not known."""
    try:
        device = os.stat(folder).st_dev
        for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
            mount, _, rest = line.partition(" - ")
            if mount.split()[2] == f"{os.major(device)}:{os.minor(device)}":
                return rest.split()[0]
    except (OSError, IndexError):
        pass
    return ""
