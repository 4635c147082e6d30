"""One call: run an engine program on synchronous devices and under a plan, and compare what it gives."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...formats.delays import Line, Plan, plan_of
from ...formats.errors import UsageError
from .compare import Compare, difference
from .program import program_of
from .results import EngineRun, EngineRuns, Setting
from .runner import run_program

__all__ = ["run_engine_twice"]

_MOST_DEVICES = 15
_MOST_SAID = 20
"""Lines of a plan on a command line; more go into a file."""


def run_engine_twice(
    program: str | Callable[..., Any] | Sequence[str],
    *,
    plan: str | Path | Sequence[str | Path],
    arguments: Sequence[Any] | Mapping[str, Any] = (),
    devices: int = 1,
    profile: str = "vulkan-like",
    env: Mapping[str, str | None] | None = None,
    repeat: int = 1,
    every: bool = False,
    pick: Callable[[Any], Any] | None = None,
    compare: Compare | None = None,
    allow_unmatched: bool = False,
    timeout_s: float = 300.0,
    folder: str | Path | None = None,
    beside: str | Path = ".",
) -> EngineRuns:
    """Run an engine program on synchronous test devices and under a plan, and compare what it gives.

    Each run is a process of its own under ``tapedelay record``, so each leaves a tape.

    Parameters
    ----------
    program : str, function or sequence of str
        A Python function that loads xllamacpp or llama_cpp by itself and returns what is compared: numbers,
        text, bytes, numpy arrays, and lists and dicts of them. The function itself, ``module:function`` or
        ``file.py:function``. Or a command, whose value is what it prints, or the file that it writes where
        one of its words holds ``{value}``.
    plan : str, Path, or several
        Delays: a plan file or an expression.
    arguments : sequence or mapping
        Of the function; JSON and paths.
    devices, profile : int, str
        Test devices, as of ``tapedelay record``.
    env : mapping of str to (str or None), optional
        Variables added to the environment of the program; None: taken out of it.
    repeat : int
        Runs under the plan. Seeds of random lines count up from run to run.
    every : bool
        Make all of them, also after one that differs or fails.
    pick : callable, optional
        Takes what the program gave, returns what is compared: of a command's output, say, the tokens.
    compare : callable, optional
        Takes the reference and another value. Returns True or None where they agree, False or words where
        not. By default they must be equal to the last bit.
    allow_unmatched : bool
        A line of the plan that never applies is no trouble.
    timeout_s : float
        Longest time of one run, with its recording.
    folder : str or Path, optional
        Where tapes, outputs and values go; a new temporary folder by default.
    beside : str or Path
        Folder from which relative names of program and plan files are looked up first; then the current one.

    Returns
    -------
    EngineRuns
        What came of it; `explain` puts it into words.

    Raises
    ------
    UsageError
        Program, arguments or options make no sense, or a function of the caller failed.
    InputError
        The plan is none.
    InfrastructureError
        The recorder could not be started.
    """
    if not 1 <= devices <= _MOST_DEVICES:
        raise UsageError(
            f"{devices} test devices", expected=f"1 to {_MOST_DEVICES}: only they have a synchronous mode"
        )
    if repeat < 1:
        raise UsageError(f"repeat {repeat}", expected="1 or more")
    if not timeout_s > 0:
        raise UsageError(f"timeout_s {timeout_s}", expected="seconds")
    plans = [_found(p, Path(beside)) for p in ([plan] if isinstance(plan, str | os.PathLike) else plan)]
    read = sum((plan_of(p) for p in plans), Plan())
    if not read.lines:
        raise UsageError("a plan without delays", expected="at least one line", where=", ".join(plans))
    source = program
    if isinstance(program, str):
        file, colon, name = program.rpartition(":")
        source = f"{_found(file, Path(beside))}{colon}{name}" if file.endswith(".py") else program
    chosen = program_of(source, arguments, Path())
    target = Path(tempfile.mkdtemp(prefix="tapedelay-") if folder is None else folder).absolute()
    target.mkdir(parents=True, exist_ok=True)
    setting = Setting(devices, profile, dict(env or {}), timeout_s, target)

    reference = run_program(chosen, setting, title="synchronous", pick=pick)
    result = EngineRuns(setting, reference)
    if reference.trouble:
        return result
    random = [line for line in read.lines if line.seed is not None]
    for n in range(repeat):
        result.runs.append(
            run_program(
                chosen,
                setting,
                title=f"run {n + 1}",
                plans=_seeded(plans, read, n, target) if random else plans,
                random=bool(random),
                allow_unmatched=allow_unmatched,
                pick=pick,
            )
        )
        run = result.runs[-1]
        result.differences.append("" if run.trouble else difference(reference.value, run.value, compare))
        if (result.differences[-1] or run.trouble) and not every:
            break
    if result.wrong:
        _settle(result, run_program(chosen, setting, title="synchronous again", pick=pick), compare)
    return result


def _settle(result: EngineRuns, again: EngineRun, compare: Compare | None) -> None:
    """Note whether the program itself is steady."""
    result.again = again
    if not again.trouble:
        both = "in the first synchronous run", "in the second"
        result.unsteady = difference(result.reference.value, again.value, compare, both)
    result.steady = not (again.trouble or result.unsteady)


def _found(name: str | Path, beside: Path) -> str:
    """Return the path of a file that lies in that folder; else the name as it is."""
    try:
        near = beside / name
        return str(near) if near.is_file() else str(name)
    except (OSError, ValueError):  # an expression that can be no name
        return str(name)


def _seeded(plans: list[str], read: Plan, n: int, folder: Path) -> list[str]:
    """Return the plans of the n-th run, whose seeds have counted up."""
    if n == 0:
        return plans
    from dataclasses import replace

    from ...formats.delays import print_line, print_plan

    def moved(line: Line) -> Line:
        return line if line.seed is None else replace(line, seed=(line.seed + n) % (1 << 64))

    lines = tuple(map(moved, read.lines))
    if len(lines) <= _MOST_SAID:
        return [print_line(line) for line in lines]
    path = folder / f"seeds-{n + 1}.delays"
    path.write_text(print_plan(replace(read, lines=lines)), encoding="utf-8")
    return [str(path)]
