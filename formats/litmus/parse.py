"""Read litmus text and files."""

from __future__ import annotations

import os
from pathlib import Path

from ..disk import cannot_read
from ..errors import LitmusError
from ..tape import Tape
from .lines import read_lines
from .model import Litmus
from .words import MAX_BYTES

__all__ = ["load", "parse", "read", "read_text", "split_variant"]


def parse(text: str, *, name: str = "litmus") -> Litmus:
    """Parse litmus text.

    Parameters
    ----------
    text : str
        The text.
    name : str
        File name for messages.

    Returns
    -------
    Litmus
        Both variants and their verdicts.

    Raises
    ------
    LitmusError
        If it does not follow ``formats/LITMUS.md``; the message names file and line.
    """
    if len(text) > MAX_BYTES:
        raise LitmusError(
            f"{len(text)} characters",
            expected=f"at most {MAX_BYTES}",
            where=name,
            next_step="a litmus file is for tiny tapes; store larger ones as a tape",
        )
    return Litmus(read_lines(text.replace("\r\n", "\n"), name))


def split_variant(path: str | os.PathLike[str]) -> tuple[Path, str]:
    """Return the file and the variant of ``FILE.litmus``, ``FILE.litmus:fixed``, ``FILE.litmus+``."""
    text = os.fspath(path)
    for end, variant in ((":fixed", "fixed"), (":buggy", "buggy"), ("+", "fixed"), ("-", "buggy")):
        if text.endswith(".litmus" + end):
            return Path(text.removesuffix(end)), variant
    return Path(text), "buggy"


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a litmus file of either notation.

    Raises
    ------
    MissingInput
        If the file cannot be read.
    LitmusError
        If it is not UTF-8 text.
    """
    file = Path(path)
    try:
        with file.open("rb") as f:
            data = f.read(MAX_BYTES + 1)
    except (OSError, ValueError) as e:
        raise cannot_read(file, e, "a litmus file") from None
    try:
        return data.decode()
    except UnicodeDecodeError as e:
        raise LitmusError(
            f"byte {e.start} is not UTF-8",
            expected="a text file",
            where=str(file),
            next_step="check that this is a litmus file",
        ) from None


def read(path: str | os.PathLike[str]) -> Litmus:
    """Read and parse a litmus file, both variants.

    Raises
    ------
    MissingInput
        If the file cannot be read.
    LitmusError
        If it is not UTF-8 text in the notation, or too large.
    """
    return parse(read_text(path), name=str(Path(path)))


def load(path: str | os.PathLike[str]) -> Tape:
    """Return the tape of a litmus file.

    Parameters
    ----------
    path : path
        ``FILE.litmus`` is the buggy variant; ``FILE.litmus:fixed`` or ``FILE.litmus+`` the fixed one.
    """
    file, variant = split_variant(path)
    return read(file).tape(variant)
