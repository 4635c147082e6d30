"""Runs the ``tapedelay`` commands the way a user does: as processes of their own.

Shared by the demonstration, the tests of real engines and their benchmark.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...formats.errors import InfrastructureError

__all__ = [
    "PROGRAMS",
    "Finished",
    "Recording",
    "engine_environment",
    "prompt_program",
    "record_arguments",
    "record_program",
    "shown",
    "tapedelay",
]

PROGRAMS = Path(__file__).resolve().parent / "programs"
"""Folder of the programs that are recorded."""

_ENTRY = "from tapedelay.formats.cli import main; main()"
_TIMEOUT_S = 600


@dataclass(frozen=True)
class Finished:
    """A command that ended: its exit code and what it wrote."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """Return the last line, or else the whole, of what it wrote, as JSON.

        Raises
        ------
        InfrastructureError
            It wrote none; the message quotes the end of what it wrote instead.
        """
        lines = self.out.strip().splitlines()
        for text in (lines[-1:] and lines[-1], self.out):
            try:
                return json.loads(text or "")
            except ValueError:
                continue
        wrote = (self.err or self.out).strip()[-2000:] or "nothing"
        raise InfrastructureError(
            f"the exit code was {self.code} and it wrote:\n{wrote}", expected="one JSON document"
        )


@dataclass(frozen=True)
class Recording:
    """A tape, and what the recorded program printed."""

    tape: Path
    answer: dict[str, Any]

    @property
    def tokens(self) -> list[int]:
        """The tokens that the engine predicted."""
        tokens: list[int] = self.answer["tokens"]
        return tokens

    def check(self, *options: str | Path) -> tuple[int, list[dict[str, Any]]]:
        """Return the exit code of ``check --json`` and the findings that no baseline accepts."""
        done = tapedelay("check", "--json", *options, self.tape)
        return done.code, [finding for finding in done.json()["findings"] if not finding["accepted"]]

    def info(self, *options: str) -> str:
        """Return what ``info`` prints.

        Raises
        ------
        InfrastructureError
            It refused the tape.
        """
        done = tapedelay("info", *options, self.tape)
        if done.code:
            raise InfrastructureError(
                f"info ended with exit code {done.code}:\n{done.err.strip()}", expected="exit code 0"
            )
        return done.out


def tapedelay(
    *arguments: str | Path, environment: Mapping[str, str] | None = None, timeout_s: float = _TIMEOUT_S
) -> Finished:
    """Run one command of this toolkit with the running Python.

    Parameters
    ----------
    *arguments : str or Path
        As on the command line, without the word ``tapedelay``.
    environment : mapping, optional
        Variables added to the environment.

    Raises
    ------
    InfrastructureError
        It did not end in time.
    """
    command = [sys.executable, "-c", _ENTRY, *map(str, arguments)]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(
            "it did not end", expected=f"an end within {timeout_s:.0f} s", where=shown(arguments)
        ) from error
    return Finished(done.returncode, done.stdout, done.stderr)


def record_arguments(
    tape: Path,
    program: Sequence[str],
    *,
    devices: int | None = 1,
    profile: str | None = "vulkan-like",
    sync: bool = False,
    delays: str | None = None,
) -> list[str]:
    """Return the arguments of ``tapedelay`` that record this program."""
    arguments = ["record", "-o", str(tape)]
    if devices is not None:
        arguments += ["--devices", str(devices)]
    if profile is not None:
        arguments += ["--profile", profile]
    if sync:
        arguments.append("--sync")
    if delays is not None:
        arguments += ["--delays", delays]
    return [*arguments, "--", *program]


def record_program(arguments: Sequence[str], environment: Mapping[str, str]) -> Recording:
    """Record a program that prints its answer as one line of JSON.

    Raises
    ------
    InfrastructureError
        ``record`` did not end with 0, or there was no answer.
    """
    done = tapedelay(*arguments, environment=environment)
    if done.code:
        raise InfrastructureError(
            f"ended with exit code {done.code}:\n{(done.err + done.out).strip()[-4000:]}",
            expected="exit code 0",
            where=shown(arguments),
        )
    return Recording(Path(arguments[arguments.index("-o") + 1]), done.json())


def prompt_program(model: Path, *options: str) -> list[str]:
    """Return the command that runs a prompt through xllamacpp."""
    return [sys.executable, str(PROGRAMS / "llama_prompt.py"), "--model", str(model), *options]


def engine_environment(packages: Path) -> dict[str, str]:
    """Return the environment in which programs import the engine that lies in this folder."""
    known = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(packages), *([known] if known else [])])}


def shown(arguments: Sequence[str | Path]) -> str:
    """Return a command as a user would type it: relative paths, ``python`` for the running Python."""
    words = []
    for argument in map(str, arguments):
        if argument == sys.executable:
            argument = "python"
        elif Path(argument).is_absolute():
            argument = os.path.relpath(argument)
        words.append(shlex.quote(argument))
    return " ".join(["tapedelay", *words])
