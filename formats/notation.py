"""What the notations of litmus files have in common: names, numbers, quoted strings, options, bounds."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from .disk import cannot_read, open_regular
from .errors import LitmusError

__all__ = [
    "LABEL",
    "MAX_ACCESSES",
    "MAX_BYTES",
    "MAX_LINE",
    "MAX_LINES",
    "NAME",
    "Options",
    "Spot",
    "check_length",
    "integer",
    "json_value",
    "options",
    "quote",
    "read_text",
    "shown",
    "split",
    "string",
]

MAX_BYTES = 8 << 20
MAX_LINES = 60_000
MAX_LINE = 65_536
MAX_ACCESSES = 200_000
"""Bounds on what is read, so that hostile text costs little time and memory."""

NAME = r"[A-Za-z0-9_][A-Za-z0-9_./+-]*"
"""What a name looks like that is written without quotes."""
LABEL = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
"""What a row's label looks like."""

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_STRING = r'"(?:[^"\\]|\\.)*"'
_OPTION = re.compile(rf"([a-z_]+)=({_STRING}|[^\s\"]*)|({_STRING}|[^\s\"=]+)")
_CUTS = {sep: re.compile(rf"{_STRING}|\"|{re.escape(sep)}") for sep in "|,;"}
_SPACE = re.compile(r"\s+")


def shown(text: str) -> str:
    """Return text quoted and cut to a length that suits a message."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def check_length(text: str, name: str) -> None:
    """Refuse a text that is longer than a litmus file may be.

    Raises
    ------
    LitmusError
        It is.
    """
    if len(text) > MAX_BYTES:
        raise LitmusError(
            f"{len(text)} characters",
            expected=f"at most {MAX_BYTES}",
            where=name,
            next_step="a litmus file is for tiny tapes; store larger ones as a tape",
        )


@dataclass(frozen=True)
class Spot:
    """A line of a file, for messages."""

    name: str
    line: int

    def error(self, found: str, expected: str, next_step: str = "") -> LitmusError:
        """Return the error that names this line."""
        return LitmusError(
            found,
            expected=expected,
            where=f"{self.name}:{self.line}",
            next_step=next_step or "correct this line; formats/LITMUS.md describes the notation",
        )


@dataclass(frozen=True)
class Options:
    """The words of a line (``args``) and its ``key=value`` parts (None: written as ``-``, null)."""

    args: tuple[str, ...]
    values: dict[str, str | None]


def integer(spot: Spot, text: str | None, what: str, *, bits: int = 64, low: int | None = None) -> int:
    """Return a decimal number that fits a column."""
    if text is None or not _INTEGER.fullmatch(text):
        raise spot.error(f"{what} {shown(text or '-')}", "a whole number")
    value = int(text)
    least = -(1 << (bits - 1)) if low is None else low
    if not least <= value < 1 << (bits - 1):
        raise spot.error(f"{what} {text}", f"a number from {least} to {(1 << (bits - 1)) - 1}")
    return value


def string(spot: Spot, text: str) -> str:
    """Return the meaning of a quoted string, or the word itself."""
    if not text.startswith('"'):
        return text
    try:
        value = json.loads(text)
        value.encode()
    except (ValueError, AttributeError):
        raise spot.error(f"string {shown(text)}", "a JSON string") from None
    return str(value)


def json_value(spot: Spot, text: str, what: str) -> object:
    """Return the value of a piece of JSON."""
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise spot.error(f"{what} {shown(text)}", "JSON on one line") from None
    return value


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
        with open_regular(file) as f:
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


def quote(text: str) -> str:
    """Return a word as it is if it looks like a name, else as a quoted string."""
    return text if re.fullmatch(NAME, text) else json.dumps(text)


def split(spot: Spot, text: str, sep: str) -> list[str]:
    """Cut text at a separator outside of quotes; the parts are stripped."""
    if '"' not in text:
        return [p.strip() for p in text.split(sep)]
    parts, start = [], 0
    for m in _CUTS[sep].finditer(text):
        if m.group() == '"':
            raise spot.error(f"open quote in {shown(text[m.start() :])}", "a closing quote on the same line")
        if m.group() == sep:
            parts.append(text[start : m.start()].strip())
            start = m.end()
    parts.append(text[start:].strip())
    return parts


def options(spot: Spot, text: str) -> Options:
    """Read words and ``key=value`` parts."""
    args: list[str] = []
    values: dict[str, str | None] = {}
    pos = 0
    while True:
        space = _SPACE.match(text, pos)
        pos = space.end() if space else pos
        if pos == len(text):
            return Options(tuple(args), values)
        m = _OPTION.match(text, pos)
        if m is None or (m.end() < len(text) and not text[m.end()].isspace()):
            raise spot.error(shown(text[pos:]), "words and key=value parts, separated by spaces")
        pos = m.end()
        if m[1] is None:
            args.append(string(spot, m[3]))
        elif m[1] in values:
            raise spot.error(f"a second {m[1]}=", "each key once")
        elif not m[2]:
            raise spot.error(f"{m[1]}= without a value", f"{m[1]}=VALUE, or {m[1]}=- for none")
        else:
            values[m[1]] = None if m[2] == "-" else string(spot, m[2])
