"""The commands of a sequence: what a request scheduler did, one fact each, in order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["INVARIANTS", "MAX_NUMBER", "NAME", "VERBS", "Command", "problem"]

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./:+-]{0,199}")
"""What the name of a request, unit, step, counter, mailbox, message or capacity looks like."""

MAX_NUMBER = (1 << 63) - 1

VERBS: dict[str, str] = {
    "arrive": "R",
    "schedule": "R",
    "preempt": "R",
    "resume": "R",
    "abort": "R",
    "finish": "R",
    "alloc": "R u...",
    "share": "R u...",
    "free": "R u...",
    "launch": "S R u...",
    "retire": "S",
    "inc": "counter n",
    "dec": "counter n",
    "put": "mailbox id",
    "get": "mailbox id",
    "emit": "R",
    "cap": "name n",
    "take": "name R",
    "give": "name R",
    "fill": "u...",
    "read": "u...",
    "note": "text",
    "pass": "",
    "progress": "",
    "idle": "",
}
"""Each verb and its arguments: R a request or owner, S a step or transfer in flight, u a unit of a pool."""

INVARIANTS: dict[str, str] = {
    "I1": "a unit has one owner (more only by sharing) and is freed once by each",
    "I2": "a unit is neither freed nor handed out while a step or transfer in flight uses it",
    "I3": "nothing is held when the scheduler is idle",
    "I4": "a step uses only what its request owns",
    "I5": "no three passes in a row without progress while work waits",
    "I6": "a message is read by the owner it was written for, and is not overwritten unread",
    "I7": "a counter is never negative",
    "I8": "nothing is shown after the abort",
    "I9": "a capacity is not exceeded",
    "I10": "no unit is read that was never filled since it was handed out",
}
"""The ten invariants, in words."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command.

    Attributes
    ----------
    verb : str
        One of `VERBS`.
    args : tuple of str
        Its arguments; of ``note`` one text.
    """

    verb: str
    args: tuple[str, ...] = ()

    def text(self) -> str:
        """Return it as a line of a litmus file."""
        return " ".join((self.verb, *self.args))


_NUMBER = re.compile(r"[0-9]{1,19}")


def problem(verb: str, args: Sequence[str]) -> tuple[str, str] | None:
    """Return what is wrong with a command: found, expected; None if it is well formed.

    Parameters
    ----------
    verb : str
        The verb as written.
    args : sequence of str
        Its arguments; of ``note`` at most one text on one line.
    """
    form = VERBS.get(verb)
    if form is None:
        return f"command {verb[:60]!r}", f"one of {', '.join(VERBS)}"
    if verb == "note":
        fits = len(args) <= 1 and not any("\n" in a or "\r" in a for a in args)
        return None if fits else ("a note of several lines", "one line of text")
    words = form.split()
    usage = f"{verb} {form}".rstrip()
    least = len(words) - (verb == "launch")  # a step may use no unit
    if len(args) < least or (len(args) > len(words) and not form.endswith("...")):
        return f"{verb} with {len(args)} argument{'' if len(args) == 1 else 's'}", usage
    for i, arg in enumerate(args):
        if words[min(i, len(words) - 1)] == "n":
            if _NUMBER.fullmatch(arg) is None or int(arg) > MAX_NUMBER:
                return f"number {arg[:60]!r}", f"{usage}, n from 0 to {MAX_NUMBER}"
        elif NAME.fullmatch(arg) is None:
            return (
                f"name {arg[:60]!r}",
                "letters, digits, `_`, `.`, `/`, `:`, `+`, `-`; at most 200 characters",
            )
    return None
