"""``tapedelay rerun``: drive an engine's real request scheduler with a tape's inputs, the same and others."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ...formats.commands.common import (
    FILE,
    force_option,
    json_option,
    print_json,
    printable,
    quoted,
    say,
    say_next,
)
from ...formats.commands.progress import stages
from ...formats.disk import cannot_write, check_output, write_text
from ...formats.errors import UsageError
from ...formats.load import load_tape
from ...formats.sequence import is_sequence_file
from ...formats.shown import plural
from .api import TIMEOUT_S, Strict, rerun_case, rerun_strict, workers_of
from .asked import check_asked
from .budget import Budget, budget_of
from .campaign import PERTURBING, Campaign
from .from_tape import recording_of
from .outcome import Outcome
from .recipe import ACTIONS
from .render import campaign_dict, case_dict, render_campaign, render_case, render_strict, strict_dict
from .violation import Violation

__all__ = ["rerun_command"]

_CODES = {"clean": 0, "found": 1, "cannot judge": 4, "failed": 5}
_INTERRUPTED = 130
_OF_TAPES = ("scheduler", "only_strict", "only_perturbed")
_OF_CAMPAIGNS = ("budget", "seed", "jobs", "only", "plant", "write")
_PLAIN = re.compile(r"[^A-Za-z0-9]+")
_CASE = re.compile(r"[0-9]{3,}-.*\.litmus")
_MOST_NAME = 60
_MOST_JOBS = 256
_MOST_TIMEOUT_S = 86_400.0


@click.command("rerun")
@click.argument("tape", type=FILE)
@click.option(
    "--engine",
    metavar="NAME",
    help="vllm, deepinfer, transformers, MODULE:CLASS of an adapter; as recorded unless said.",
)
@click.option("--python", metavar="PATH", help="The interpreter that has the engine [default: this one].")
@click.option("--scheduler", type=int, metavar="N", help="Which of the tape's schedulers; `info` lists them.")
@click.option("--strict", "only_strict", is_flag=True, help="Only rerun as recorded, and compare everything.")
@click.option("--perturbed", "only_perturbed", is_flag=True, help="Only rerun perturbed.")
@click.option(
    "--budget", default="60s", metavar="TIME|RUNS", help="How long it goes on: 60s (default), 5m, '500 runs'."
)
@click.option(
    "--seed", type=int, default=0, metavar="N", help="Seed of the random runs, which follow the aimed ones."
)
@click.option("--jobs", type=int, default=1, metavar="N", help="Engine processes at once.")
@click.option(
    "--only",
    multiple=True,
    metavar="KIND",
    help=f"Insert only this; repeatable. One of {', '.join(ACTIONS)}.",
)
@click.option("--plant", metavar="FAULT", help="The fault that is planted to prove that one is found.")
@click.option("--write", type=FILE, metavar="DIR", help="Write each reduced case into DIR.")
@click.option(
    "--timeout",
    type=float,
    default=TIMEOUT_S,
    metavar="SECONDS",
    help="A call that takes longer hangs [default: 60].",
)
@force_option
@json_option
def rerun_command(
    tape: Path,
    engine: str | None,
    python: str | None,
    scheduler: int | None,
    only_strict: bool,
    only_perturbed: bool,
    budget: str,
    seed: int,
    jobs: int,
    only: tuple[str, ...],
    plant: str | None,
    write: Path | None,
    timeout: float,
    force: bool,
    as_json: bool,
) -> int:
    """Drive the engine's own request scheduler with what TAPE recorded; no device and no model are needed.

    First as recorded: every decision, unit and count is compared. Then perturbed: aborts and other inputs at
    other places, less memory, later outputs; each violation is reduced. TAPE may be a case that was written
    before (.litmus).

    \b
    Exit codes: 0 clean, 1 found or diverged, 2 usage, 3 bad input,
    4 cannot judge (no scheduler recorded, no engine, no planted fault found), 5 the engine's process failed,
    130 interrupted before anything was found.
    """
    if only_strict and only_perturbed:
        raise UsageError(
            "--strict and --perturbed", expected="one of them", next_step="leave both out for both"
        )
    if not 1 <= jobs <= _MOST_JOBS:
        raise UsageError(f"--jobs {jobs}", expected=f"1 to {_MOST_JOBS}", next_step="say --jobs 1")
    if not 0 < timeout <= _MOST_TIMEOUT_S:
        raise UsageError(
            f"--timeout {timeout:g}",
            expected=f"seconds, more than 0 and at most {_MOST_TIMEOUT_S:,.0f}",
            next_step=f"say --timeout {TIMEOUT_S:g}",
        )
    unknown = sorted(set(only) - set(ACTIONS))
    if unknown:
        raise UsageError(
            f"--only {unknown[0]}", expected=f"one of {', '.join(ACTIONS)}", next_step="say --only abort"
        )
    if python is not None and shutil.which(python) is None:
        raise UsageError(
            f"--python {quoted(python)}",
            expected="an interpreter, the one that has the engine",
            next_step="name its file, such as .venv/bin/python",
        )
    spent = budget_of(budget)
    if only_strict:
        _refuse(_OF_CAMPAIGNS, "--strict, which perturbs nothing")
    if tape.suffix == ".litmus" or is_sequence_file(tape):
        _refuse((*_OF_TAPES, *_OF_CAMPAIGNS), "a case, which is run once as it stands")
        return _case(tape, engine, python, timeout, as_json)
    asked = _Asked(
        tape, engine, python, scheduler, spent, seed, jobs, frozenset(only), plant, write, timeout, force
    )
    return _tape(asked, only_strict, only_perturbed, as_json)


def _refuse(options: tuple[str, ...], beside: str) -> None:
    """Refuse options that would be ignored.

    Raises
    ------
    UsageError
        One of them was given.
    """
    context = click.get_current_context()
    for name in options:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = "--" + name.removeprefix("only_")
            raise UsageError(
                f"{option} beside {beside}", expected="one of the two", next_step=f"leave {option} out"
            )


@dataclass(frozen=True, slots=True)
class _Asked:
    tape: Path
    engine: str | None
    python: str | None
    scheduler: int | None
    budget: Budget
    seed: int
    jobs: int
    only: frozenset[str]
    plant: str | None
    write: Path | None
    timeout_s: float
    force: bool

    def again(self, *more: str) -> str:
        """Return the command line once more, with other options."""
        words = ["tapedelay rerun", quoted(self.tape)]
        words += [f"--engine {quoted(self.engine)}"] if self.engine else []
        words += [f"--python {quoted(self.python)}"] if self.python else []
        words += [f"--scheduler {self.scheduler}"] if self.scheduler is not None else []
        return " ".join((*words, *more))


def _case(path: Path, engine: str | None, python: str | None, timeout_s: float, as_json: bool) -> int:
    with stages() as show:
        show(f"rerunning {path.name}", "", 0, None)
        case = rerun_case(path, engine=engine, python=python, timeout_s=timeout_s)
    code = 1 if case.violations else 4 if case.reason else 0
    if as_json:
        print_json({"file": str(path), **case_dict(case), "exit_code": code})
        return code
    for line in render_case(path.name, case):
        click.echo(printable(line))
    if case.violations:
        say_next(f"tapedelay check {quoted(path)}")
    return code


def _tape(asked: _Asked, only_strict: bool, only_perturbed: bool, as_json: bool) -> int:
    adapter = asked.engine if asked.engine is not None and ":" in asked.engine else None
    recorded = None if adapter else asked.engine
    with stages() as show:
        show(f"reading {asked.tape.name}", "", 0, None)
        recording = recording_of(load_tape(asked.tape), engine=recorded, scheduler=asked.scheduler)
    scenario = recording.scenario
    if adapter is None and not only_strict:
        check_asked(scenario, asked.only, asked.plant)
    make = workers_of(adapter or scenario.engine, python=asked.python, timeout_s=asked.timeout_s)
    name = asked.tape.name
    told: dict[str, Any] = {
        "tape": str(asked.tape),
        "engine": scenario.engine,
        "recorded_version": scenario.engine_version,
        "scheduler": recording.scheduler,
        "strict": None,
        "perturbed": None,
    }
    code = 0
    if asked.write is not None and not only_strict:
        _check_folder(
            asked.write, asked.force
        )  # what takes minutes is not lost to a place that takes nothing
    strict: Strict | None = None
    if not only_perturbed:
        with stages() as show:
            strict = rerun_strict(
                recording, make, progress=lambda doing: show(f"{name}: {doing}", "", 0, None)
            )
        told["strict"] = strict_dict(strict)
        told["version"] = strict.version
        code = 1 if strict.divergence is not None or strict.violations else 0
        if not as_json:
            for line in render_strict(name, strict, scenario.engine_version):
                click.echo(printable(line))
    out: Outcome | None = None
    files: dict[tuple[str, str], str] = {}
    if not only_strict and not code:
        out = _campaign(asked, Campaign(
            scenario, make, jobs=asked.jobs, seed=asked.seed, budget=asked.budget, only=asked.only,
            plant=asked.plant,
        ))  # fmt: skip
        files = _written(asked, out)
        told["perturbed"] = campaign_dict(out, files)
        told["version"] = out.version
        code = _INTERRUPTED if out.interrupted and not out.found else _CODES[out.verdict]
        if not as_json:
            for line in render_campaign(name, out, files):
                click.echo(printable(line))
    told["exit_code"] = code
    if as_json:
        print_json(told)
    else:
        _say_next(asked, strict, out, files)
    return code


def _campaign(asked: _Asked, campaign: Campaign) -> Outcome:
    with stages() as show:

        def told(doing: str, out: Outcome) -> None:
            more, done, total = "", 0, None
            if doing == PERTURBING:
                more = f", {plural(len(out.found), 'kind')} found" if out.found else ""
                done, total = asked.budget.spent(out.runs, out.seconds)
            show(f"{asked.tape.name}: {doing}", more, done, total)

        campaign.progress = told
        return campaign.run()


def _written(asked: _Asked, out: Outcome) -> dict[tuple[str, str], str]:
    """Write the reduced cases; return where each kind's is."""
    if asked.write is None:
        return {}
    files: dict[tuple[str, str], str] = {}
    cases = [f for f in out.found.values() if f.litmus]
    if cases:
        _make_folder(asked.write)
    for number, found in enumerate(cases, 1):
        violation = found.violation
        path = asked.write / f"{number:03}-{_name(violation)}.litmus"
        check_output(path, force=asked.force)
        write_text(path, found.litmus)
        files[violation.kind] = str(path)
    if len(cases) < len(out.found):
        say(f"{len(out.found) - len(cases)} of {len(out.found)} kinds have no reduced case")
    return files


