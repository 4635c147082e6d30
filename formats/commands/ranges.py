"""Ranges of op ids and of steps on the command line."""

from __future__ import annotations

import re

from ..errors import UsageError

__all__ = ["Range", "range_of"]

Range = tuple[int | None, int | None]
"""First and last; the last one is not included, and None is open."""

_ENDS = re.compile(r"([0-9]{0,18}):([0-9]{0,18})")


def range_of(option: str, text: str | None) -> Range | None:
    """Return the two ends of a range; either may be left out.

    Parameters
    ----------
    option : str
        The option that has it, for messages.
    text : str or None
        What was given.

    Raises
    ------
    UsageError
        It is no range, or nothing can be in it.
    """
    if text is None:
        return None
    m = _ENDS.fullmatch(text)
    if m is None or not (m[1] or m[2]):
        raise UsageError(
            f"{option} {text}",
            expected="FIRST:LAST, FIRST: or :LAST, LAST not included",
            next_step=f"say {option} 100:200",
        )
    begin, end = int(m[1]) if m[1] else None, int(m[2]) if m[2] else None
    if end is not None and (begin or 0) >= end:
        raise UsageError(
            f"{option} {text} holds nothing: LAST is not included",
            expected="FIRST:LAST with FIRST below LAST",
            next_step=f"say {option} {end}:{(begin or 0) + 1}",
        )
    return begin, end
