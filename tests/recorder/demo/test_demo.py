"""The demonstration without an engine, and the two tapes that come with the sources."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tapedelay.recorder.demo import demo
from tapedelay.recorder.demo.commands import Recording, tapedelay
from tapedelay.recorder.demo.screen import DemoError, Screen

TRACES = Path(__file__).resolve().parents[3] / "traces"
BAD, GOOD = TRACES / "ggml-26040-bad.tape.zip", TRACES / "ggml-26040-good.tape.zip"


def check(tape: Path) -> tuple[int, list[dict[str, object]]]:
    return Recording(tape, {}).check()


def test_the_committed_tapes_show_what_the_manifest_says() -> None:
    entries = tomllib.loads((TRACES / "MANIFEST.toml").read_text())["trace"]
    hashes = {entry["path"]: entry["sha256"] for entry in entries}
    for tape in (BAD, GOOD):
        assert hashlib.sha256(tape.read_bytes()).hexdigest() == hashes[tape.name]
        assert tapedelay("info", "--validate", tape).code == 0
    code, findings = check(BAD)
    assert code == 1
    assert len(findings) == 18
    for finding in findings:
        text = str(finding)
        assert (finding["verdict"], finding["fault"]) == ("race", "WAR")
        assert "model.input_embed" in text
        assert "conv_states" in text
    assert check(GOOD) == (0, [])


def test_the_committed_plan_tells_the_two_tapes_apart() -> None:
    entries = tomllib.loads((TRACES / "MANIFEST.toml").read_text())["trace"]
    (entry,) = [e for e in entries if e["path"] == "ggml-26040.delays"]
    plan = TRACES / "ggml-26040.delays"
    assert hashlib.sha256(plan.read_bytes()).hexdigest() == entry["sha256"]
    assert tapedelay("replay", "--delays", plan, BAD).code == 1
    assert tapedelay("replay", "--delays", plan, GOOD).code == 0


def run_demo(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    # an empty folder of engines, and a registry that answers nothing
    return subprocess.run(
        [sys.executable, "-m", "tapedelay.recorder.demo", "--out", str(tmp_path / "out")],
        env={
            **os.environ,
            "TAPEDELAY_ENGINES": str(tmp_path / "engines"),
            "PIP_NO_INDEX": "1",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_without_wheels_it_says_so_and_checks_the_committed_tapes(tmp_path: Path) -> None:
    done = run_demo(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("cannot be had") == 2
    assert done.stdout.count("comes with the sources") == 2
    assert "18 races" in done.stdout
    assert "nothing orders the copy of `model.input_embed`" in done.stdout
    assert "0 races" in done.stdout
    shows = done.stdout[done.stdout.index("== one delay shows it") :]
    assert shows.count("$ tapedelay replay ") == 3
    assert "delay: first copy of model.input_embed on TAPE0 +" in shows
    assert "FIRST WRONG READ" in shows
    assert "ggml-26040-good.tape.zip: clean: 0 wrong reads" in shows
    assert (tmp_path / "out" / "ggml-26040.delays").is_file()
    assert str(os.path.relpath(BAD)) in done.stdout or BAD.name in done.stdout
    assert "\x1b" not in done.stdout + done.stderr  # no terminal, no colours
    assert not [line for line in done.stdout.splitlines() if line != line.rstrip()]


def test_it_ends_with_a_command_that_runs_without_an_active_environment(tmp_path: Path) -> None:
    done = run_demo(tmp_path)
    command = done.stdout.splitlines()[-1].removeprefix("next: ")
    again = subprocess.run(
        shlex.split(command),
        env={**os.environ, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 1, again.stderr
    assert "18 races" in again.stdout


def test_the_command_is_short_where_it_lies_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "bin" / "python"))
    assert demo._our_command() == "venv/bin/python -m tapedelay"
    (tmp_path / "venv" / "bin" / "tapedelay").write_text("")
    assert demo._our_command() == "venv/bin/tapedelay"


def test_it_fails_loudly_when_a_tape_does_not_show_what_it_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAPEDELAY_ENGINES", str(tmp_path / "engines"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    arguments = ["--out", str(tmp_path / "out")]
    monkeypatch.setattr(demo, "RACING_PAIR", ("input_embed", "another tensor"))
    assert demo.main(arguments) == 1
    assert "FAILED" in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setenv("TAPEDELAY_ENGINES", str(tmp_path / "engines"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(demo, "_committed", lambda name, error: BAD)  # a race where there must be none
    assert demo.main(arguments) == 1
    assert "18 findings, expected none" in capsys.readouterr().err


def test_it_fails_loudly_when_the_delay_does_not_tell_the_builds_apart(tmp_path: Path) -> None:
    plan = tmp_path / "x.delays"
    screen = Screen()
    with pytest.raises(DemoError, match="a wrong read with the same delay, expected none"):
        demo._show(screen, BAD, BAD, plan)
    with pytest.raises(DemoError, match="the delay that shows the race did not show it"):
        demo._show(screen, GOOD, GOOD, plan)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert demo.main(["--out", str(tmp_path / "file" / "deeper")]) == 5
    assert "cannot write to" in capsys.readouterr().err
