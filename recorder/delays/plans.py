"""Which plans a running engine can follow."""

from __future__ import annotations

from collections.abc import Sequence

from ...formats.delays import LAST, Plan, plan_of, print_line
from ...formats.errors import UsageError

__all__ = ["ENGINE_KINDS", "engine_plan", "never"]

ENGINE_KINDS = ("compute", "copy", "memset", "record", "wait", "sync", "alloc", "free", "destroy", "mark")
"""Kinds of ops that the recorder sees an engine issue, in the order of ``op_kind``."""


def engine_plan(arguments: Sequence[str | Plan], where: str = "--delays") -> Plan:
    """Return the plan of all arguments, each a file, an expression or a plan.

    Raises
    ------
    MissingInput, PlanError, VersionError
        One of them is no plan.
    UsageError
        A line names what nobody can know while the engine runs.
    """
    plan = Plan()
    for argument in arguments:
        part = plan_of(argument) if isinstance(argument, str) else argument
        for line in part.lines:
            place = f"{part.name}:{line.number}" if line.number else part.name
            if isinstance(line.anchor, int):
                raise UsageError(
                    f"`{print_line(line)}`: an op id means an op of one tape, not of a run",
                    expected="a pattern, such as `first copy on TAPE0`",
                    where=place or where,
                    next_step="use a pattern; `tapedelay replay TAPE --write-plan FILE` finds one on a tape",
                )
            if line.anchor.which == LAST:
                raise UsageError(
                    f"`{print_line(line)}`: which op is the last one is not known before the end",
                    expected="first, 2nd, 3rd, ... or every",
                    where=place or where,
                    next_step="use a pattern that counts, such as `17th copy on TAPE0`",
                )
        plan = plan + part
    return plan


def never(kind: str, touching: bool) -> str:
    """Return why such a line can match nothing in an engine; empty if it can."""
    if kind != "op" and kind not in ENGINE_KINDS:
        return f"an engine issues no {kind}: {', '.join(ENGINE_KINDS)}"
    if touching and kind not in ("op", "compute"):
        return f"which tensors a {kind} touches is not known when it is issued; only a compute's are"
    return ""
