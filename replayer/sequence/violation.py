"""What a broken invariant says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...formats.sequence import INVARIANTS, Claim

__all__ = ["Violation"]


@dataclass(frozen=True, slots=True)
class Violation:
    """One invariant that one command breaks.

    Attributes
    ----------
    invariant : str
        ``I1`` .. ``I10``.
    at : int
        Number of the command, the first is 1.
    what : str
        The sort of mistake, in words without names: the same for the same mistake in a smaller case.
    words : str
        The mistake with its names: owner, unit, step.
    names : tuple of str
        The units, counters or requests that it is about, in the order of the command.
    """

    invariant: str
    at: int
    what: str
    words: str
    names: tuple[str, ...] = ()

    def claim(self) -> Claim:
        """Return it as a litmus file states it."""
        return Claim(self.at, self.invariant)

    def text(self) -> str:
        """Return one line."""
        return f"{self.invariant}@{self.at}: {self.words}"

    def as_dict(self) -> dict[str, Any]:
        """Return it for ``--json``."""
        return {
            "invariant": self.invariant,
            "says": INVARIANTS[self.invariant],
            "at": self.at,
            "what": self.what,
            "words": self.words,
            "names": list(self.names),
        }
