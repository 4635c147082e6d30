"""One thing that was looked at."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["LIMIT", "NO", "OK", "Finding"]

OK = "ok"
"""It works, or is as it should be."""
LIMIT = "limit"
"""It is not there, and recordings are complete without it; what they then lack is said."""
NO = "no"
"""It cannot be recorded."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    code : str
        A word for programs.
    state : str
        `OK`, `LIMIT` or `NO`.
    found : str
        What was found, in one line.
    remedy : str
        What helps; empty where nothing is needed.
    """

    code: str
    state: str
    found: str
    remedy: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it for ``--json``."""
        return asdict(self)
