"""``tapedelay rerun`` from the outside: exit codes, text, JSON, and cases that run again from their files."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.cli import run
from tapedelay.replayer.rerun.render import inputs_shown
from tapedelay.replayer.rerun.scenario import Input, Scenario

from .searching import RECORDINGS
from .taping import taped

TOY = ("--engine", "toy:ToyDriver")


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_clean(tape: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = tmp_path / "not" / "made"
    assert run(["rerun", str(tape), *TOY, "--budget", "150 runs", "--write", str(cases)]) == 0
    assert not cases.parent.exists()
    out, err = capsys.readouterr()
    assert "strict: every decision, unit and count as recorded: 1" in out
    assert "perturbed: clean in 150 runs" in out
    assert "planted fault" in out
    assert err.splitlines()[-1].startswith("next: tapedelay rerun")


def test_found_reduced_and_run_again(
    tape: Path, broken: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = tmp_path / "cases"
    words = ["--budget", "60 runs", "--only", "abort", "--write", str(cases), "--json"]
    assert run(["rerun", str(tape), *broken, *words]) == 1
    found = told(capsys)
    assert found["exit_code"] == 1
    assert found["strict"]["divergence"] is None
    (kind,) = {(f["invariant"]) for f in found["perturbed"]["found"]}
    assert kind == "I3"
    first = found["perturbed"]["found"][0]
    assert first["says"] == "nothing is held when the scheduler is idle"
    assert first["reduced"]["requests"] == 1
    assert Path(first["file"]).parent == cases
    assert Path(first["file"]).name == "001-I3-kv-held-when-idle-owner-aborted-in-prefill.litmus"
    assert run(["rerun", first["file"], *broken, "--json"]) == 1
    again = told(capsys)
    assert (first["invariant"], first["what"]) in {(v["invariant"], v["what"]) for v in again["violations"]}
    assert run(["rerun", first["file"], *TOY]) == 0
    assert "clean on toy:ToyDriver 1.0" in capsys.readouterr().out
    assert run(["check", first["file"]]) == 1


def test_only_what_the_engine_does_not_have(
    tape: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plainer.py").write_text(
        "from toy import ToyDriver\n"
        "class Plainer(ToyDriver):\n"
        "    inputs = frozenset({'submit', 'abort', 'step', 'output'})\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    engine = "--engine", "plainer:Plainer"
    assert run(["rerun", str(tape), *engine, "--perturbed", "--only", "pause", "--budget", "9 runs"]) == 2
    err = capsys.readouterr().err
    assert "--only pause" in err
    assert "abort_any" in err
    assert "next: say --only abort," in err
    words = ["--perturbed", "--only", "pause", "--only", "abort", "--budget", "9 runs"]
    assert run(["rerun", str(tape), *engine, *words]) in (0, 4)  # the part that it has is tried


def test_equal_inputs_of_a_case_are_shown_as_one() -> None:
    steps = (Input("step"),) * 3 + (Input("abort", 0),) + (Input("step"),) * 2
    lines = [Input("abort", n) for n in range(30)]
    shown = list(inputs_shown(Scenario("toy", None, {}, (), steps)))
    assert shown == ["    > step  (3 times)", "    > abort R0", "    > step  (2 times)"]
    shown = list(inputs_shown(Scenario("toy", None, {}, (), (*lines, *steps))))
    assert len(shown) == 21
    assert shown[-1] == "    and 16 more"


def test_the_same_seed_finds_the_same(
    tape: Path, broken: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    results: list[dict[tuple[str, str], int]] = []
    for jobs in ("1", "2"):
        words = [
            "--perturbed",
            "--only",
            "abort",
            "--budget",
            "60 runs",
            "--seed",
            "3",
            "--jobs",
            jobs,
            "--json",
        ]
        assert run(["rerun", str(tape), *broken, *words]) == 1
        found = told(capsys)["perturbed"]["found"]
        results.append({(f["invariant"], f["what"]): f["runs"] for f in found})
    assert results[0] == results[1]


@pytest.mark.parametrize(
    "words",
    [
        ("--strict", "--perturbed"),
        ("--budget", "soon"),
        ("--budget", "0s"),
        ("--budget", "1.5 runs"),
        ("--jobs", "0"),
        ("--timeout", "0"),
        ("--only", "nothing"),
        ("--scheduler", "7"),
        ("--engine", "vllm"),
    ],
)
def test_usage(tape: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rerun", str(tape), *words]) == 2
    assert "next: " in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [("--budget", "9 runs"), ("--seed", "0"), ("--only", "abort"), ("--plant", "x"), ("--write", "x")],
)
def test_options_that_would_be_ignored(
    tape: Path, tmp_path: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    case = tmp_path / "case.litmus"
    case.write_text("seq\narrive R0\nidle\n")
    assert run(["rerun", str(tape), *TOY, "--strict", *words]) == 2
    assert f"{words[0]} beside --strict" in capsys.readouterr().err
    assert run(["rerun", str(case), *TOY, *words]) == 2
    assert f"{words[0]} beside a case" in capsys.readouterr().err
    assert run(["rerun", str(case), "--scheduler", "1"]) == 2
    assert run(["rerun", str(case), "--strict"]) == 2
    assert "next: leave --strict out" in capsys.readouterr().err


def test_no_such_fault(tape: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rerun", str(tape), *TOY, "--perturbed", "--budget", "1", "--plant", "nothing"]) == 2
    assert "kept-mid-prefill" in capsys.readouterr().err


def test_no_scheduler_and_no_engine(tape: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    race = tmp_path / "race.litmus"
    race.write_text("1 | host | H | | M0[0:16] |\nclean\n")
    assert run(["rerun", str(tape), "--engine", "toy"]) == 4
    assert "no engine adapter is named 'toy'" in capsys.readouterr().err
    assert run(["rerun", str(race)]) == 3
    bare = tmp_path / "bare.litmus"
    bare.write_text("seq\narrive R0\nidle\n")
    assert run(["rerun", str(bare)]) == 3
    assert "does not say how it was made" in capsys.readouterr().err
    assert run(["rerun", str(tmp_path / "nothing.tape")]) == 3


@pytest.mark.parametrize("python", ["/nonexistent/python", "nosuchpython", "/", "not-executable"])
def test_a_python_that_is_not_there(
    tape: Path,
    tmp_path: Path,
    python: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("not-executable").touch(0o600)
    assert run(["rerun", str(tape), *TOY, "--python", python]) == 2
    assert f"--python {python}" in capsys.readouterr().err
    assert run(["rerun", str(tmp_path / "case.litmus"), "--python", python]) == 2


def test_a_python_that_has_another_version_of_this_package(
    tape: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who records with an engine has one beside it."""
    other = tmp_path / "tapedelay"
    other.mkdir()
    (other / "__init__.py").write_text("raise RuntimeError('of another version')\n")
    python = tmp_path / "python"
    path = os.pathsep.join((str(tmp_path), str(Path(__file__).parent)))
    python.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {sys.executable} "$@"\n')
    python.chmod(0o700)
    assert run(["rerun", str(tape), *TOY, "--python", str(python), "--strict"]) == 0
    assert "as recorded" in capsys.readouterr().out


