"""A fault of a real request scheduler is found where it is recorded: by ``check``, without a rerun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .deepinfer_patches import SWITCH, patched
from .scheduler_engines import PROGRAMS, TIMEOUT_S, engine_python, environment


def checked(tape: Path, command: list[str], environment: dict[str, str]) -> tuple[dict[str, Any], Any]:
    """Record a command and check the tape; return what `check` says, and what the command says."""
    done = subprocess.run(
        [sys.executable, "-m", "tapedelay", "record", "-o", str(tape), "--", *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    judged = subprocess.run(
        [sys.executable, "-m", "tapedelay", "check", str(tape), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    report = json.loads(judged.stdout)
    assert judged.returncode == report["exit_code"], judged.stderr
    return report, json.loads(done.stdout.strip().splitlines()[-1])


def broken(report: dict[str, Any]) -> set[str]:
    return {kind["first"]["invariant"] for scheduler in report["schedulers"] for kind in scheduler["kinds"]}


@pytest.mark.parametrize("fault", ["none", "kept-on-abort"])
def test_blocks_that_vllm_keeps_on_an_abort(fault: str, tmp_path: Path) -> None:
    command = [engine_python("vllm"), str(PROGRAMS / "vllm_abort.py"), fault, str(tmp_path)]
    report, said = checked(tmp_path / "run.tape", command, environment())
    leaks = fault != "none"
    assert (said["free"] < said["start"]) == leaks
    assert report["exit_code"] == int(leaks)
    assert broken(report) == ({"I3"} if leaks else set())


@pytest.mark.parametrize("repairs", ["", "abort"], ids=["as it is", "repaired"])
def test_blocks_that_deepinfer_keeps_on_an_abort(repairs: str, tmp_path: Path) -> None:
    python = engine_python("deepinfer")
    environment = dict(os.environ)
    if repairs:
        code = "import deepinfer; print(deepinfer.__file__)"
        found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, timeout=60)
        folder = patched(Path(found.stdout.strip()).parents[2])
        path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
        environment |= {"PYTHONPATH": path, SWITCH: repairs}
    command = [python, str(PROGRAMS / "deepinfer_engine.py"), "aborted"]
    report, said = checked(tmp_path / "run.tape", command, environment)
    leaks = not repairs
    assert said["aborted"] == 1
    assert (said["free"] != said["start"]) == leaks
    assert report["exit_code"] == int(leaks)
    assert broken(report) == ({"I3"} if leaks else set())
