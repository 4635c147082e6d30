"""How long a campaign goes on: seconds, or runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...formats.errors import UsageError

__all__ = ["Budget", "budget_of"]

_FORM = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,3})?)\s*(s|m|min|h|runs?|)\s*")
_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget; one of the two is None.

    Attributes
    ----------
    seconds : float or None
    runs : int or None
    """

    seconds: float | None = 60.0
    runs: int | None = None

    def text(self) -> str:
        """Return it as `budget_of` takes it."""
        return f"{self.seconds:g}s" if self.seconds is not None else f"{self.runs} runs"

    def spent(self, runs: int, seconds: float) -> tuple[int, int]:
        """Return how much of it is used up, and all of it: both in runs, or both in seconds."""
        if self.seconds is not None:
            total = max(1, round(self.seconds))
            return min(int(seconds), total), total
        total = self.runs or 1
        return min(runs, total), total


def budget_of(text: str) -> Budget:
    """Return the budget of ``60s``, ``5m``, ``1h``, ``500 runs`` or ``500``.

    Raises
    ------
    UsageError
        It is none.
    """
    match = _FORM.fullmatch(text)
    if match is None or float(match[1]) <= 0:
        raise UsageError(
            f"--budget {text}",
            expected="60s, 5m or '500 runs'",
            next_step="say --budget 60s, or leave it out",
        )
    if match[2] in _SECONDS:
        return Budget(float(match[1]) * _SECONDS[match[2]])
    if "." in match[1]:
        raise UsageError(
            f"--budget {text}", expected="a whole number of runs", next_step="say --budget '500 runs'"
        )
    return Budget(None, int(match[1]))
