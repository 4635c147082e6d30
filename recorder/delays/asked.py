"""What the user wants delayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...formats.commands.common import say
from ...formats.delays import Plan
from ...formats.disk import check_output
from ...formats.errors import UsageError
from ...formats.shown import plural
from .plans import followed_plan

__all__ = ["AskedDelays", "asked_delays"]


@dataclass(frozen=True)
class AskedDelays:
    """Delays of a recording.

    Attributes
    ----------
    plan : Plan or None
        Of patterns that a running engine can follow, see `followed_plan`; None: what a raw recording has.
    allow_unmatched : bool
        A line that applied nowhere is no fault.
    write_plan : Path or None
        Where to write what was applied, as an exact plan.
    in_python : bool
        Asked by a call, not on a command line: messages name parameters, not options.
    left_out : int
        Lines that are not in `plan`: they name what nobody can know while the engine runs.
    """

    plan: Plan | None
    allow_unmatched: bool = False
    write_plan: Path | None = None
    in_python: bool = False
    left_out: int = 0

    @property
    def allow(self) -> str:
        """How the user allows that a line delays nothing."""
        return "allow_unmatched=True" if self.in_python else "--allow-unmatched"


def asked_delays(
    delays: Sequence[str | Plan],
    *,
    allow_unmatched: bool,
    write_plan: str | Path | None,
    force: bool = False,
    in_python: bool = False,
    of_spool: bool = False,
) -> AskedDelays:
    """Return what is asked for, refused before anything runs where it cannot be done.

    Parameters
    ----------
    delays : sequence of str or Plan
        Plan files, expressions, or plans.
    allow_unmatched : bool
        A line that applies nowhere is no fault; one that an engine cannot follow is left out.
    write_plan : str, Path or None
        Where to write what was applied.
    force : bool
        Replace a file that is there.
    in_python : bool
        Asked by a call, not on a command line.
    of_spool : bool
        Of a raw recording, which has the plan that it was made with.

    Raises
    ------
    MissingInput, PlanError, VersionError
        A plan is none.
    UsageError
        A line names what nobody can know while the engine runs, or the plan cannot be written, or there
        are no delays that could be.
    """
    if write_plan is not None and not delays and not of_spool:
        option = "write_plan" if in_python else "--write-plan"
        raise UsageError(
            f"{option} without delays",
            expected="delays: what is applied is written out",
            next_step="add delays=" if in_python else "add --delays",
        )
    target = None if write_plan is None else Path(write_plan).absolute()
    if target is not None:
        check_output(target, force=force)
        if not target.parent.is_dir():
            raise UsageError("its folder is not there", where=str(target), next_step="make the folder first")
    where = "delays" if in_python else "--delays"
    if not delays:
        return AskedDelays(None, allow_unmatched, target, in_python)
    plan, left_out = followed_plan(delays, where, leave_out=allow_unmatched)
    if left_out:
        lines = plural(left_out, "line")
        say(f"tapedelay: {lines} of the plan left out: an engine cannot follow op ids nor `last`")
    return AskedDelays(plan, allow_unmatched, target, in_python, left_out)
