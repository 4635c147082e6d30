"""``tapedelay rerun``: what is shown while it works, what an interrupted one tells, and in which words."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.cli import run
from tapedelay.formats.errors import InfrastructureError
from tapedelay.replayer.rerun import campaign
from tapedelay.replayer.rerun.budget import budget_of
from tapedelay.replayer.rerun.campaign import Campaign
from tapedelay.replayer.rerun.command import _name as case_name
from tapedelay.replayer.rerun.crew import Crew
from tapedelay.replayer.rerun.protocol import PHASES
from tapedelay.replayer.rerun.recipe import PLACES, Aim
from tapedelay.replayer.rerun.violation import Violation
from tapedelay.replayer.rerun.workers import Died

TOY = ("--engine", "toy:ToyDriver")
TROUBLES = (KeyboardInterrupt(), Died("it ended", None), InfrastructureError("no memory"))


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_interrupted(tape: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What there is so far is said, and no campaign that ended early is called clean."""
    take = Campaign._take

    def interrupt(self: Campaign, told: Any) -> None:
        take(self, told)
        if self.outcome.runs == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Campaign, "_take", interrupt)
    assert run(["rerun", str(tape), *TOY, "--perturbed", "--budget", "1h", "--json"]) == 130
    found = told(capsys)
    assert found["exit_code"] == 130
    assert found["perturbed"]["interrupted"]
    assert found["perturbed"]["runs"] == 3


def test_interrupted_at_the_start(
    tape: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The result of the strict rerun is there, and is told."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Crew, "__enter__", interrupt)
    assert run(["rerun", str(tape), *TOY, "--json"]) == 130
    found = told(capsys)
    assert found["strict"]["divergence"] is None
    assert found["perturbed"]["interrupted"]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda e: type(e).__name__)
def test_what_was_found_is_told_without_its_reduction(
    tape: Path,
    broken: tuple[str, str],
    tmp_path: Path,
    trouble: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: Any) -> None:
        raise trouble

    monkeypatch.setattr(campaign, "reduce_inside", fail)
    words = ["--perturbed", "--only", "abort", "--budget", "40 runs", "--write", str(tmp_path / "cases")]
    assert run(["rerun", str(tape), *broken, *words]) == 1
    out, err = capsys.readouterr()
    assert "FOUND 2 kinds of violations in 40 runs" in out
    assert ("  interrupted: " in out) is isinstance(trouble, KeyboardInterrupt)
    assert ("  not reduced: " in out) is not isinstance(trouble, KeyboardInterrupt)
    assert "2 of 2 kinds have no reduced case" in err
    assert not (tmp_path / "cases").exists()


def test_a_campaign_that_cannot_go_on_tells_what_it_found(
    tape: Path, broken: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    take = Campaign._take

    def fail(self: Campaign, told: Any) -> None:
        take(self, told)
        if self.outcome.found:
            raise InfrastructureError("the engine's process cannot be started any more")

    monkeypatch.setattr(Campaign, "_take", fail)
    assert run(["rerun", str(tape), *broken, "--perturbed", "--only", "abort", "--json"]) == 1
    found = told(capsys)["perturbed"]
    assert len(found["found"]) == 1
    assert found["troubles"] == ["the engine's process cannot be started any more"]


def on_terminal(tape: Path, *words: str) -> tuple[int, str, str]:
    """Run a rerun whose stderr is a terminal; return its exit code, what it prints and what is shown."""
    ours, theirs = pty.openpty()
    program = "import sys; from tapedelay.formats.cli import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "rerun", str(tape), *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", "COLUMNS": "150"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # it has ended
            while data := os.read(ours, 4096):
                shown += data
        assert process.stdout is not None
        said = process.stdout.read().decode()
    os.close(ours)
    return process.returncode, said, shown.decode()


def test_what_goes_on_is_shown_on_a_terminal(tape: Path, broken: tuple[str, str]) -> None:
    code, said, shown = on_terminal(tape, *broken, "--only", "abort", "--budget", "40 runs")
    assert code == 1
    stages = (
        "toy.tape: starting toy",
        "toy.tape: rerunning as recorded",
        "toy.tape: perturbing",
        "toy.tape: looking for the planted fault ",
        "toy.tape: reducing 2 of 2: ",
    )
    for stage in stages:
        assert stage in shown
    assert "\x1b" not in said
    assert "perturbed: FOUND 2 kinds" in said


def test_nothing_goes_on_where_nobody_looks(
    tape: Path, broken: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rerun", str(tape), *broken, "--only", "abort", "--budget", "40 runs"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1  # what is next


@pytest.mark.parametrize(
    ("budget", "spent"),
    [
        ("10 runs", [(0, 10), (7, 10), (10, 10)]),
        ("20s", [(0, 20), (3, 20), (20, 20)]),
        ("0.2s", [(0, 1), (1, 1), (1, 1)]),
    ],
)
def test_how_much_of_a_budget_is_used_up(budget: str, spent: list[tuple[int, int]]) -> None:
    given = budget_of(budget)
    assert [given.spent(*used) for used in ((0, 0.0), (7, 3.9), (12, 21.0))] == spent


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("no progress: new requests are blocked until one ends, and none runs", None),
        ("a/b: c", "I5-a-b-c"),
        ("x" * 80, "I5"),
        ("", "I5"),
    ],
)
def test_names_of_cases_end_with_a_word(what: str, name: str | None) -> None:
    found = case_name(Violation("I5", what, ""))
    assert found == (name or "I5-no-progress-new-requests-are-blocked-until-one-ends-and")
    assert len(found) <= 60


def test_moments_count_from_one() -> None:
    said = {n: Aim("abort", "blocked", "between", n).text() for n in (0, 1, 2, 10, 20, 111)}
    assert said[0] == (
        "abort when a request cannot be scheduled yet, between a schedule and its output, the 1st time"
    )
    endings = [text.rpartition("the ")[2] for text in said.values()]
    assert endings == ["1st time", "2nd time", "3rd time", "11th time", "21st time", "112th time"]
    assert Aim("pause", "any", "output", 0, "wait", 5).text().startswith("pause wait for 5 calls when any")
    assert "x" not in Aim("abort_batch", "decode", "output", 0, count=12).text()  # it says nothing there
    assert Aim("decode_only", "decode", "output", 0, count=8).text().startswith("decode_only x8 when")
    for phase, place in itertools.product((*PHASES, "in flight", "any"), PLACES):
        assert Aim("abort", phase, place).text()
