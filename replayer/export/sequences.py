"""What a request scheduler did, as a ``seq`` litmus file."""

from __future__ import annotations

from itertools import islice

from ...formats.errors import UsageError
from ...formats.notation import MAX_ACCESSES, MAX_LINES
from ...formats.requests.read import read_inputs, read_schedulers
from ...formats.sequence import Claim, Sequence, print_sequence
from ...formats.tape import Tape
from ..check.schedulers import manners_of
from ..sequence import judge
from ..sequence.story import commands_of

__all__ = ["has_only_schedulers", "sequence_of"]

_MAX_COMMANDS = MAX_LINES - 100


def has_only_schedulers(tape: Tape) -> bool:
    """Return whether a tape tells of request schedulers and of no device op."""
    return tape.rows("schedulers") > 0 and tape.rows("ops") == 0


def sequence_of(tape: Tape) -> tuple[str, int]:
    """Return what the one scheduler of a tape did as text, with its verdict, and the number of commands.

    Raises
    ------
    UsageError
        There are several schedulers, or more commands than a file may hold.
    """
    schedulers = read_schedulers(tape)
    if len(schedulers) != 1:
        raise _unfit(f"{len(schedulers)} request schedulers", "one", tape)
    (scheduler,) = schedulers
    told = commands_of(
        scheduler, read_inputs(tape), manners=manners_of(scheduler), ended=tape.manifest.complete
    )
    commands = [seen.command for seen in islice(told, _MAX_COMMANDS + 1)]
    words = sum(len(c.args) for c in commands)
    if len(commands) > _MAX_COMMANDS or words > MAX_ACCESSES:
        raise _unfit(
            "a long recording", f"at most {_MAX_COMMANDS:,} commands of {MAX_ACCESSES:,} words", tape
        )
    claims: list[Claim] = [v.claim() for v in judge(commands)]
    notes = {"engine": f"{scheduler.engine} {scheduler.engine_version or ''}".strip()}
    return print_sequence(Sequence.of(commands, claims, name=tape.name, notes=notes)), len(commands)


def _unfit(found: str, expected: str, tape: Tape) -> UsageError:
    return UsageError(
        found,
        expected=expected,
        where=tape.where,
        next_step="see every row with: tapedelay info --dump",
    )
