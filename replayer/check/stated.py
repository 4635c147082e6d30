"""What a litmus file says that `check` finds, against what it found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...formats.litmus import Verdict
from .findings import Finding, Report

__all__ = ["Stated", "compare", "matches"]


@dataclass(frozen=True)
class Stated:
    """The verdict lines of a file beside the findings; a baseline plays no part.

    Attributes
    ----------
    expected, found : tuple of str
        Verdict lines: those of the file, and those of the report.
    hold : bool
        Every claim of the file is a finding, and every finding a claim.
    """

    expected: tuple[str, ...]
    found: tuple[str, ...]
    hold: bool

    def text(self) -> str:
        """Return one line."""
        if self.hold:
            return "verdict lines: hold"
        return f"verdict lines: differ: expected {' | '.join(self.expected)}, found {' | '.join(self.found)}"

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison for ``--json``."""
        return {"hold": self.hold, "expected": list(self.expected), "found": list(self.found)}


def matches(verdict: Verdict, finding: Finding) -> bool:
    """Whether a finding is what a verdict line claims; what the line leaves out may be anything."""
    if verdict.kind != finding.verdict:
        return False
    if verdict.kind == "deadlock":
        return verdict.labels == tuple(sorted(finding.labels))
    return (
        (verdict.first, verdict.second, verdict.hazard) == (*finding.labels, finding.hazard)
        and verdict.what in ("", finding.buffer)
        and (verdict.begin is None or (verdict.begin, verdict.end) == (finding.begin, finding.end))
    )


def compare(verdicts: Iterable[Verdict], report: Report) -> Stated | None:
    """Return how a file's verdicts and a report agree; None where the file states none."""
    stated = tuple(verdicts)
    if not stated:
        return None
    claims = [v for v in stated if v.kind != "clean" and (v.first or v.labels)]
    found = report.verdict_lines()
    hold = len(claims) == len(report.findings) and all(
        sum(matches(c, f) for f in report.findings) == 1 for c in claims
    )
    if not claims:
        hold = found == ["clean" if stated[0].kind == "clean" else "unknown:"]
    return Stated(tuple(_lines(stated)), tuple(found), hold)


def _lines(verdicts: Iterable[Verdict]) -> list[str]:
    by_kind: dict[str, list[str]] = {}
    for v in verdicts:
        by_kind.setdefault(v.kind, []).append(v.text())
    return [
        kind if kind == "clean" else f"{kind}: {'; '.join(texts)}".rstrip() for kind, texts in by_kind.items()
    ]
