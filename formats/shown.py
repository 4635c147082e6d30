"""Text that comes from elsewhere, as a terminal may show it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

__all__ = ["ordinal", "plural", "printable", "quoted"]


def printable(text: str) -> str:
    """Return text with control characters escaped: a name must not steer the terminal, nor begin a line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def quoted(path: str | Path) -> str:
    """Return a path as one word of a shell command, whatever bytes it is made of."""
    text = str(path)
    if text.isprintable():
        return shlex.quote(text)
    # $'...' is the only quotation that can name control characters and bytes that are no text
    words = (
        re.sub(r"([\\'])", r"\\\1", c)
        if c.isprintable()
        else "".join(f"\\x{b:02x}" for b in c.encode("utf-8", "surrogateescape"))
        for c in text
    )
    return f"$'{''.join(words)}'"


def plural(count: int, word: str, words: str = "") -> str:
    """Return ``1 race`` or ``1,423 races``."""
    return f"{count:,} {word if count == 1 else words or word + 's'}"


def ordinal(number: int) -> str:
    """Return ``1st``, ``2nd``, ``13th``, ``1,422nd``."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number // 10 % 10 != 1 else "th"
    return f"{number:,}{ending}"
