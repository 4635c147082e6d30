"""Plans from files and from the command line."""

from __future__ import annotations

import os
from pathlib import Path

from ..disk import cannot_read, open_regular
from ..errors import PlanError, UsageError
from .parse import HEADER, parse_expression, parse_plan
from .plan import MAX_BYTES, VERSION, Plan

__all__ = ["plan_of", "read_plan"]

_EXPECTED = f"a delay plan, whose first line is `{HEADER} {VERSION}`"


def read_plan(path: str | Path) -> Plan:
    """Return the plan of a file.

    Raises
    ------
    MissingInput
        It cannot be read.
    PlanError
        It is no plan.
    VersionError
        Its version is another.
    """
    path = Path(path)
    try:
        with open_regular(path) as f:
            data = f.read(MAX_BYTES + 1)
    except (OSError, ValueError) as e:
        raise cannot_read(path, e, _EXPECTED) from None
    if len(data) > MAX_BYTES:
        raise PlanError(f"more than {MAX_BYTES:,} bytes", expected=_EXPECTED, where=str(path))
    try:
        text = data.decode()
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise PlanError("bytes that are no UTF-8", expected=_EXPECTED, where=f"{path}:{line}") from None
    return parse_plan(text, str(path))


def plan_of(argument: str) -> Plan:
    """Return the plan of a command-line argument: a file's, or an expression's.

    What names a file is that file. Else it is an expression where it holds a blank; where it does not, a
    missing file.

    Raises
    ------
    MissingInput, PlanError, VersionError
        It is no plan.
    UsageError
        It has no delay.
    """
    plan = _plan_of(argument)
    if plan.lines:
        return plan
    raise UsageError(
        "a plan without any delay",
        expected="a line such as `first copy on TAPE0 +3ms`",
        where=plan.name,
        next_step="write one: `tapedelay replay TAPE --search --write-plan FILE` finds it on a tape",
    )


def _plan_of(argument: str) -> Plan:
    try:
        is_there = os.path.lexists(argument)
    except ValueError:
        is_there = False
    if is_there or not any(c.isspace() for c in argument):
        return read_plan(argument)
    try:
        argument.encode()
    except UnicodeEncodeError:
        raise PlanError(
            "bytes that are no UTF-8", expected="a plan file, or a delay", where="--delays"
        ) from None
    return parse_expression(argument)
