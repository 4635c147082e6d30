"""A parsed sequence: the commands of up to two variants, and what each must show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UsageError
from .commands import Command
from .driven import Drive
from .verdicts import Claim

__all__ = ["VARIANTS", "Row", "Sequence"]

VARIANTS = ("buggy", "fixed")


@dataclass(frozen=True, slots=True)
class Row:
    """One command of a file.

    Attributes
    ----------
    command : Command
    sign : str
        ``-``: only in the buggy variant; ``+``: only in the fixed one; empty: in both.
    comment : str
        What stands after ``#`` on its line.
    """

    command: Command
    sign: str = ""
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Sequence:
    """A ``seq`` litmus file.

    Attributes
    ----------
    name : str
        File name for messages.
    rows : tuple of Row
        Its commands, in file order.
    claims : mapping of str to (tuple of Claim or None)
        What each variant must show: an empty tuple is ``clean``, None says nothing.
    notes : mapping of str to str
        What the comments say as ``# key: value``, such as ``id`` and ``source``.
    drive : Drive or None
        How it was made, so that ``rerun`` can make it again.
    """

    name: str
    rows: tuple[Row, ...]
    claims: Mapping[str, tuple[Claim, ...] | None] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    drive: Drive | None = None

    @classmethod
    def of(
        cls,
        commands: Iterable[Command],
        claims: Iterable[Claim] | None = None,
        *,
        name: str = "sequence",
        notes: Mapping[str, str] | None = None,
        drive: Drive | None = None,
    ) -> Sequence:
        """Return a sequence of one variant.

        Parameters
        ----------
        commands : iterable of Command
        claims : iterable of Claim or None
            What it must show; an empty one says ``clean``, None says nothing.
        name : str
            File name for messages.
        notes : mapping of str to str
            Comments ``# key: value``.
        drive : Drive or None
            How it was made.
        """
        stated = None if claims is None else tuple(sorted(claims))
        rows = tuple(Row(c) for c in commands)
        return cls(Path(name).name, rows, dict.fromkeys(VARIANTS, stated), notes or {}, drive)

    @property
    def has_variants(self) -> bool:
        """Whether any row is marked ``-`` or ``+``."""
        return any(r.sign for r in self.rows)

    def commands(self, variant: str = "buggy") -> list[Command]:
        """Return the commands of a variant; number 1 of a verdict is the first."""
        dropped = "+" if _checked(variant) == "buggy" else "-"
        return [r.command for r in self.rows if r.sign != dropped]

    def stated(self, variant: str = "buggy") -> tuple[Claim, ...] | None:
        """Return what the variant must show, in order; None if the file does not say."""
        return self.claims.get(_checked(variant))


def _checked(variant: str) -> str:
    if variant not in VARIANTS:
        raise UsageError(
            f"variant {variant!r}", expected=" or ".join(VARIANTS), next_step="say buggy or fixed"
        )
    return variant
