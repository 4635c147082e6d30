"""Recordings of vLLM that several tests look at, made once in a test run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape

from .scheduler_engines import engine_python

__all__ = ["KINDS", "PROGRAMS", "TIMEOUT_S", "Recorded", "program_environment", "record_program", "recorded"]

PROGRAMS = Path(__file__).parent / "programs"
KINDS = ("sync", "async", "priority", "sessions", "sessions-async")
TIMEOUT_S = 600


@dataclass(frozen=True)
class Recorded:
    """A recorded run.

    Attributes
    ----------
    path, spool : Path
        The tape, and the raw recording.
    tape : Tape
        What `path` holds.
    told : object
        What the program says about its run.
    secrets : dict
        Ids, hashes and prompts that must not be in it.
    """

    path: Path
    spool: Path
    tape: Tape
    told: Any
    secrets: dict[str, list[Any]]


def program_environment(**more: str) -> dict[str, str]:
    """Return the environment of a program that serves with vLLM, outside of whatever records these tests."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("TAPEDELAY_SPOOL")}
    return env | {"VLLM_LOGGING_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"} | more


def record_program(folder: Path, *words: str, **env: str) -> None:
    """Record a program of this folder into ``tape``, with its raw recording and what it prints beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    name, *args = words
    command = [engine_python("vllm"), str(PROGRAMS / name), *args]
    options = ["--keep-spool", "-o", str(folder / "tape")]
    done = subprocess.run(
        [sys.executable, "-m", "tapedelay", "record", *options, "--", *command],
        env=program_environment(**env),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "told.json").write_text(done.stdout.strip().splitlines()[-1])
    (folder / "stderr.txt").write_text(done.stderr)


def recorded(folder: Path) -> Recorded:
    """Return what `record_program` left."""
    (spool,) = folder.glob(".tape.*.spool")
    secrets = folder / "secrets.json"
    return Recorded(
        folder / "tape",
        spool,
        load_tape(folder / "tape"),
        json.loads((folder / "told.json").read_text()),
        json.loads(secrets.read_text()) if secrets.exists() else {},
    )
