"""The command line: a static table of commands, imported when they are called.

This is the one file that names modules of all three packages, as strings. `main` turns every error of
`formats.errors` into a message and its exit code, so a command simply raises.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from .commands.common import say
from .errors import InfrastructureError, TapedelayError, UsageError
from .shown import printable

__all__ = ["COMMANDS", "Entry", "cli", "main", "run"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class Entry(NamedTuple):
    """Where a command lies, what it does, and the signal that it answers while it works."""

    module: str
    attribute: str
    help: str
    answers: signal.Signals | None = None


COMMANDS: dict[str, Entry] = {
    "record": Entry(
        "tapedelay.recorder.command",
        "record",
        "Run a program and record its schedule.",
        signal.SIGUSR1,
    ),
    "doctor": Entry(
        "tapedelay.recorder.doctor.command", "doctor", "Tell what can be recorded here, what not and why."
    ),
    "check": Entry(
        "tapedelay.replayer.check.command", "check", "Name the races and lifetime faults of a tape."
    ),
    "replay": Entry(
        "tapedelay.replayer.replay.command",
        "replay_command",
        "Run a tape again, with delays; judge every read.",
    ),
    "rerun": Entry(
        "tapedelay.replayer.rerun.command",
        "rerun_command",
        "Drive an engine's request scheduler again, the same and perturbed.",
    ),
    "info": Entry("tapedelay.formats.commands.info", "info", "Show, dump or validate a tape."),
    "export": Entry("tapedelay.replayer.export.command", "export", "Write a tape in another form."),
    "pack": Entry("tapedelay.formats.commands.pack", "pack", "Put a tape into one file."),
}


class _LazyGroup(click.Group):
    """Knows its commands' names and help without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(entry.module), entry.attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


def _show_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("tapedelay")
    except PackageNotFoundError:
        found = "of a source tree"
    click.echo(f"tapedelay {found}")
    ctx.exit()


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
def cli() -> None:
    """Record the schedule of an inference engine, name its races, and replay it with delays.

    \b
    Exit codes: 0 clean, 1 found, 2 usage, 3 bad input, 4 cannot judge, 5 infrastructure.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    words = list(arguments)
    if sys.stdout is None:
        return _report(_no_output("it is closed"), False)
    try:
        return _run(words)
    except BrokenPipeError:
        # the reader of our output left: not an error of ours, and no output is possible any more
        _give_up_output()
        return 141
    except OSError as e:
        # what files do is told by those who open them: this is our own output
        _give_up_output()
        return _report(_no_output(e.strerror or str(e)), False)


def _run(words: list[str]) -> int:
    ours = words[: words.index("--")] if "--" in words else words
    as_json = "--json" in ours
    output = sys.stdout
    try:
        result = cli.main(args=words, prog_name="tapedelay", standalone_mode=False)
        code = result if type(result) is int else 0
        sys.stdout.flush()
        return code
    except TapedelayError as e:
        return _report(e, as_json)
    except click.ClickException as e:
        if as_json:
            return _report(UsageError(e.format_message(), next_step="tapedelay --help"), True)
        _show_usage(e)
        return UsageError.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except SystemExit:
        if sys.stdout is not output:
            # click's own way of ending when the reader of our output left; its code would mean "found"
            return 141
        raise
    except BrokenPipeError:
        raise
    except OSError as e:
        if e.filename is None and e.errno in _FULL:
            raise
        return _unexpected(e, as_json)
    except MemoryError:
        return _report(
            InfrastructureError("not enough memory", next_step="use a machine with more, or a shorter tape"),
            as_json,
        )
    except Exception as e:
        return _unexpected(e, as_json)


def _no_output(reason: str) -> InfrastructureError:
    return InfrastructureError(
        f"cannot write: {reason}",
        expected="an output that takes what is printed",
        where="standard output",
        next_step="make space, or send the output elsewhere",
    )


def _give_up_output() -> None:
    """Let nothing more be written there, at exit neither."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(null, stream.fileno())
    os.close(null)


def _show_usage(error: click.ClickException) -> None:
    shown = io.StringIO()
    error.show(file=shown)
    for line in shown.getvalue().splitlines():
        say(printable(line))


def _unexpected(error: Exception, as_json: bool) -> int:
    if os.environ.get("TAPEDELAY_DEBUG"):
        raise error
    return _report(
        TapedelayError(
            f"internal error: {type(error).__name__}: {error}",
            next_step="please report it, with what TAPEDELAY_DEBUG=1 prints",
        ),
        as_json,
    )


def _report(error: TapedelayError, as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps(error.as_dict(), indent=1, ensure_ascii=True))
    else:
        say(f"error: {error.text()}")
    return error.exit_code


def main(arguments: Sequence[str] | None = None) -> Any:
    """Entry point of the ``tapedelay`` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names in a tape may hold what the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    words = sys.argv[1:] if arguments is None else arguments
    entry = COMMANDS.get(words[0]) if words else None
    if entry is not None and entry.answers is not None:
        # Until the command can answer, and when there is nothing to answer any more, it kills nothing.
        signal.pthread_sigmask(signal.SIG_BLOCK, {entry.answers})
    sys.exit(run(words))
