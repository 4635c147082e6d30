"""``tapedelay record``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from ..formats.commands.common import FILE, printable, quoted, say, say_next
from ..formats.errors import UsageError
from ..formats.shown import plural
from .asked import Asked
from .companion import Companion
from .flight import parse_last
from .options import device_options, refuse_options
from .patience import patience
from .saving import Saver
from .session import Recording, collect_command, collect_spool, record_command
from .tap import Tap
from .telemetry import INTERVAL_MS, Telemetry

if TYPE_CHECKING:
    from .delays import AskedDelays, LineCount

__all__ = ["record"]

_USAGE = "tapedelay record -o run.tape [OPTIONS] -- COMMAND..."


@click.command(options_metavar="[OPTIONS] --", context_settings={"allow_interspersed_args": False})
@click.option("-o", "--output", required=True, type=FILE, help="The tape (.zip: one file).")
@device_options
@click.option("--sync", is_flag=True, help="Complete every command before its call returns (reference run).")
@click.option(
    "--engine", type=click.Choice(["ggml"]), default="ggml", show_default=True, help="Engine to record."
)
@click.option("--keep-spool", is_flag=True, help="Leave the raw recording beside the tape.")
@click.option(
    "--from-spool",
    type=FILE,
    help="Collect a raw recording that was kept; run nothing.",
)
@click.option(
    "--telemetry-ms",
    type=click.IntRange(10, 3_600_000),
    default=INTERVAL_MS,
    show_default=True,
    metavar="MS",
    help="Sample the GPUs' clocks, power and load so often (NVML).",
)
@click.option("--no-telemetry", is_flag=True, help="Sample nothing.")
@click.option(
    "--delays",
    "delays",
    multiple=True,
    metavar="FILE|EXPR",
    help="Hold ops up: a delay plan or an expression such as 'every copy on TAPE0 +1ms'; may be repeated.",
)
@click.option("--allow-unmatched", is_flag=True, help="A line of the plan that delays no op is no error.")
@click.option("--write-plan", type=FILE, metavar="FILE", help="Write the applied delays as an exact plan.")
@click.option(
    "--tap/--no-tap",
    default=False,
    show_default=True,
    help="Record the scheduler's own view, too: step, split, graphs (LD_PRELOAD).",
)
@click.option(
    "--last",
    metavar="N|TIME",
    multiple=True,
    help="Flight recorder: keep only the last N records, or the last 30s (ms, s, m, h).",
)
@click.option("--force", is_flag=True, help="Replace a tape that is there.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Say what came of it as JSON, after COMMAND's output: the last line.",
)
@click.option("--json-file", type=FILE, metavar="FILE", help="Write that JSON to a file.")
@click.argument("command", metavar="COMMAND...", nargs=-1, type=click.UNPROCESSED)
def record(
    output: Path,
    devices: int | None,
    profile: str,
    sync: bool,
    engine: str,
    keep_spool: bool,
    from_spool: Path | None,
    telemetry_ms: int,
    no_telemetry: bool,
    delays: tuple[str, ...],
    allow_unmatched: bool,
    write_plan: Path | None,
    tap: bool,
    last: tuple[str, ...],
    force: bool,
    as_json: bool,
    json_file: Path | None,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND and record the schedule of the engine in it.

    COMMAND needs no change: a Python program that imports xllamacpp or llama_cpp, or a program whose ggml
    honours GGML_BACKEND_PATH. Of vllm, deepinfer and transformers the request scheduler is recorded.
    Its output and exit code pass through, so with --json the JSON is the last line of stdout.

    SIGUSR1 to this command, or a call of tapedelay_save() in COMMAND, saves what was recorded so far beside
    the tape (NAME.1.tape, ...), while COMMAND goes on.

    \b
    Exit codes: that of COMMAND if it is not 0; else 0, or
    2 usage, or a line of the plan that delayed nothing, 3 bad spool or plan,
    4 no compute was recorded on the device asked for, and no request scheduler,
    5 the recording could not be written.
    """
    asked = Asked(devices, profile, sync)
    if str(output).startswith("-"):  # a forgotten name
        raise UsageError(
            f"the name of the tape is {str(output)!r}",
            expected=_USAGE,
            next_step="name the tape after -o",
        )
    refuse_options(command, _USAGE)
    if json_file is not None and (json_file.is_dir() or not json_file.absolute().parent.is_dir()):
        raise UsageError(
            "no file can be written there",
            expected="a file in a folder that is there",
            where=f"--json-file {json_file}",
        )
    if from_spool is not None and command:
        raise UsageError("a command and --from-spool", expected="one of them")
    if from_spool is None and not command:
        raise UsageError("no command", expected=_USAGE)
    if len(last) > 1:
        raise UsageError(
            " and ".join(f"--last {n}" for n in last),
            expected="one of them: records, or a time",
            next_step="leave one out",
        )
    if from_spool is not None:
        _refuse_for_spool()
    if write_plan is not None and os.path.abspath(write_plan) == os.path.abspath(output):
        raise UsageError(
            "the tape and the plan are one file", expected="two names", where=f"--write-plan {write_plan}"
        )
    if delays or write_plan is not None:
        asked = replace(
            asked, delays=_delays(delays, allow_unmatched, write_plan, force, from_spool is not None)
        )
    companions: list[Companion] = [] if no_telemetry else [Telemetry(telemetry_ms, newest=bool(last))]
    if tap:
        companions.append(Tap())
    if last:
        companions.append(parse_last(last[0]))
    companions.append(Saver())
    with patience() as signals:  # until everything is said
        if from_spool is not None:
            result = collect_spool(from_spool, output, asked, force=force)
        else:
            result = record_command(
                command,
                output,
                asked,
                signals=signals,
                force=force,
                keep_spool=keep_spool,
                companions=companions,
            )
        said = json.dumps(result.as_dict())
        if json_file is not None:
            _write(json_file, said)
        if as_json:
            click.echo(said)
        else:
            _say(result)
    sys.exit(result.exit_code)


