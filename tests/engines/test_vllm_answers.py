"""A recorded vLLM answers and ends as one that is not, whatever it is asked; nothing of that is written."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.load import load_tape
from tapedelay.formats.requests.read import read_inputs, read_schedulers
from tapedelay.formats.tape import Tape

from .held_bytes import plain_bytes, raw_bytes, written
from .scheduler_engines import PROGRAMS, TIMEOUT_S, engine_python, environment

MARKER = "zanzibarXQ"
PARTS = ["generated", "guided", "speculative"]
SELDOM = [pytest.param(part, marks=pytest.mark.soak) for part in ("pooled", "forked")]
NOT_RERUN = {
    "guided": "structured (12 requests)",
    "speculative": "what a rerun of vLLM cannot do: speculative",
    "pooled": "pooling (4 requests)",
}


@dataclass(frozen=True)
class Part:
    """A part of `vllm_answers.py`, recorded, and what it gave without hooks."""

    tape: Tape
    path: Path
    spool: Path
    told: Any
    plain: Any
    stderr: str


def tapedelay(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tapedelay", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)


def strict(path: Path, scheduler: int) -> subprocess.CompletedProcess[str]:
    options = ["--strict", "--scheduler", str(scheduler), "--python", engine_python("vllm")]
    return tapedelay("rerun", *options, path)


@pytest.fixture(scope="session")
def answers(
    made_once: Callable[[str, Callable[[Path], object]], Path],
) -> Callable[[str], Part]:
    """Return a part by its name; those of every run are made at once."""

    def part(name: str) -> Part:
        names = PARTS if name in PARTS else [name]

        def make(folder: Path) -> None:
            done = subprocess.run(
                [engine_python("vllm"), str(PROGRAMS / "vllm_answers.py"), str(folder), MARKER, *names],
                env=environment(),
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
            )
            assert done.returncode == 0, done.stderr
            for one in names:
                shutil.copytree(folder / one / "spool", folder / one / "raw")
                spool = folder / one / "spool"
                collected = tapedelay("record", "--from-spool", spool, "-o", folder / one / "tape")
                assert collected.returncode == 0, collected.stderr

        folder = made_once(f"vllm-answers-{names[0]}", make)
        path = folder / name / "tape"
        return Part(
            load_tape(path),
            path,
            folder / name / "raw",
            json.loads((folder / name / "told.json").read_text()),
            json.loads((folder / f"{name}-plain" / "told.json").read_text()),
            (folder / name / "stderr").read_text(),
        )

    return part


@pytest.mark.parametrize("name", [*PARTS, *SELDOM])
def test_answers_are_those_of_an_engine_without_hooks(answers: Callable[[str], Part], name: str) -> None:
    part = answers(name)
    assert part.told == part.plain
    assert "tapedelay" not in part.stderr
    assert part.tape.manifest.complete
    assert tapedelay("info", "--validate", part.path).returncode == 0
    checked = tapedelay("check", part.path)
    assert checked.returncode == 0, checked.stdout
    assert "clean: 0 violations" in checked.stdout


def test_speculation_is_named_in_the_configuration(answers: Callable[[str], Part]) -> None:
    (scheduler,) = read_schedulers(answers("speculative").tape)
    assert scheduler.config["cannot_judge"] == "speculative"


@pytest.mark.parametrize(
    "name", ["guided", *(pytest.param(name, marks=pytest.mark.soak) for name in ("speculative", "pooled"))]
)
def test_a_rerun_names_the_feature_that_it_does_not_know(answers: Callable[[str], Part], name: str) -> None:
    done = strict(answers(name).path, 0)
    assert done.returncode == 4, done.stdout
    assert NOT_RERUN[name] in done.stderr


@pytest.mark.parametrize(
    ("name", "schedulers", "rerun"),
    [
        ("generated", 2, 1),
        pytest.param("generated", 2, 2, marks=pytest.mark.soak),
        pytest.param("forked", 3, 3, marks=pytest.mark.soak),
    ],
)
def test_whatever_a_request_asks_for_is_rerun_exactly(
    answers: Callable[[str], Part], name: str, schedulers: int, rerun: int
) -> None:
    part = answers(name)
    found = read_schedulers(part.tape)
    assert len(found) == schedulers
    for scheduler in sorted(found, key=lambda s: -len(s.requests))[:rerun]:
        done = strict(part.path, scheduler.scheduler)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "every decision, unit and count as recorded" in done.stdout


@pytest.mark.parametrize("name", [*PARTS, *SELDOM])
def test_no_byte_holds_what_was_asked(answers: Callable[[str], Part], name: str) -> None:
    """Not in a prompt, a stop string or token, a word that is bad, a grammar, an id, the model's name."""
    part = answers(name)
    (tokenizer,) = part.path.parents[1].glob("model-*/tokenizer.json")
    words = json.loads(tokenizer.read_text())["model"]["vocab"]
    sought = [MARKER.encode(), *written([words[c] for c in MARKER])]
    for data in (raw_bytes(part.spool), raw_bytes(part.path), plain_bytes(part.tape)):
        assert data
        assert [s for s in sought if s in data] == []
    if name in ("generated", "guided"):
        given = (part.path.parent / "told.json").read_bytes()
        assert any(s in given for s in sought), "the search finds what is there"


