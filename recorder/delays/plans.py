"""Which plans a running engine can follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...formats.delays import ENGINE_KINDS, LAST, Line, Plan, plan_of, print_line
from ...formats.errors import UsageError
from ...formats.shown import plural, quoted

__all__ = ["ENGINE_KINDS", "engine_plan", "followed_plan", "never"]


def engine_plan(arguments: Sequence[str | Plan], where: str = "--delays") -> Plan:
    """Return the plan of all arguments, all of whose lines an engine can follow; see `followed_plan`."""
    return followed_plan(arguments, where, leave_out=False)[0]


def followed_plan(arguments: Sequence[str | Plan], where: str, *, leave_out: bool) -> tuple[Plan, int]:
    """Return the plan of all arguments, each a file, an expression or a plan.

    Parameters
    ----------
    arguments : sequence of str or Plan
        What was given.
    where : str
        The option or parameter, for messages.
    leave_out : bool
        Leave out the lines that name what nobody can know while the engine runs.

    Returns
    -------
    tuple of Plan and int
        The plan, and how many lines were left out.

    Raises
    ------
    MissingInput, PlanError, VersionError
        One of them is no plan.
    UsageError
        A file or an expression has no delay; or a line names what nobody can know while the engine runs and
        is not to be left out, or nothing else is there.
    """
    plan = Plan()
    unknown = 0
    for argument in arguments:
        part = plan_of(argument) if isinstance(argument, str) else argument
        followed = tuple(line for line in part.lines if not _unknown(line))
        idle = len(part.lines) - len(followed)
        if idle and not (leave_out and followed):
            raise _cannot_follow(part, argument, where, idle)
        unknown += idle
        plan = plan + replace(part, lines=followed)
    return plan, unknown


def _unknown(line: Line) -> str:
    """Return why an engine cannot follow a line; empty if it can."""
    if isinstance(line.anchor, int):
        return "an op id means an op of one tape, not of a run"
    return "which op is the last one is not known before the end" if line.anchor.which == LAST else ""


def _cannot_follow(part: Plan, argument: str | Plan, where: str, count: int) -> UsageError:
    line = next(n for n in part.lines if _unknown(n))
    place = f"{part.name}:{line.number}" if line.number else part.name
    more = f" (and {plural(count - 1, 'line')} more)" * (count > 1)
    given = quoted(argument) if isinstance(argument, str) else "FILE"
    allow = "--allow-unmatched" if where.startswith("--") else "allow_unmatched=True"
    rest = f"; {allow} leaves such lines out" * (count < len(part.lines))
    return UsageError(
        f"`{print_line(line)}`{more}: {_unknown(line)}",
        expected="a pattern that counts, such as `17th copy on TAPE0`",
        where=place or where,
        next_step=f"`tapedelay replay TAPE --delays {given} --write-plan NEW`, with the tape that it is of, "
        f"writes such patterns where there are any{rest}",
    )


def never(kind: str, touching: bool) -> str:
    """Return why such a line can match nothing in an engine; empty if it can."""
    if kind != "op" and kind not in ENGINE_KINDS:
        return f"an engine issues no {kind}: {', '.join(ENGINE_KINDS)}"
    if touching and kind not in ("op", "compute"):
        return f"which tensors a {kind} touches is not known when it is issued; only a compute's are"
    return ""
