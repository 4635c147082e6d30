"""Read ``seq`` litmus text and files."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..notation import MAX_ACCESSES, MAX_LINE, MAX_LINES, Spot, check_length, read_text, shown
from .commands import VERBS, Command, problem
from .driven import DRIVE_WORDS, DriveLines
from .model import VARIANTS, Row, Sequence
from .verdicts import VERDICT, Claim, parse_claims

__all__ = ["is_sequence", "is_sequence_file", "parse", "read"]

_NOTE = re.compile(r"#\s*([a-z][a-z -]{0,20}):\s*(.*)")
_ROW = re.compile(r"(?P<sign>[-+]?)\s*(?P<verb>[A-Za-z_]+)(?:\s+(?P<rest>.*))?")
_COMMENT = re.compile(r"(?:^|\s)#\s*")


@dataclass(frozen=True, slots=True)
class _VerdictLine:
    spot: Spot
    fixed: bool
    kind: str
    text: str


def is_sequence(text: str) -> bool:
    """Whether the first line of a litmus text that is neither blank nor a comment is ``seq``."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        line = text[start : min(end, start + MAX_LINE)].strip()
        if line and not line.startswith("#"):
            return _cut(line)[0] == "seq"
        start = end + 1
    return False


def is_sequence_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a ``seq`` litmus file; False as well where it cannot be read."""
    try:
        return is_sequence(read_text(path))
    except InputError:
        return False


def read(path: str | os.PathLike[str]) -> Sequence:
    """Read and parse a ``seq`` litmus file, both variants.

    Raises
    ------
    MissingInput
        If the file cannot be read.
    LitmusError
        If it is not UTF-8 text in the notation, or too large.
    """
    return parse(read_text(path), name=str(Path(path)))


def parse(text: str, *, name: str = "sequence") -> Sequence:
    """Parse ``seq`` litmus text.

    Parameters
    ----------
    text : str
        The text.
    name : str
        File name for messages.

    Returns
    -------
    Sequence
        Both variants and what they must show.

    Raises
    ------
    LitmusError
        If it does not follow ``formats/LITMUS.md``; the message names file and line.
    """
    check_length(text, name)
    return _Reader(name).read(text.replace("\r\n", "\n"))


class _Reader:
    """Reads the lines of one file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[Row] = []
        self.verdicts: list[_VerdictLine] = []
        self.notes: dict[str, str] = {}
        self.drive = DriveLines()
        self.words = 0
        self.begun = False

    def read(self, text: str) -> Sequence:
        lines = text.split("\n", MAX_LINES)
        if len(lines) > MAX_LINES:
            raise Spot(self.name, MAX_LINES).error(
                "more lines",
                f"at most {MAX_LINES} lines",
                "a litmus file is for small cases; store larger ones as a tape",
            )
        for number, raw in enumerate(lines, 1):
            spot = Spot(self.name, number)
            if len(raw) > MAX_LINE:
                raise spot.error(f"a line of {len(raw)} characters", f"at most {MAX_LINE}")
            self._line(spot, raw.strip())
        if not self.begun:
            raise Spot(self.name, 1).error("no line `seq`", "`seq` before the first command")
        made = Sequence(Path(self.name).name, tuple(self.rows), {}, self.notes, self.drive.drive())
        return Sequence(made.name, made.rows, self._claims(made), made.notes, made.drive)

    def _line(self, spot: Spot, line: str) -> None:
        if not line:
            return
        if line.startswith("#"):
            if note := _NOTE.fullmatch(line):
                self.notes.setdefault(note[1], note[2].strip())
            return
        if not self.begun:
            if _cut(line)[0] != "seq":
                raise spot.error(f"line {shown(line)}", "`seq` before the first command")
            self.begun = True
        elif line.startswith(">"):
            self.drive.input(spot, _cut(line[1:])[0], len(self.rows))
        elif m := VERDICT.fullmatch(_cut(line)[0]):
            self.verdicts.append(_VerdictLine(spot, m["fixed"] is not None, m["kind"], m["text"] or ""))
        else:
            self._row(spot, line)

    def _row(self, spot: Spot, line: str) -> None:
        m = _ROW.fullmatch(line)
        if m is None:
            raise spot.error(
                f"line {shown(line)}", "a command, `> INPUT`, `violates: I2@4`, `clean` or a comment"
            )
        verb, rest = m["verb"], (m["rest"] or "").strip()
        if verb in DRIVE_WORDS:
            if m["sign"]:
                raise spot.error(f"{verb} marked {m['sign']}", f"{verb}, which holds for both variants")
            self.drive.head(spot, verb, rest if verb == "config" else _cut(rest)[0])
            return
        if verb == "note":  # its text may hold any character
            command, comment = Command(verb, (rest,) if rest else ()), ""
        else:
            body, comment = _cut(rest)
            command = Command(verb, tuple(body.split()))
        wrong = problem(verb, command.args)
        if wrong is not None:
            words = ", ".join((*VERBS, *DRIVE_WORDS))
            raise spot.error(wrong[0], wrong[1] if verb in VERBS else f"one of {words}")
        self.words += len(command.args)
        if self.words > MAX_ACCESSES:
            raise spot.error("more arguments", f"at most {MAX_ACCESSES} in one file")
        self.rows.append(Row(command, m["sign"], comment))

    def _claims(self, made: Sequence) -> dict[str, tuple[Claim, ...] | None]:
        for v in self.verdicts:
            if v.fixed and not made.has_variants:
                raise v.spot.error("`fixed:` in a file without variants", "commands marked `-` or `+`")
        out: dict[str, tuple[Claim, ...] | None] = {}
        for variant in VARIANTS:
            own = [v for v in self.verdicts if v.fixed == (variant == "fixed" and made.has_variants)]
            if len(own) > 1 and any(v.kind == "clean" for v in own):
                raise own[-1].spot.error("`clean` beside other verdicts", "either of them")
            count = len(made.commands(variant))
            claims: set[Claim] = set()
            for v in own:
                for claim in parse_claims(v.spot, v.kind, v.text, count):
                    if claim in claims:
                        raise v.spot.error(f"{claim.text()} twice", "each claim once")
                    claims.add(claim)
            said = bool(own) or (variant == "fixed" and bool(self.verdicts))
            out[variant] = tuple(sorted(claims)) if said else None
        return out


def _cut(text: str) -> tuple[str, str]:
    """Return what stands before a comment, and the comment."""
    m = _COMMENT.search(text)
    return (text.strip(), "") if m is None else (text[: m.start()].strip(), text[m.end() :].strip())
