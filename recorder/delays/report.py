"""What came of the lines of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...formats.errors import InfrastructureError, TapedelayError, UsageError

__all__ = ["LineCount", "delay_faults"]

_SHOWN = 8


@dataclass(frozen=True)
class LineCount:
    """How often a line of the plan was applied.

    Attributes
    ----------
    line : int
        Which delay of the plan, from 1; all ``--delays`` together are one plan.
    text : str
        The line.
    count : int
        Ops that it delayed, of all processes.
    missed : int
        Ops that it named and that could not be held up there.
    why : str
        Why it can match nothing in an engine; empty if it can.
    """

    line: int
    text: str
    count: int
    missed: int = 0
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return it for ``--json``."""
        return {"line": self.line, "text": self.text, "count": self.count, "missed": self.missed}

    def said(self) -> str:
        """Return what a report says of a line that was not applied."""
        if self.missed:
            what = f"named {self.missed} ops, none of which can be held up there"
        else:
            what = self.why or "never matched"
        return f"`{self.text}`: {what}"


def delay_faults(
    counts: Sequence[LineCount], processes: int, refused: int, *, allow_unmatched: bool, allow: str
) -> list[TapedelayError]:
    """Return what is wrong with how a plan was applied.

    Parameters
    ----------
    counts
        Of each line.
    processes, refused : int
        How many processes read the plan, and how many could not.
    allow_unmatched : bool
        A line that was applied nowhere is no fault.
    allow : str
        How the user allows that.
    """
    faults: list[TapedelayError] = []
    if refused or not processes:
        faults.append(
            InfrastructureError(
                f"{refused} of {processes + refused} processes could not read the plan and had no delays"
                if refused
                else "no process read the plan: it ran without delays",
                expected="the plan that record left for the plugin",
                next_step="record again; see what the plugin said above",
            )
        )
    elif not allow_unmatched and (idle := [c for c in counts if not c.count]):
        more = f"; and {len(idle) - _SHOWN} more lines" * (len(idle) > _SHOWN)
        faults.append(
            UsageError(
                f"{len(idle)} of {len(counts)} lines of the plan delayed no op: "
                + "; ".join(c.said() for c in idle[:_SHOWN])
                + more,
                expected="lines that name ops of this run",
                where="delays",
                next_step=f"correct them by the names of the recording, or add {allow}",
            )
        )
    return faults
