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

__all__ = ["numbers", "sequence_of"]

_MAX_COMMANDS = MAX_LINES - 100


def numbers(tape: Tape) -> list[int]:
    """Return the numbers of the request schedulers of a tape."""
    return [int(n) for n in tape.columns("schedulers", ("scheduler",)).column(0).to_pylist()]


def sequence_of(tape: Tape, number: int | None = None) -> tuple[str, int]:
    """Return what a scheduler of a tape did as text, with its verdict, and the number of commands.

    Parameters
    ----------
    tape : Tape
    number : int, optional
        Which scheduler; where there is one alone it need not be said.

    Raises
    ------
    UsageError
        There are several schedulers or none of this number, or more commands than a file may hold.
    """
    schedulers = read_schedulers(tape)
    known = [s.scheduler for s in schedulers]
    if number is not None and number not in known:
        raise UsageError(
            f"--scheduler {number}",
            expected=f"one of {', '.join(map(str, known))}" if known else "a tape of request schedulers",
            where=tape.where,
            next_step="`tapedelay info` lists them",
        )
    if number is None and len(known) != 1:
        raise UsageError(
            f"{len(known)} request schedulers",
            expected="one",
            where=tape.where,
            next_step=f"say which: --scheduler {known[0]}" if known else "`tapedelay info` lists them",
        )
    (scheduler,) = (s for s in schedulers if number in (None, s.scheduler))
    inputs = read_inputs(tape, scheduler.scheduler)
    told = commands_of(scheduler, inputs, manners=manners_of(scheduler), ended=tape.manifest.complete)
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
