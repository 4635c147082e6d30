"""The commands of a sequence: what a request scheduler did, one fact each, in order."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["INVARIANTS", "VERBS", "Command"]

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
