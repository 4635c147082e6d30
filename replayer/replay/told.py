"""A wrong read in words: which op, what it touched, what it saw, what it should have seen, who it reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..check.findings import Finding, OpView
from ..outcome import AT_END, Seen, WrongRead
from .facts import standing
from .names import Names

__all__ = ["Told", "chain_words", "span", "tell", "time_words"]

_PARTS = 4
_CHAIN = 12


@dataclass(frozen=True)
class Told:
    """A wrong read with the findings that it shows.

    Attributes
    ----------
    wrong : WrongRead
        The fact.
    op : OpView or None
        The reading op; None for the host at the end.
    buffer : str
        Name of the root buffer; empty for a destroyed object.
    text : str
        What happened, in one sentence.
    saw, expected : tuple of str
        Parts in words.
    findings : tuple of Finding
        What it shows; empty where `check` found nothing alike.
    """

    wrong: WrongRead
    op: OpView | None
    buffer: str
    text: str
    saw: tuple[str, ...]
    expected: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def accepted(self) -> bool:
        """Whether a baseline accepts all that it shows."""
        return standing(self.findings) == "accepted"

    @property
    def unknown(self) -> bool:
        """Whether something that was not seen may prevent it."""
        return standing(self.findings) == "unknown"

    def as_dict(self, names: Names) -> dict[str, Any]:
        """Return it for ``--json``."""
        w = self.wrong
        return {
            "kind": w.kind,
            "op": None if self.op is None else self.op.as_dict(),
            "at_end": w.row == AT_END,
            "buffer": self.buffer,
            "begin": w.begin,
            "end": w.end,
            "at_ns": w.at_ns,
            "derived": w.derived,
            "saw": [_part(s, names) for s in w.saw],
            "expected": [_part(s, names) for s in w.expected],
            "text": self.text,
            "accepted": self.accepted,
            "shows": [f.signature for f in self.findings],
        }


def tell(wrong: WrongRead, names: Names, findings: Sequence[Finding]) -> Told:
    """Return a wrong read in words."""
    op = None if wrong.row == AT_END else names.of(wrong.row, wrong.access)
    buffer = names.title(wrong.root) if wrong.root >= 0 else ""
    who = names.phrase(wrong.row, wrong.access)
    saw = tuple(_words(s, names, wrong.root) for s in wrong.saw[:_PARTS])
    expected = tuple(_words(s, names, wrong.root) for s in wrong.expected[:_PARTS])
    if wrong.kind == "destroyed":
        text = f"{who} used what was destroyed already"
        named = [f for f in findings if f.kind == "lifetime"]
        if named:
            text = f"{who} used `{named[0].buffer}`, which was destroyed already"
    elif wrong.kind == "freed":
        text = f"{who} touched `{buffer}` {span(wrong.begin, wrong.end)} outside of its life"
    else:
        text = f"{who} read `{buffer}` {span(wrong.begin, wrong.end)}"
        text += " while it was being written" if wrong.kind == "torn" else ""
    return Told(wrong, op, buffer, text, saw, expected, tuple(findings))


def span(begin: int, end: int) -> str:
    """Return a byte range in words."""
    return f"bytes {begin:,} to {end:,}"


def time_words(ns: int) -> str:
    """Return a time for people: three digits and a unit."""
    for unit, scale in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= scale:
            value = ns / scale
            return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"
    return f"{ns} ns"


def chain_words(chain: Sequence[int], names: Names) -> str:
    """Return how a wrong value went on, up to a read of the host."""
    labels = ["the host at the end" if r == AT_END else names.of(r).label for r in chain]
    if len(labels) > _CHAIN:
        labels = [*labels[: _CHAIN // 2], f"{len(labels) - _CHAIN} more", *labels[-_CHAIN // 2 :]]
    return " -> ".join(labels)


def _words(part: Seen, names: Names, root: int) -> str:
    where = span(part.begin, part.end)
    if part.state == "unknown":
        return f"{where}: what no op wrote"
    if part.writer < 0:
        return f"{where}: what was there before the first op" + (
            ", half overwritten" * (part.state == "torn")
        )
    who = names.writer(part.writer, root)
    if part.state == "torn":
        return f"{where}: what {who} had written of it so far"
    return f"{where}: what {who} wrote" + (" from something wrong" if part.state == "derived" else "")


def _part(part: Seen, names: Names) -> dict[str, Any]:
    return {
        "begin": part.begin,
        "end": part.end,
        "op": names.of(part.writer).op if part.writer >= 0 else None,
        "state": part.state,
    }
