"""The bytes of a tape: a directory, or one stored zip file.

Nothing here knows what the members mean. Both kinds give members by plain name only, never follow a link,
never open anything but a regular file, and never read more than was asked for.
"""

from __future__ import annotations

import os
import re
import stat
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Protocol

from .disk import cannot_read
from .errors import CorruptTape, NotATape
from .shown import quoted

__all__ = ["Container", "DirectoryContainer", "ZipContainer", "open_container", "write_zip"]

_MEMBER = re.compile(r"manifest\.json|[a-z][a-z0-9_]{0,62}\.arrow")
_MEMBERS_MAX = 512
_DIRECTORY_BYTES_MAX = 1 << 17
_LOCAL = struct.Struct("<4s5H3I2H")
_END = struct.Struct("<4s4H2IH")
_END64 = struct.Struct("<4sQ2H2I4Q")
_STAMP = (1980, 1, 1, 0, 0, 0)  # the zip epoch: packing twice gives the same bytes

_HEAD_BYTES = 4096
_LITMUS = re.compile(rb"^[ \t]*[-+]?[ \t]*[A-Za-z0-9_.-]+[ \t]*\|[ \t]*[a-z_]+[ \t]*\|", re.MULTILINE)
"""A row of a litmus file: ``2 | copy | ...``."""

