"""Read litmus text and files."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import LitmusError
from ..notation import check_length, read_text
from ..sequence.parse import is_sequence
from ..shown import quoted
from ..tape import Tape
from .lines import read_lines
from .model import Litmus

__all__ = ["load", "parse", "read", "split_variant"]


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
    check_length(text, name)
    if is_sequence(text):
        raise LitmusError(
            "a sequence of a request scheduler",
            expected="a tape of device ops",
            where=name,
            next_step=f"see what it holds with: tapedelay info {quoted(name)}",
        )
    return Litmus(read_lines(text.replace("\r\n", "\n"), name))


def split_variant(path: str | os.PathLike[str]) -> tuple[Path, str]:
    """Return the file and the variant of ``FILE.litmus``, ``FILE.litmus:fixed``, ``FILE.litmus+``."""
    text = os.fspath(path)
    for end, variant in ((":fixed", "fixed"), (":buggy", "buggy"), ("+", "fixed"), ("-", "buggy")):
        if text.endswith(".litmus" + end):
            return Path(text.removesuffix(end)), variant
    return Path(text), "buggy"


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
