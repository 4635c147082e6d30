"""The plan and the test of the README, as they stand there: red before the fix, green after it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tapedelay.recorder.demo.engines import XLLAMACPP_RACY

README = Path(__file__).resolve().parents[2] / "README.md"
PLUGIN = "tapedelay.replayer.pytest_plugin"
LOADED = [] if any(p.value == PLUGIN for p in entry_points(group="pytest11")) else ["-p", PLUGIN]


def blocks() -> list[str]:
    """The plan, the test, the commands and the output of the section."""
    (section,) = re.findall(r"^## A test for the CI of an engine\n(.*?)^## ", README.read_text(), re.M | re.S)
    return re.findall(r"^```\w+\n(.*?)^```", section, re.M | re.S)


def run(
    folder: Path, model: Path | None, environment: dict[str, str], test: str
) -> subprocess.CompletedProcess[str]:
    if model is not None:
        (folder / "model.gguf").symlink_to(model)
    (folder / "uploads.delays").write_text(blocks()[0])
    (folder / "test_uploads.py").write_text(test)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp=tapes", *LOADED],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_it_is_as_short_as_it_says() -> None:
    plan, test, _, _ = blocks()
    assert len(plan.splitlines()) == 2
    assert len([line for line in test.splitlines() if line.strip()]) <= 12


def test_red_before_the_fix_with_the_finding(racy: dict[str, str], tmp_path: Path) -> None:
    _, test, commands, shown = blocks()
    install, model, tests = commands.splitlines()
    assert install == f"pip install pytest xllamacpp=={XLLAMACPP_RACY}"  # `racy` is that, unpacked
    assert tests == "python -m pytest"
    written = model.replace("python", sys.executable, 1)
    subprocess.run(written, shell=True, cwd=tmp_path, env={**os.environ, **racy}, check=True, timeout=60)
    done = run(tmp_path, None, racy, test)
    assert done.returncode == 1, done.stdout + done.stderr
    promised = [line for line in shown.splitlines() if line and "..." not in line]
    assert len(promised) > 5
    assert [line for line in promised if line not in done.stdout] == [], done.stdout
    # what it names is there, and shows it again
    ((tape,),) = [re.findall(r"its recording: tapedelay check (\S+)", done.stdout)]
    ((again,),) = [re.findall(r"to run it again: tapedelay (.*)", done.stdout)]
    entry = f"{sys.executable} -m tapedelay "
    for command, code in ((f"check {tape}", 1), (again, 0), ("check again.tape", 1)):
        if command == again:
            shutil.rmtree(tmp_path / "tapes")  # as pytest does after some sessions
        shell = subprocess.run(
            entry + command,
            shell=True,
            cwd=tmp_path,
            env={**os.environ, **racy},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert shell.returncode == code, shell.stderr
        if command == again:
            assert shell.stdout.startswith("value ")
            assert "applied 107 times" in shell.stderr


def test_a_missing_model_is_told_as_the_program_tells_it(racy: dict[str, str], tmp_path: Path) -> None:
    done = run(tmp_path, None, racy, blocks()[1])
    assert done.returncode == 1
    first = "  the program failed on synchronous devices: RuntimeError: Failed to init server"
    assert first in done.stdout
    assert done.stdout.index(first) < done.stdout.index("  it wrote:\n")
    assert "failed to load model, 'model.gguf'" in done.stdout
    assert 'child.py", line' not in done.stdout


@pytest.mark.parametrize("build", ["fixed", "newest"])
def test_green_after_the_fix(
    build: str, tiny_model: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    done = run(tmp_path, tiny_model, request.getfixturevalue(build), blocks()[1])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert list(tmp_path.glob("tapes/*/engine-1/run-1.tape"))


def test_the_negative_control_is_green_before_the_fix(
    racy: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    test = blocks()[1].replace('plan="uploads.delays")', 'plan="uploads.delays", repeat=2, expect="wrong")')
    done = run(tmp_path, tiny_model, racy, test)
    assert done.returncode == 0, done.stdout + done.stderr
