"""``tapedelay doctor``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from ...formats.commands.common import FILE, json_option, print_json, printable, quoted, say, say_next
from ...formats.errors import CannotJudge, UsageError
from ..asked import Asked
from ..options import device_options, refuse_options
from ..patience import patience
from ..tap import Tap
from .engine import Examined, examine
from .finding import NO, OK, Finding
from .machine import look_at_machine

__all__ = ["doctor"]

_NEEDED = ("plugin", "place", "space", "mapping")
"""Without these nothing can be recorded, and the command is not tried."""


@click.command(options_metavar="[OPTIONS] [--]", context_settings={"allow_interspersed_args": False})
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 86_400),
    default=60,
    show_default=True,
    metavar="S",
    help="End COMMAND after so long; it need not come to its end.",
)
@device_options
@click.option(
    "--tap/--no-tap",
    default=True,
    show_default=True,
    help="Try what record --tap adds, the scheduler's view (LD_PRELOAD); record leaves it out by default.",
)
@click.option(
    "-o",
    "--output",
    type=FILE,
    default=".",
    show_default=True,
    metavar="FOLDER",
    help="Where tapes would go.",
)
@json_option
@click.argument("command", metavar="COMMAND...", nargs=-1, type=click.UNPROCESSED)
def doctor(
    seconds: float,
    devices: int | None,
    profile: str,
    tap: bool,
    output: Path,
    as_json: bool,
    command: tuple[str, ...],
) -> int:
    """Tell what can be recorded on this machine and of the engine in COMMAND, what cannot, why, what helps.

    COMMAND is run under the recorder, into a temporary folder, and ended after a while. With --json its
    stdout goes to stderr.

    \b
    Exit codes: 0 all can be recorded, 2 usage, 4 something cannot,
    5 the recording could not be written.
    """
    refuse_options(command, "tapedelay doctor [OPTIONS] -- COMMAND...")
    if not output.is_dir():
        raise UsageError("no such folder", where=f"-o {output}", next_step="name a folder that is there")
    machine = look_at_machine(output)
    if not as_json:
        _show("this machine", machine)
    engine: Examined | None = None
    tap = tap and any(f.code == "tap" and f.state == OK for f in machine)
    missing = any(f.state == NO and f.code in _NEEDED for f in machine)
    if command and not missing:
        with patience() as signals, _stdout_to_stderr(as_json):
            engine = examine(
                command,
                Asked(devices, profile),
                limit_s=seconds,
                folder=output.resolve(),
                signals=signals,
                companions=[Tap()] if tap else [],
            )
    findings = engine.findings if engine else []
    cannot = [f for f in (*machine, *findings) if f.state == NO]
    code = (engine.exit_code if engine else 0) or (CannotJudge.exit_code if cannot else 0)
    if as_json:
        print_json(
            {
                "machine": [f.as_dict() for f in machine],
                "command": list(command),
                "engine": [f.as_dict() for f in findings] if engine else None,
                "exit_code": code,
            }
        )
        return code
    if engine:
        _show("this engine", findings)
    elif command:
        say("the command was not tried: nothing could be recorded here")
    _conclude(command, cannot)
    return code


def _show(title: str, findings: Sequence[Finding]) -> None:
    click.echo(title)
    for f in findings:
        click.echo(printable(f"  {f.state:5}  {f.found}"))
        if f.remedy:
            click.echo(printable(f"         -> {f.remedy}"))
    sys.stdout.flush()


def _conclude(command: Sequence[str], cannot: Sequence[Finding]) -> None:
    words = " ".join(map(quoted, command))
    if cannot:
        again = f"tapedelay doctor -- {words}" if command else "tapedelay doctor"
        say_next(f"{cannot[0].remedy}; then: {again}")
    elif command:
        say_next(f"tapedelay record -o run.tape -- {words}")
    else:
        say_next("tapedelay doctor -- COMMAND")


@contextmanager
def _stdout_to_stderr(do: bool) -> Iterator[None]:
    """Let what a command prints not come between us and those who read our JSON."""
    if not do:
        yield
        return
    sys.stdout.flush()
    ours = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(ours, 1)
        os.close(ours)
