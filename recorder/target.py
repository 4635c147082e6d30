"""Where a tape may be written."""

from __future__ import annotations

import os
from pathlib import Path

from ..formats.container import open_container
from ..formats.errors import InputError, SpoolError, TapedelayError, UsageError
from ..formats.shown import quoted
from .asked import Asked

__all__ = ["refuse_tape", "target"]


def target(output: str | Path, asked: Asked, force: bool) -> Path:
    """Refuse a place that a tape could not take, before anything runs."""
    path = Path(output)
    where = str(output)
    if path.name in ("", ".."):
        raise UsageError(
            "a folder that cannot be replaced", expected="the name of a new tape", where=where or "''"
        )
    if not path.parent.is_dir():
        raise UsageError("its folder is not there", where=where, next_step="make the folder first")
    if not os.path.lexists(path):
        return path
    if path.exists() and not _replaceable(path):
        raise UsageError(
            "something that is no tape is there already",
            expected="a new name, or a tape to replace",
            where=where,
            next_step="choose another name",
        )
    if not force:
        word = "force=True" if asked.in_python else "--force"
        raise UsageError("it is there already", where=where, next_step=f"choose another name, or add {word}")
    return path


def _replaceable(path: Path) -> bool:
    """Whether a tape of this name may take the place of what is there: a tape of that form, or nothing."""
    if path.is_dir() is (path.suffix == ".zip"):
        return False
    try:
        if path.is_dir() and not any(path.iterdir()):
            return True
        open_container(path)
    except (InputError, OSError):
        return False
    return True


def refuse_tape(path: Path) -> None:
    """Refuse a tape in the place of a raw recording.

    Raises
    ------
    SpoolError
        It is a tape.
    """
    try:
        open_container(path)
    except TapedelayError:
        return
    raise SpoolError(
        "this is a tape already",
        expected="a raw recording, as --keep-spool leaves it",
        where=str(path),
        next_step=f"tapedelay check {quoted(path)}",
    )