def _held(result: Recording) -> str:
    """Return what a tape holds, in words."""
    held = f"{plural(result.ops, 'op')} on {plural(result.queues, 'queue')}"
    detail = [f"computes: {_counted(result.computes)}"] * bool(result.computes)
    if result.inputs:
        of = sorted(result.schedulers.items())
        whose = " and ".join(f"{plural(n, 'request scheduler')} of {name}" for name, n in of)
        inputs = f"{plural(result.inputs, 'input')} of {whose}"
        held = f"{held} and {inputs}" if result.ops else inputs
    return f"{held} in {result.output}" + f" ({'; '.join(detail)})" * bool(detail)


def _counted(by_name: dict[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in sorted(by_name.items()))


def _delays(
    delays: tuple[str, ...], allow_unmatched: bool, write_plan: Path | None, force: bool, of_spool: bool
) -> AskedDelays:
    from .delays import asked_delays  # what it needs is slow to import

    return asked_delays(
        delays, allow_unmatched=allow_unmatched, write_plan=write_plan, force=force, of_spool=of_spool
    )


_OF_RUNS = ("delays", "last", "tap", "sync", "profile", "telemetry_ms", "no_telemetry", "keep_spool")
"""Parameters that say how a program is to run and what becomes of its raw recording."""


def _refuse_for_spool() -> None:
    """Refuse what was given and has no effect on a program that ran long ago."""
    context = click.get_current_context()
    for name in _OF_RUNS:
        if context.params[name] and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(
                f"--{name.replace('_', '-')} and --from-spool",
                expected="one of them: a recording that ran is what it is",
                next_step="leave one out",
            )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as e:
        say(printable(f"tapedelay: cannot write {path}: {e.strerror}"))


def _say(result: Recording) -> None:
    def line(text: str) -> None:
        say(printable(f"tapedelay: {text}"))

    if result.written:
        line(_held(result))
        if result.dropped:
            line(f"these are the last ones; {result.dropped:,} older records were dropped")
        if not result.complete:
            line(
                f"the recording is not complete ({plural(result.lost, 'record')} lost)"
                if result.lost
                else "the recording is not complete"
            )
    if result.untapped:
        line(result.untapped)
    for text in _applied(result.delays or ()):
        line(text)
    for fault in result.faults:
        say(f"tapedelay: ERROR: {fault.text()}")
    if result.untold:
        line(result.ended)
    if result.written and not result.faults:
        say_next(f"tapedelay check {quoted(result.output)}")
    if result.spool is not None and result.written:
        line(f"the raw recording is {result.spool}, which this command collects again:")
        say_next(collect_command(result, result.spool))
    elif result.spool is not None and not any(str(result.spool) in f.next_step for f in result.faults):
        line(f"raw recording: {result.spool}")


_LINES_SHOWN = 20


def _applied(delays: Sequence[LineCount]) -> list[str]:
    """Return how often each line of the plan was applied, in words."""
    if len(delays) > _LINES_SHOWN:
        idle = sum(not d.count for d in delays)
        never = f", {idle:,} of them never" * bool(idle)
        return [f"{sum(d.count for d in delays):,} delays of {len(delays):,} lines applied{never}"]
    return [f"applied {plural(d.count, 'time')}: {d.text}" for d in delays]