_FOREIGN = (
    (b"\x89PNG", "a PNG picture"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"ARROW1", "one Arrow file"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x28\xb5\x2f\xfd", "a zstd file"),
    (b"\x7fELF", "a program"),
    (b"TDSPOOL", "a spool"),
    (b"TDREQSTS", "a spool"),
    (b"{", "a JSON file"),
)


class Container(Protocol):
    """Where the members of a tape lie: a short name, and for messages the path as it was given."""

    name: str
    where: str

    def names(self) -> tuple[str, ...]:
        """Return the names of the members."""

    def size(self, member: str) -> int | None:
        """Return the size of a member in bytes, None where there is none."""

    def read(self, member: str, limit_bytes: int) -> bytes:
        """Return a member's bytes.

        Raises
        ------
        CorruptTape
            It is not there, longer than `limit_bytes`, or damaged.
        """


def open_container(path: str | Path) -> Container:
    """Open a directory or zip file as a container.

    Raises
    ------
    MissingInput
        There is nothing, or it may not be read.
    NotATape
        It is something else.
    """
    path = Path(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return DirectoryContainer(path)
        if not stat.S_ISREG(mode):
            raise NotATape(
                "neither a file nor a directory",
                expected="NAME.tape, NAME.tape.zip or NAME.litmus",
                where=str(path),
                next_step="save what comes through a pipe as a file first: a litmus text as NAME.litmus",
            )
        with path.open("rb") as f:
            head = f.read(_HEAD_BYTES)
    except (OSError, ValueError) as e:
        raise cannot_read(path, e, "a tape") from None
    if head.startswith(b"PK\x03\x04"):
        return ZipContainer(path)
    what = next((w for magic, w in _FOREIGN if head.startswith(magic)), "a file of another kind")
    next_step = "make one with: tapedelay record -o run.tape -- COMMAND"
    if _LITMUS.search(head):
        what, next_step = "what looks like a litmus file", "give it a name that ends in .litmus"
    raise NotATape(
        what if head else "an empty file",
        expected="a directory NAME.tape, a zip file NAME.tape.zip or a text NAME.litmus",
        where=str(path),
        next_step=next_step,
    )


class DirectoryContainer:
    """A directory whose regular files are the members."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = path.name or str(path)
        self.where = str(path)
        try:
            present = sorted(os.listdir(path))
        except OSError as e:
            raise cannot_read(path, e, "a tape") from None
        # other files (an editor's, a file manager's) are no part of the tape
        self._names = tuple(n for n in present if _MEMBER.fullmatch(n))
        if "manifest.json" not in self._names:
            spool = any(n.endswith((".rec", ".frames")) for n in present)
            raise NotATape(
                "a spool, which is not a tape yet" if spool else "a directory without manifest.json",
                expected="a directory with manifest.json and NAME.arrow files",
                where=self.where,
                next_step=f"tapedelay record -o run.tape --from-spool {quoted(path)}"
                if spool
                else "check the path",
            )

    def names(self) -> tuple[str, ...]:
        """Return the names of the members."""
        return self._names

    def size(self, member: str) -> int | None:
        """Return the size of a member in bytes, None where there is none."""
        if member not in self._names:
            return None
        with self._open(member) as f:
            return os.fstat(f.fileno()).st_size

    def read(self, member: str, limit_bytes: int) -> bytes:
        """Return a member's bytes, at most `limit_bytes`."""
        if member not in self._names:
            raise CorruptTape(f"{member} is missing", where=self.where, next_step="record again")
        with self._open(member) as f:
            try:
                data = f.read(limit_bytes + 1)
            except OSError as e:
                raise cannot_read(self._path / member, e, "a file of the tape") from None
        if len(data) > limit_bytes:
            raise CorruptTape(
                f"{member} is longer than it should be",
                expected=f"at most {limit_bytes} bytes",
                where=self.where,
            )
        return data

    def _open(self, member: str) -> BinaryIO:
        # NOFOLLOW: a link could name any file; NONBLOCK: opening a pipe must not hang
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            fd = os.open(
                self._path / member, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
            )
        except OSError as e:
            if (self._path / member).is_symlink():
                raise self._not_regular(member, "a link") from None
            raise cannot_read(self._path / member, e, "a file of the tape") from None
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise self._not_regular(member, "not a regular file")
        return os.fdopen(fd, "rb")

    def _not_regular(self, member: str, what: str) -> CorruptTape:
        return CorruptTape(
            f"{member} is {what}",
            expected="a regular file inside the tape",
            where=self.where,
            next_step="copy the file itself into the directory",
        )


class ZipContainer:
    """A zip file with stored members."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = path.name
        self.where = str(path)
        try:
            with path.open("rb") as f:
                self._members = self._index(f)
        except (zipfile.BadZipFile, struct.error, NotImplementedError, ValueError, EOFError) as e:
            raise NotATape(
                f"a damaged zip file ({e})",
                expected="a zip file NAME.tape.zip",
                where=self.where,
                next_step="it may have been cut short: copy it again",
            ) from None
        except OSError as e:
            raise cannot_read(path, e, "a tape") from None
        if "manifest.json" not in self._members:
            raise NotATape(
                "a zip file without manifest.json",
                expected="manifest.json and NAME.arrow members",
                where=self.where,
                next_step="check the path",
            )

    def _index(self, f: BinaryIO) -> dict[str, tuple[int, int]]:
        """Return where the data of each member lies: offset and bytes."""
        file_bytes = f.seek(0, os.SEEK_END)
        directory_bytes = self._directory_bytes(f, file_bytes)
        if directory_bytes > _DIRECTORY_BYTES_MAX:
            raise self._bad(f"a member list of {directory_bytes} bytes", f"at most {_DIRECTORY_BYTES_MAX}")
        f.seek(0)
        with zipfile.ZipFile(f) as z:
            infos = z.infolist()
        if len(infos) > _MEMBERS_MAX:
            raise self._bad(f"{len(infos)} members", f"at most {_MEMBERS_MAX}")
        members: dict[str, tuple[int, int]] = {}
        end = 0
        for i in sorted(infos, key=lambda i: i.header_offset):
            shown = ascii(i.filename)[:80]
            if not _MEMBER.fullmatch(i.filename):
                raise self._bad(f"a member {shown}", "manifest.json and NAME.arrow only")
            if i.filename in members:
                raise self._bad(f"two members {shown}", "each once")
            if i.compress_type != zipfile.ZIP_STORED or i.flag_bits & 0x1:
                raise self._bad(f"{shown} is compressed or encrypted", "stored members")
            if i.file_size != i.compress_size or i.file_size < 0:
                raise self._bad(f"{shown} states two sizes", "one size")
            if i.header_offset != end:
                raise self._bad(f"{shown} is not where the one before it ends", "members one after another")
            at = self._data_offset(f, i)
            end = at + i.file_size
            if end > file_bytes:
                raise self._bad(f"{shown} reaches beyond the file", "the size it has")
            members[i.filename] = (at, i.file_size)
        return members

    def _directory_bytes(self, f: BinaryIO, file_bytes: int) -> int:
        """Return the size of the member list, so that a giant one is never parsed."""
        f.seek(max(file_bytes - _END.size, 0))
        tail = f.read(_END.size)
        if len(tail) < _END.size or not tail.startswith(b"PK\x05\x06"):
            raise zipfile.BadZipFile("no end record at its end")
        value: int = _END.unpack(tail)[5]
        if value == 0xFFFFFFFF:
            f.seek(max(file_bytes - _END.size - 20 - _END64.size, 0))
            record = f.read(_END64.size)
            if len(record) < _END64.size or not record.startswith(b"PK\x06\x06"):
                raise zipfile.BadZipFile("no zip64 end record")
            value = _END64.unpack(record)[8]
        return value

    def _data_offset(self, f: BinaryIO, info: zipfile.ZipInfo) -> int:
        f.seek(info.header_offset)
        raw = f.read(_LOCAL.size)
        if len(raw) < _LOCAL.size or not raw.startswith(b"PK\x03\x04"):
            raise self._bad(f"no header for {info.filename}", "a header where the member list says")
        _, _, flags, method, _, _, _, packed, plain, name_bytes, extra_bytes = _LOCAL.unpack(raw)
        name = f.read(name_bytes)
        sizes = {packed, plain} - {0xFFFFFFFF}  # zip64: the size stands in the member list
        if name != info.filename.encode() or method != 0 or flags & 0x9 or sizes - {info.file_size}:
            raise self._bad(f"header and member list differ on {info.filename}", "the same twice")
        return int(info.header_offset) + _LOCAL.size + int(name_bytes) + int(extra_bytes)

    def _bad(self, found: str, expected: str) -> CorruptTape:
        return CorruptTape(
            found, expected=expected, where=self.where, next_step="pack the directory again: tapedelay pack"
        )

    def names(self) -> tuple[str, ...]:
        """Return the names of the members."""
        return tuple(self._members)

    def size(self, member: str) -> int | None:
        """Return the size of a member in bytes, None where there is none."""
        found = self._members.get(member)
        return found[1] if found else None

    def read(self, member: str, limit_bytes: int) -> bytes:
        """Return a member's bytes, at most `limit_bytes`."""
        if member not in self._members:
            raise CorruptTape(f"{member} is missing", where=self.where, next_step="record again")
        at, n = self._members[member]
        if n > limit_bytes:
            raise CorruptTape(
                f"{member} is longer than it should be",
                expected=f"at most {limit_bytes} bytes",
                where=self.where,
            )
        try:
            with self._path.open("rb") as f:
                f.seek(at)
                data = f.read(n)
        except OSError as e:
            raise cannot_read(self._path, e, "a tape") from None
        if len(data) != n:
            raise CorruptTape(f"{member} is cut short", where=self.where, next_step="copy the file again")
        return data


def write_zip(path: Path, members: Iterable[tuple[str, Path | bytes]]) -> None:
    """Write a stored zip whose bytes depend on the members only.

    Raises
    ------
    OSError
        The disk does not take it; the caller knows under which name it was to appear.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        for name, source in members:
            info = zipfile.ZipInfo(name, _STAMP)
            info.create_system = 3
            info.external_attr = 0o644 << 16
            if isinstance(source, bytes):
                z.writestr(info, source)
                continue
            info.file_size = source.stat().st_size
            with source.open("rb") as f, z.open(info, "w") as out:
                while chunk := f.read(1 << 20):
                    out.write(chunk)
