"""What the doctor says of engines with a request scheduler, in Pythons that have them or not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tapedelay.recorder.doctor.finding import LIMIT, NO, OK, Finding
from tapedelay.recorder.doctor.schedulers import TRIED, look_at_schedulers
from tapedelay.recorder.hook.engine_hook import SCHEDULERS


def installed(folder: Path, module: str, version: str, *, whole: bool = True) -> None:
    """Make a package that looks as if an engine were installed; importing it would fail."""
    name, *rest = module.split(".")
    place = folder / name
    place.mkdir()
    (place / "__init__.py").write_text("raise SystemExit('the doctor imported it')")
    if whole:
        for part in rest[:-1]:
            place /= part
            place.mkdir()
        (place / f"{rest[-1]}.py").touch()
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all this Python imports engines from."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for name in [m for m in sys.modules if m.split(".")[0] in TRIED]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def found() -> dict[str, Finding]:
    return {f.code: f for f in look_at_schedulers()}


def test_every_engine_that_is_hooked_has_a_row(look: Path) -> None:
    rows = found()
    assert set(rows) == {module.split(".")[0] for module in SCHEDULERS} == set(TRIED)
    assert {f.state for f in rows.values()} == {LIMIT}
    assert "make engine-vllm" in rows["vllm"].remedy


@pytest.mark.parametrize("module", SCHEDULERS)
def test_an_engine_that_is_there(look: Path, module: str) -> None:
    name = module.split(".")[0]
    installed(look, module, TRIED[name] + ".0")
    assert found()[name] == Finding(
        name, OK, f"{name} {TRIED[name]}.0: its request scheduler can be recorded, and rerun here"
    )


@pytest.mark.parametrize("module", SCHEDULERS)
def test_another_version(look: Path, module: str) -> None:
    name = module.split(".")[0]
    installed(look, module, TRIED[name] + "7.1")
    assert found()[name].state == LIMIT
    assert TRIED[name] in found()[name].found


@pytest.mark.parametrize("module", SCHEDULERS)
def test_a_version_without_what_is_hooked(look: Path, module: str) -> None:
    name = module.split(".")[0]
    installed(look, module, TRIED[name] + ".0", whole=False)
    assert found()[name].state == NO
    assert module in found()[name].found


PROGRAM = """
from tapedelay.recorder.requests import PoolRow, SchedulerRecorder

recorder = SchedulerRecorder("toy", "1", {}, [PoolRow("kv", 4)])
recorder.submit("a", prompt_tokens=3)
"""


def test_a_program_whose_scheduler_is_recorded(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tapedelay",
            "doctor",
            "--json",
            "-o",
            tmp_path,
            "--",
            sys.executable,
            program,
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    told = {f["code"]: f for f in json.loads(done.stdout)["engine"]}
    assert told["scheduler"]["found"] == "1 request scheduler of toy: every input and decision is recorded"
    assert "records" not in told, "nothing else was recorded, and that is no fault"
    assert done.returncode == 0, done.stderr


def test_a_scheduler_whose_recording_stops_is_the_reason(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"{PROGRAM}\nrecorder.begin('tea')\n")
    command = [sys.executable, "-m", "tapedelay", "doctor", "--json", "-o", str(tmp_path), "--"]
    done = subprocess.run(
        [*command, sys.executable, str(program)], capture_output=True, text=True, timeout=60
    )
    told = json.loads(done.stdout)["engine"]
    (fault,) = [f for f in told if f["state"] == NO]
    assert fault["code"] == "scheduler"
    assert "the request scheduler is not recorded any more" in fault["found"]
    assert done.returncode == 5, done.stderr
    assert "with a request scheduler" in next(f["found"] for f in told if f["code"] == "processes")
