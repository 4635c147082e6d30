"""Verdict lines of a sequence: ``violates: I2@4, I7@8``, ``clean``, each also after ``fixed:``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..notation import Spot, shown
from .commands import INVARIANTS

__all__ = ["VERDICT", "Claim", "parse_claims"]

VERDICT = re.compile(r"(?P<fixed>fixed:\s*)?(?P<kind>violates|clean)(?::(?P<text>.*)|\s*)")
"""What a verdict line looks like."""

_CLAIM = re.compile(r"(I[0-9]{1,2})@([1-9][0-9]{0,6})")


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """One claim: an invariant breaks at a command.

    Attributes
    ----------
    at : int
        Number of the command in its variant, the first is 1.
    invariant : str
        One of `INVARIANTS`.
    """

    at: int
    invariant: str

    def text(self) -> str:
        """Return it as it stands in a file."""
        return f"{self.invariant}@{self.at}"


def parse_claims(spot: Spot, kind: str, text: str, commands: int) -> list[Claim]:
    """Read what stands after ``violates:`` (or ``clean``, which claims nothing).

    Parameters
    ----------
    spot : Spot
        The line.
    kind, text : str
        The word and what follows its colon.
    commands : int
        How many commands the variant has.

    Raises
    ------
    LitmusError
        A claim is no ``I2@4``, or names a command that is not there.
    """
    text = text.strip()
    if kind == "clean":
        if text:
            raise spot.error(f"{shown(text)} after `clean`", "nothing")
        return []
    out: list[Claim] = []
    for part in text.split(","):
        m = _CLAIM.fullmatch(part.strip())
        if m is None or m[1] not in INVARIANTS:
            raise spot.error(
                f"claim {shown(part.strip())}", "`I2@4`: an invariant from I1 to I10 and a command"
            )
        claim = Claim(int(m[2]), m[1])
        if claim.at > commands:
            raise spot.error(f"command {claim.at}", f"one of the {commands} commands of this variant")
        out.append(claim)
    return out
