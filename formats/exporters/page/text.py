"""Text from a tape inside of a page."""

from __future__ import annotations

import html

from ...shown import printable

__all__ = ["escaped", "shortened"]


def escaped(text: str) -> str:
    """Return text that cannot be taken for markup; control characters are spelled out."""
    return html.escape(printable(text), quote=True)


def shortened(text: str, length: int) -> str:
    """Return the beginning of a text that is longer."""
    return text if len(text) <= length else text[: length - 1] + "…"
