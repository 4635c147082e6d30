"""Print a sequence as ``seq`` litmus text."""

from __future__ import annotations

from ..errors import UsageError
from .commands import problem
from .model import Row, Sequence
from .verdicts import Claim

__all__ = ["print_sequence"]


def print_sequence(sequence: Sequence) -> str:
    """Return the text of a sequence; `parse` of it gives the same again.

    Raises
    ------
    UsageError
        A command has a name or number that the notation cannot hold.
    """
    out = [f"# {key}: {_line(text)}" for key, text in sequence.notes.items()]
    out.append("seq")
    drive = sequence.drive
    inputs: dict[int, list[str]] = {}
    if drive is not None:
        out += drive.head()
        for given in drive.inputs:
            inputs.setdefault(given.before, []).append(given.text())
    for i, row in enumerate(sequence.rows):
        out += inputs.get(i, ())
        out.append(_row(row))
    for i in sorted(inputs):
        if i >= len(sequence.rows):
            out += inputs[i]
    out += _verdicts(sequence)
    return "\n".join(out) + "\n"


def _row(row: Row) -> str:
    wrong = problem(row.command.verb, row.command.args)
    if wrong is not None:
        raise UsageError(f"a command that cannot be written: {wrong[0]}", expected=wrong[1])
    text = row.sign + row.command.text().rstrip()
    return text if not row.comment else f"{text}  # {_line(row.comment)}"


def _verdicts(sequence: Sequence) -> list[str]:
    out = _claims("", sequence.stated("buggy"))
    if sequence.has_variants:
        fixed = sequence.stated("fixed")
        if fixed is not None and (
            fixed or not out
        ):  # with a verdict for the buggy one, clean goes without saying
            out += _claims("fixed: ", fixed)
    return out


def _claims(prefix: str, claims: tuple[Claim, ...] | None) -> list[str]:
    if claims is None:
        return []
    return [f"{prefix}violates: {', '.join(c.text() for c in claims)}" if claims else f"{prefix}clean"]


def _line(text: str) -> str:
    return " ".join(text.split("\n")).strip()
