"""Run a program under ``tapedelay record``, in a process group of its own, for so long and no longer."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from ...formats.errors import (
    CannotJudge,
    InfrastructureError,
    InputError,
    TapedelayError,
    UsageError,
)
from ...formats.shown import quoted
from .program import Program, near
from .results import EngineRun, Setting
from .values import NotAValue, encode

__all__ = ["run_program"]

# Whatever this process can import the recorder can, whatever PYTHONPATH is set for the engine.
_ENTRY = (
    "import json, sys; sys.path += [p for p in json.loads(sys.argv.pop(1)) if p not in sys.path]; "
    "from tapedelay.formats.cli import main; main()"
)
_GRACE_S = 30.0
"""For the recording of a program that was stopped."""

_TAIL_BYTES = 8_000


def run_program(
    program: Program,
    setting: Setting,
    *,
    title: str,
    plans: Sequence[str] = (),
    random: bool = False,
    allow_unmatched: bool = False,
    pick: Any = None,
) -> EngineRun:
    """Run the program once and record it.

    Parameters
    ----------
    program : Program
        What to run.
    setting : Setting
        How.
    title : str
        Name of the run, and of its files.
    plans : sequence of str
        Delays, as `record` takes them; none: on synchronous devices.
    random : bool
        Whether one of them is random: its exact form is written out.
    allow_unmatched : bool
        Lines that never apply are no trouble.
    pick : callable, optional
        Takes what the program gave, returns what is compared.

    Raises
    ------
    UsageError
        The recorder refused what is asked for.
    InfrastructureError
        It could not be started, or could not work.
    """
    stem = setting.folder / title.replace(" ", "-")
    tape, value, told = stem.with_suffix(".tape"), stem.with_suffix(".value"), stem.with_suffix(".json")
    out, err, exact = stem.with_suffix(".out"), stem.with_suffix(".err"), stem.with_suffix(".delays")
    error = Path(f"{value}.error")
    for old in (value, told, exact, error):
        old.unlink(missing_ok=True)
    options = ["--force", "--devices", str(setting.devices), "--profile", setting.profile]
    for plan in plans:
        options += ["--delays", plan]
    if not plans:
        options.append("--sync")
    if plans and allow_unmatched:
        options.append("--allow-unmatched")
    words = ["-o", str(tape), *options, "--", *program.command(setting.folder, value)]
    # The folder may be gone by then: pytest keeps those of a few sessions.
    command = ["tapedelay", "record", "-o", "again.tape", *options, "--", *program.again(setting.folder)]
    if plans and random:
        words = ["--write-plan", str(exact), *words]
    start = time.monotonic()
    code, timed_out = _wait(["record", "--json-file", str(told), *words], setting, out, err)
    report = _report(told)
    if not report and not timed_out:
        _refused(code, _tail(err))
    run = EngineRun(
        title,
        tape=tape if report.get("tape") else None,
        plan=exact if exact.exists() else None,
        delays=report.get("delays") or (),
        seconds=time.monotonic() - start,
        command=command,
        said=_tail(err),
    )
    why = error.read_text(encoding="utf-8", errors="replace") if error.exists() else ""
    trouble, fault = _trouble(report, run, setting.timeout_s if timed_out else None, why)
    if not trouble:
        try:
            found = program.value(out, value)
            found = found if pick is None else pick(found)
            return replace(run, value=found, digest=_digest(found))
        except InfrastructureError as e:
            trouble, fault = "failed", e
    return replace(run, trouble=trouble, fault=fault)


def _digest(value: Any) -> str:
    """Return the digest of a value; of one that only the user's function can compare, of how it is shown."""
    try:
        data = encode(value)
    except NotAValue:
        data = repr(value).encode(errors="surrogatepass")
    return hashlib.sha256(data).hexdigest()


def _wait(words: list[str], setting: Setting, out: Path, err: Path) -> tuple[int, bool]:
    """Run our command line with these words; return its exit code and whether time was up."""
    env = {**os.environ, **{k: v for k, v in setting.env.items() if v is not None}}
    for name in [k for k, v in setting.env.items() if v is None]:
        env.pop(name, None)
    if "TAPEDELAY_SYNC" not in setting.env:  # which run is synchronous is said by --sync alone
        env.pop("TAPEDELAY_SYNC", None)
    path = json.dumps([os.path.abspath(p) for p in sys.path])
    try:
        with out.open("wb") as o, err.open("wb") as e:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", _ENTRY, path, *words],
                stdin=subprocess.DEVNULL,
                stdout=o,
                stderr=e,
                env=env,
                start_new_session=True,
            )
    except (OSError, ValueError) as error:
        raise InfrastructureError(
            f"the recorder cannot be started: {error}",
            where=str(setting.folder),
            next_step="see that the folder is there and that the machine has memory for one more process",
        ) from error
    try:
        try:
            return process.wait(setting.timeout_s), False
        except subprocess.TimeoutExpired:
            process.terminate()  # the recorder hands it on, and collects what was recorded so far
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_GRACE_S), True
        return -signal.SIGKILL, True
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # nothing of it stays, a grandchild neither
        process.wait()


def _report(told: Path) -> dict[str, Any]:
    try:
        report = json.loads(told.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return report if isinstance(report, dict) else {}


def _refused(code: int, said: str) -> NoReturn:
    """Raise what the recorder said when it ran nothing."""
    error = UsageError if code == UsageError.exit_code else InfrastructureError
    raise error(f"the recorder ended with {code}: {said.strip() or 'without a word'}")


def _tail(err: Path) -> str:
    """Return the end of what was written there."""
    try:
        with err.open("rb") as f:
            f.seek(max(0, f.seek(0, os.SEEK_END) - _TAIL_BYTES))
            data = f.read()
    except OSError:
        return ""
    lines = data.decode(errors="replace").strip().splitlines()
    return "\n".join(line for line in lines if not line.startswith("next: "))


def _trouble(
    report: dict[str, Any], run: EngineRun, timeout_s: float | None, why: str
) -> tuple[str, TapedelayError | None]:
    """Return what went wrong, by a word and in words."""
    where = "on synchronous devices" if run.title.startswith("synchronous") else "under the plan"
    if timeout_s is not None:
        return "timeout", InfrastructureError(
            f"the program did not end {where}", expected=f"an end within {timeout_s:g} s"
        )
    ended = report.get("command_exit_code", 0)
    faults = report.get("faults") or []
    if ended:
        return "failed", InfrastructureError(
            f"the program failed {where}: {why or _ended(ended)}",
            expected="a value" if why else "exit code 0",
        )
    if not faults:
        return "", None
    worst = faults[0]
    kinds = {
        UsageError.exit_code: ("unmatched", UsageError),
        InputError.exit_code: ("unrecorded", InputError),
        CannotJudge.exit_code: ("vacuous", CannotJudge),
    }
    trouble, error = kinds.get(worst["exit_code"], ("unrecorded", InfrastructureError))
    following = worst["next"]
    if trouble == "unmatched" and run.tape is not None:
        shown = quoted(near(run.tape))
        names = f"the names that `tapedelay info --dump {shown}` prints"
        following = f"correct them by {names}, or say allow_unmatched=True"
    return trouble, error(
        worst["found"],
        expected=worst["expected"],
        where=worst["where"] or where,
        next_step=following,
    )


def _ended(code: int) -> str:
    if code > 128:
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(code - 128).name}"
    return f"exit code {code}"
