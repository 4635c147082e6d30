"""Verdict lines: what a litmus file says about itself."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from ..notation import LABEL, Spot, shown, split

__all__ = ["HAZARDS", "LIFETIME_FAULTS", "VERDICTS", "Verdict", "parse_verdicts"]

HAZARDS = ("RAW", "WAR", "WAW")
LIFETIME_FAULTS = (
    "use-after-free",
    "free-in-flight",
    "use-before-alloc",
    "double-free",
    "destroy-pending",
    "use-after-destroy",
)
VERDICTS = ("race", "possible", "unknown", "lifetime", "deadlock", "clean")

_REF = rf"(?:{LABEL}|\.[0-9]+)"
_PAIR = re.compile(
    r"(?P<pair>\S+(?:\s+x\s+\S+)?)\s+(?P<hazard>[A-Za-z-]+)"
    r"(?:\s+(?P<what>[^\s\[\]]+)(?:\[(?P<begin>[0-9]{1,19}):(?P<end>[0-9]{1,19})\])?)?"
)


@dataclass(frozen=True)
class Verdict:
    """One claim of a verdict line.

    Attributes
    ----------
    kind : str
        ``race``, ``possible``, ``unknown``, ``lifetime``, ``deadlock`` or ``clean``.
    first, second : str
        Labels of the two ops, the earlier in reference order first; empty where nothing can be judged.
    hazard : str
        ``RAW``, ``WAR``, ``WAW`` or the lifetime fault.
    what : str
        Buffer (or event, for a destroyed one); empty where the line leaves it out.
    begin, end : int or None
        Bytes of the root buffer, where the line gives a range.
    labels : tuple of str
        The stuck ops of a deadlock, sorted.
    """

    kind: str
    first: str = ""
    second: str = ""
    hazard: str = ""
    what: str = ""
    begin: int | None = None
    end: int | None = None
    labels: tuple[str, ...] = ()

    def text(self) -> str:
        """Return the claim as it stands after ``kind:``."""
        if self.kind == "clean" or not (self.first or self.labels):
            return ""
        if self.kind == "deadlock":
            return ",".join(self.labels)
        where = self.what if self.begin is None else f"{self.what}[{self.begin}:{self.end}]"
        # labels may contain an x; spaces make the pair unambiguous then
        cross = " x " if "x" in self.first + self.second else "x"
        return f"{self.first}{cross}{self.second} {self.hazard} {where}".rstrip()


def _pair(spot: Spot, text: str, labels: Collection[str]) -> tuple[str, str]:
    spaced = re.fullmatch(rf"({_REF})\s+x\s+({_REF})", text)
    found = [(spaced[1], spaced[2])] if spaced else []
    for i, c in enumerate(text[:200]):
        if c == "x" and text[:i] in labels and text[i + 1 :] in labels:
            found.append((text[:i], text[i + 1 :]))
    if len(found) != 1 or not all(ref in labels for ref in found[0]):
        raise spot.error(
            f"pair {shown(text)}", "the labels of two rows of this variant, as `2x5`", "check the labels"
        )
    return found[0]


def parse_verdicts(spot: Spot, kind: str, text: str, labels: Collection[str]) -> list[Verdict]:
    """Read what stands after ``kind:``."""
    if kind == "clean":
        if text:
            raise spot.error(f"{shown(text)} after `clean`", "nothing")
        return [Verdict("clean")]
    if kind == "deadlock":
        names = split(spot, text, ",")
        for label in names:
            if label not in labels:
                raise spot.error(f"label {shown(label)}", "the label of a row of this variant")
        return [Verdict("deadlock", labels=tuple(sorted(set(names))))]
    if kind == "unknown" and not text:
        return [Verdict("unknown")]
    hazards = {"lifetime": LIFETIME_FAULTS, "race": HAZARDS}.get(kind, HAZARDS + LIFETIME_FAULTS)
    out = []
    for part in split(spot, text, ";"):
        m = _PAIR.fullmatch(part) if len(part) <= 4096 else None
        if m is None or m["hazard"] not in hazards:
            raise spot.error(
                f"verdict {shown(part)}", f"`2x5 {hazards[0]} M0[0:64]` with one of {', '.join(hazards)}"
            )
        first, second = _pair(spot, m["pair"], labels)
        begin = None if m["begin"] is None else int(m["begin"])
        end = None if m["end"] is None else int(m["end"])
        if begin is not None and end is not None and begin >= end:
            raise spot.error(f"range [{begin}:{end}]", "begin < end")
        out.append(Verdict(kind, first, second, m["hazard"], m["what"] or "", begin, end))
    return out
