"""``tapedelay record``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from ..formats.errors import UsageError
from .launch import Asked, profile_names
from .session import Recording, collect_spool, record_command

__all__ = ["record"]


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="The tape (.zip: one file)."
)
@click.option(
    "--devices", type=click.IntRange(0, 15), help="Test devices [default: 0 where a GPU backend is, else 1]."
)
@click.option(
    "--profile",
    type=click.Choice(profile_names()),
    default="vulkan-like",
    show_default=True,
    help="How test devices behave.",
)
@click.option("--sync", is_flag=True, help="Complete every command before its call returns (reference run).")
@click.option(
    "--engine", type=click.Choice(["ggml"]), default="ggml", show_default=True, help="Engine to record."
)
@click.option("--keep-spool", is_flag=True, help="Leave the raw recording beside the tape.")
@click.option(
    "--from-spool",
    type=click.Path(path_type=Path),
    help="Collect a raw recording that was kept; run nothing.",
)
@click.option("--force", is_flag=True, help="Replace a tape that is there.")
@click.option("--json", "as_json", is_flag=True, help="Say what came of it as one line of JSON.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def record(
    output: Path,
    devices: int | None,
    profile: str,
    sync: bool,
    engine: str,
    keep_spool: bool,
    from_spool: Path | None,
    force: bool,
    as_json: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND and record the schedule of the engine in it.

    The command needs no change: a Python program that imports xllamacpp or llama_cpp, or a program whose ggml
    honours GGML_BACKEND_PATH. Its output and exit code pass through. If its exit code is 0: 4 if no compute
    was recorded on the device asked for, 5 if the recording could not be written.
    """
    asked = Asked(devices, profile, sync)
    if from_spool is not None:
        if command:
            raise UsageError("a command and --from-spool", expected="one of them")
        result = collect_spool(from_spool, output, asked, force=force)
    elif not command:
        raise UsageError("no command", expected="tapedelay record -o run.tape -- COMMAND...")
    else:
        result = record_command(list(command), output, asked, force=force, keep_spool=keep_spool)
    if as_json:
        click.echo(json.dumps(result.as_dict()))
    else:
        _say(result)
    sys.exit(result.exit_code)


def _say(result: Recording) -> None:
    def line(text: str) -> None:
        click.echo(f"tapedelay: {text}", err=True)

    if result.written:
        computes = ", ".join(f"{n} {name}" for name, n in sorted(result.computes.items()))
        line(
            f"{result.ops} ops on {result.queues} queues in {result.output}"
            + (f" (computes: {computes})" * bool(computes))
        )
        if not result.complete:
            line(
                f"the recording is not complete ({result.lost} records lost)"
                if result.lost
                else "the recording is not complete"
            )
    for fault in result.faults:
        line(f"ERROR: {fault.text()}")
    if result.command_code:
        line(f"the command ended with {result.command_code}")
    if result.spool is not None:
        line(f"raw recording: {result.spool}")
    if result.written and not result.faults:
        click.echo(f"next: tapedelay check {result.output}", err=True)