def clients(folder: Path, signal: str, *before: str) -> subprocess.CompletedProcess[str]:
    """Serve clients until the core gets a signal; return what came of it."""
    folder.mkdir(exist_ok=True)
    return subprocess.run(
        [*before, engine_python("vllm"), str(PROGRAMS / "vllm_clients.py"), str(folder), MARKER, signal],
        env=environment(VLLM_LOGGING_LEVEL="CRITICAL"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def test_clients_that_leave_and_a_core_that_is_killed(tmp_path: Path) -> None:
    """The tape is there up to that moment, says that it ends there, and is rerun exactly."""
    keep = [sys.executable, "-m", "tapedelay", "record", "--keep-spool", "-o", str(tmp_path / "tape"), "--"]
    done = clients(tmp_path, "SIGKILL", *keep)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.strip().splitlines()[-1])
    assert told["core"] == "gone"
    assert set(told["second"]) == {"EngineDeadError"}
    assert [n for n, got in enumerate(told["first"]) if "left" in str(got)] == [0, 3, 6]
    assert "the recording is not complete" in done.stderr
    tape = load_tape(tmp_path / "tape")
    assert not tape.manifest.complete
    (scheduler,) = read_schedulers(tape)
    inputs = list(read_inputs(tape))
    assert len(scheduler.requests) > len(told["first"])
    assert sum(len(i.aborted()) for i in inputs) >= 3
    checked = tapedelay("check", tmp_path / "tape")
    assert checked.returncode == 0
    assert "the recording did not end cleanly" in checked.stdout
    again = strict(tmp_path / "tape", scheduler.scheduler)
    assert again.returncode == 0, again.stdout + again.stderr
    (spool,) = tmp_path.glob(".tape.*.spool")
    for data in (raw_bytes(spool), raw_bytes(tmp_path / "tape"), plain_bytes(tape)):
        assert MARKER.encode() not in data


@pytest.mark.soak
@pytest.mark.parametrize("signal", ["SIGTERM", "SIGINT", "SIGKILL"])
def test_an_engine_ends_as_it_does_without_hooks(tmp_path: Path, signal: str) -> None:
    plain = clients(tmp_path / "plain", signal)
    keep = [sys.executable, "-m", "tapedelay", "record", "-o", str(tmp_path / "tape"), "--"]
    done = clients(tmp_path / "hooks", signal, *keep)
    assert done.returncode == plain.returncode
    both = [json.loads(run.stdout.strip().splitlines()[-1]) for run in (plain, done)]
    assert both[0] == both[1]
    assert tapedelay("info", "--validate", tmp_path / "tape").returncode == 0
    assert tapedelay("check", tmp_path / "tape").returncode == 0
