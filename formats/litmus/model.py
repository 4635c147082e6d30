"""A parsed litmus file."""

from __future__ import annotations

from pathlib import Path

from ..errors import UsageError
from ..tape import Tape
from .build import build
from .header import make_scene
from .lines import File
from .verdicts import Verdict, parse_verdicts

__all__ = ["VARIANTS", "Litmus"]

VARIANTS = ("buggy", "fixed")


class Litmus:
    """A litmus file: up to two variants of one tiny tape, and what each must show.

    Parameters
    ----------
    file : File
        Its lines.

    Attributes
    ----------
    name : str
        Name for messages.
    has_variants : bool
        Whether any row or edge is marked ``-`` or ``+``.
    notes : dict
        What the comments say as ``# key: value``, such as ``id`` and ``source``.

    Raises
    ------
    LitmusError
        If a name, a number or a verdict does not fit.
    """

    def __init__(self, file: File) -> None:
        self.name = Path(file.name).name
        self.notes = dict(file.notes)
        self.has_variants = any(r.sign for r in file.rows) or any(e.sign for e in file.edges)
        scene = make_scene(file)
        self._built = {"buggy": build(file, scene, "buggy")}
        self._built["fixed"] = build(file, scene, "fixed") if self.has_variants else self._built["buggy"]
        self._verdicts = {v: self._read_verdicts(file, v) for v in VARIANTS}

    def _read_verdicts(self, file: File, variant: str) -> tuple[Verdict, ...]:
        own = [v for v in file.verdicts if v.fixed == (variant == "fixed" and self.has_variants)]
        for v in file.verdicts:
            if v.fixed and not self.has_variants:
                raise v.spot.error("`fixed:` in a file without variants", "rows marked `-` or `+`")
        labels = self._built[variant][1]
        out = [x for v in own for x in parse_verdicts(v.spot, v.kind, v.text, labels)]
        if len(out) > 1 and any(x.kind == "clean" for x in out):
            raise own[-1].spot.error("`clean` beside other verdicts", "either of them")
        if not own and variant == "fixed" and file.verdicts:
            out = [Verdict("clean")]
        return tuple(out)

    def tape(self, variant: str = "buggy") -> Tape:
        """Return the tape of a variant (the same one twice where the file has no variants)."""
        return self._built[_checked(variant)][0]

    def labels(self, variant: str = "buggy") -> dict[str, int]:
        """Return the op id of each label."""
        return {k: v for k, v in self._built[_checked(variant)][1].items() if not k.startswith(".")}

    def verdicts(self, variant: str = "buggy") -> tuple[Verdict, ...]:
        """Return what the variant must show: empty if the file does not say, one ``clean`` if nothing."""
        return self._verdicts[_checked(variant)]


def _checked(variant: str) -> str:
    if variant not in VARIANTS:
        raise UsageError(
            f"variant {variant!r}", expected=" or ".join(VARIANTS), next_step="say buggy or fixed"
        )
    return variant
