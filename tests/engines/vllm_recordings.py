"""Recordings of vLLM that several tests look at, made once in a test run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape

from .scheduler_engines import PROGRAMS, TIMEOUT_S, engine_python, environment

__all__ = [
    "KINDS",
    "Recorded",
    "record_apart",
    "record_program",
    "recorded",
]

ROOT = Path(__file__).resolve().parents[2]
KINDS = (
    "sync",
    "async",
    "priority",
    "sessions",
    "sessions-async",
    "sessions-priority",
    "sessions-units-async",  # of one token each: sessions drop some that are in whole blocks
)


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


def record_program(folder: Path, *words: str, **env: str) -> None:
    """Record a program of this folder into ``tape``, with its raw recording and what it prints beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    name, *args = words
    command = [engine_python("vllm"), str(PROGRAMS / name), *args]
    options = ["--keep-spool", "-o", str(folder / "tape")]
    done = subprocess.run(
        [sys.executable, "-m", "tapedelay", "record", *options, "--", *command],
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "told.json").write_text(done.stdout.strip().splitlines()[-1])
    (folder / "stderr.txt").write_text(done.stderr)


def _plugin(folder: Path) -> Path:
    """Return a folder that announces the package's entry points as its installation does."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    lines = [f"[{g}]\n" + "".join(f"{k} = {v}\n" for k, v in named.items()) for g, named in points.items()]
    info = folder / "tapedelay_of_the_test-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tapedelay-of-the-test\nVersion: 1\n")
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder


def record_apart(folder: Path) -> None:
    """Record vLLM's core in a process of its own, through its plugins alone; leave what `recorded` reads."""
    spool = folder / ".tape.apart.spool"
    spool.mkdir(parents=True)
    path = os.pathsep.join([str(_plugin(folder / "entry")), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [engine_python("vllm"), str(PROGRAMS / "vllm_llm.py"), str(folder)],
        env=environment(PYTHONPATH=path, TAPEDELAY_SPOOL=str(spool), VLLM_ENABLE_V1_MULTIPROCESSING="1"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    collect = ["record", "--from-spool", str(spool), "-o", str(folder / "tape")]
    collected = subprocess.run(
        [sys.executable, "-m", "tapedelay", *collect], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert collected.returncode == 0, collected.stderr
    (folder / "told.json").write_text(next(x for x in done.stdout.splitlines() if x.startswith("{")))
    spool.mkdir(exist_ok=True)


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