def test_what_the_engine_does_not_have_is_said_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = RECORDINGS["plain"]
    theirs = taped(plain.but(config={**plain.config, "num_sectors": 9}), tmp_path, engine="transformers")
    started = tmp_path / "started"
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ntouch {started}\n")
    python.chmod(0o700)
    words = ["rerun", str(theirs), "--python", str(python)]
    assert run([*words, "--plant", "nothing"]) == 2
    assert "units-kept-on-abort" in capsys.readouterr().err
    assert run([*words, "--only", "pause"]) == 2
    assert "next: say --only abort," in capsys.readouterr().err
    assert not started.exists()
    assert run([*words, "--plant", "units-kept-on-abort", "--only", "abort"]) == 5
    assert started.exists()


@pytest.mark.parametrize(
    "body",
    [
        "echo Welcome",
        "while :; do echo y; done",
        "exec cat /dev/zero",
        "echo []; sleep 60",
        "echo {}; sleep 60",
    ],
)
def test_a_python_that_is_none(
    tape: Path, tmp_path: Path, body: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "python.sh"
    script.write_text(f'#!/bin/sh\n{body}\nexec {sys.executable} "$@"\n')
    script.chmod(0o700)
    assert run(["rerun", str(tape), *TOY, "--python", str(script), "--json"]) == 5
    found = told(capsys)
    assert found["error"] == "InfrastructureError"
    assert "--python names" in found["next"]


@pytest.mark.parametrize("engine", [":", "../x:y", ".:y", "toy:", "toy:nothing", "os:getcwd", "raising:X"])
def test_an_engine_that_is_no_adapter(
    tape: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    (tmp_path / "raising.py").write_text("raise OSError('no device')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert run(["rerun", str(tape), "--engine", engine]) == 4


def test_no_file_says_what_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef go(): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    case = tmp_path / "case.litmus"
    for line in ("engine mine:go 1.0", "engine mine:go", "engine mine"):
        case.write_text(f"seq\n{line}\n> step\n")
        assert run(["rerun", str(case)]) in (3, 4)
        assert run(["check", str(case)]) in (0, 3)
    capsys.readouterr()
    assert not (tmp_path / "ran").exists()


def test_where_nothing_can_be_written_is_said_first(
    tape: Path, broken: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the budget is spent: it is an hour."""
    (tmp_path / "file").touch()
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "001-I3-held.litmus").write_text("seq\n")
    places = ((tmp_path / "file", 5), (tmp_path / "file" / "cases", 5), (Path("/proc/cases"), 5))
    for place, code in (*places, (tmp_path / "cases", 2)):
        assert run(["rerun", str(tape), *broken, "--budget", "1h", "--write", str(place)]) == code
        assert capsys.readouterr().out == ""


def test_everyone_counts_the_same_steps(tape: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", str(tape), "--json"]) == 0
    (shown,) = told(capsys)["schedulers"]
    assert run(["check", str(tape), "--json"]) == 0
    (judged,) = told(capsys)["schedulers"]
    assert run(["rerun", str(tape), *TOY, "--strict", "--json"]) == 0
    assert shown["steps"] == judged["steps"] == told(capsys)["strict"]["steps"] > 0
    assert shown["requests"] == judged["requests"] > 0
