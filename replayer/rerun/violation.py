"""What a rerun finds: which invariant, what kind of break, and where. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["CRASH", "HANG", "RAISED", "Violation"]

RAISED, CRASH, HANG = "raised", "crash", "hang"
"""What stands in place of an invariant where the scheduler itself fell over or did not return."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation.

    Attributes
    ----------
    invariant : str
        ``I1`` .. ``I10``, or `RAISED`, `CRASH`, `HANG`.
    what : str
        What kind of break, in words without numbers: the same for the same fault at any size.
    words : str
        What happened, with owner, unit and step.
    at : int
        How many commands of the run had been made (the 1-based number of the one that shows it).
    call : int
        Index of the call that shows it, among `Run.calls`.
    """

    invariant: str
    what: str
    words: str
    at: int = 0
    call: int = 0

    @property
    def kind(self) -> tuple[str, str]:
        """What makes two violations the same: the invariant and the kind of break."""
        return self.invariant, self.what

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "invariant": self.invariant,
            "what": self.what,
            "words": self.words,
            "at": self.at,
            "call": self.call,
        }