def _name(violation: Violation) -> str:
    """Return a violation as a part of a file's name, cut at the end of a word."""
    words = _PLAIN.split(f"{violation.invariant} {violation.what}")
    name = ""
    for word in filter(None, words):
        longer = f"{name}-{word}" if name else word[:_MOST_NAME]
        if len(longer) > _MOST_NAME:
            break
        name = longer
    return name


def _check_folder(folder: Path, force: bool) -> None:
    """See that cases can be written there, without making the folder: perhaps there will be none."""
    wanted = folder.absolute()
    nearest = next(p for p in (wanted, *wanted.parents) if p.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
        there = sorted(p for p in nearest.iterdir() if _CASE.fullmatch(p.name)) if nearest == wanted else []
    except OSError as e:
        raise cannot_write(folder, e) from None
    for path in there[:1]:
        check_output(path, force=force)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise cannot_write(folder, e) from None


def _say_next(
    asked: _Asked, strict: Strict | None, out: Outcome | None, files: dict[tuple[str, str], str]
) -> None:
    if files:
        python = f" --python {quoted(asked.python)}" if asked.python else ""
        say_next(f"tapedelay rerun {quoted(next(iter(files.values())))}{python}")
    elif out is not None and (out.found or out.interrupted):
        same = [f"--seed {asked.seed}", f"--budget {quoted(asked.budget.text())}"]
        same += [f"--only {action}" for action in sorted(asked.only)]
        say_next(asked.again("--perturbed", *same, "--write cases"))
    elif out is not None:
        say_next(asked.again("--perturbed", f"--seed {asked.seed + 1}", "--budget 10m"))
    elif strict is not None and (strict.divergence is not None or strict.violations):
        say_next(asked.again("--perturbed"))
    else:
        say_next(asked.again())
