"""`check` on what request schedulers did: ``seq`` litmus files, and how it looks in a report."""

from __future__ import annotations

from collections.abc import Iterable

from ...formats.sequence import Sequence
from ...formats.sequence.commands import INVARIANTS
from ...formats.shown import plural
from ..sequence.report import Kind, Seen, SequenceReport, report_on, signature
from .baseline import Baseline
from .findings import Report
from .stated import Stated

__all__ = ["headline", "judged_text", "kinds_text", "report_of", "stated_of"]

_WIDTH = 110


def report_of(sequence: Sequence, variant: str, baseline: Baseline | None = None) -> Report:
    """Return what one variant of a sequence breaks, and how that agrees with what the file states."""
    commands = sequence.commands(variant)
    accepts = baseline.accepts if baseline is not None else lambda signature: False
    judged = report_on(
        "", lambda: map(Seen, commands), accepts=accepts, limit=len(INVARIANTS) * len(commands)
    )
    report = Report(sequence.name, schedulers=[judged])
    report.stated = stated_of(sequence, variant, judged)
    if baseline is not None:
        report.stale = baseline.stale(k.signature for k in judged.kinds)
    return report


def stated_of(sequence: Sequence, variant: str, judged: SequenceReport) -> Stated | None:
    """Return how the verdict lines of a file and a report agree; None where the file states nothing."""
    claims = sequence.stated(variant)
    if claims is None:
        return None
    found = sorted(p.violation.claim() for p in judged.violations)
    expected = f"violates: {', '.join(c.text() for c in claims)}" if claims else "clean"
    return Stated((expected,), tuple(judged.verdict_lines()), found == list(claims))


def headline(schedulers: Iterable[SequenceReport]) -> str:
    """Return how many violations there are in how much."""
    judged = list(schedulers)
    text = plural(sum(s.found for s in judged), "violation")
    accepted = sum(k.count for s in judged for k in s.kinds if k.accepted)
    if accepted:
        text += f", {accepted} accepted"
    return f"{text} in {judged_text(judged)}"


def judged_text(judged: list[SequenceReport]) -> str:
    """Return how much was judged, in words."""
    if len(judged) == 1 and not judged[0].name:
        return plural(judged[0].commands, "command")
    parts = [plural(sum(getattr(s, w) or 0 for s in judged), w[:-1]) for w in ("requests", "steps")]
    whose = judged[0].name if len(judged) == 1 else plural(len(judged), "request scheduler")
    return f"{' and '.join(parts)} of {whose}"


def kinds_text(report: Report, *, show_all: bool) -> list[str]:
    """Return the violations as lines of text."""
    lines: list[str] = []
    for judged in report.schedulers:
        of = f" of {judged.name}" if len(report.schedulers) > 1 else ""
        for kind in judged.kinds:
            if kind.accepted and not show_all:
                continue
            lines += ["", *_kind(kind, of)]
            if show_all and kind.count > 1:
                same = [p for p in judged.violations if signature(p.violation) == kind.signature]
                lines += [f"    {p.where()}: {p.violation.words}" for p in same]
    accepted = [k for s in report.schedulers for k in s.kinds if k.accepted]
    if accepted and not show_all:
        lines += ["", "accepted by the baseline:"]
        lines += [f"  {k.signature}, {_times(k)}" for k in accepted]
    return lines


def _kind(kind: Kind, of: str) -> list[str]:
    first = kind.first
    invariant = first.violation.invariant
    times = _times(kind) + ("" if kind.count == 1 else ", first:")
    lines = [f"VIOLATION  {invariant}@{first.violation.at} {first.violation.what}{of}  {times}"]
    if kind.accepted:
        lines[0] += "  (accepted by the baseline)"
    lines.append(f"  {first.violation.words}")
    lines.append(f"  must hold: {INVARIANTS[invariant]}")
    if first.seen.input is not None:
        lines.append(f"  at {first.where()}")
    if kind.history:
        wide = len(f"{kind.history[-1][0]:,}")
        lines += [f"  {at:>{wide},}  {_cut(text)}" for at, text in kind.history]
    return lines


def _times(kind: Kind) -> str:
    return "once" if kind.count == 1 else f"{kind.count:,} times"


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."
