"""The version rule: read version and write version apart.

``format_read`` is the lowest reader that understands the tape, ``format_write`` the writer that made it. An
unknown write version opens read-only: what this reader knows is read, the rest is left out, and the tape is
not written again. An unknown read version is refused, with both numbers.
"""

from __future__ import annotations

from .errors import VersionError
from .schema import FORMAT_READ, FORMAT_WRITE

__all__ = ["check_read_version", "is_newer_writer", "newer_writer_note"]


def check_read_version(format_read: int, where: str) -> None:
    """Refuse a tape that needs another reader.

    Raises
    ------
    VersionError
        The tape's read version is not known here.
    """
    if not 0 <= format_read <= FORMAT_READ:
        raise VersionError(
            f"the tape needs a reader of format {format_read}; this one reads up to format {FORMAT_READ}",
            expected=f"read version 0 to {FORMAT_READ}",
            where=where,
            next_step="open it with a newer tapedelay (pip install -U tapedelay)",
        )


def is_newer_writer(format_write: int) -> bool:
    """Return whether the tape was written by a version this one does not know."""
    return not 0 <= format_write <= FORMAT_WRITE


def newer_writer_note(format_write: int) -> str:
    """Return what to tell the user about such a tape."""
    return (
        f"written in format {format_write}, this version writes format {FORMAT_WRITE}: "
        "opened read-only, columns and tables it does not know are left out"
    )
