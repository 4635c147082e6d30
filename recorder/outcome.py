"""What came of a recording, and what to tell the user about it: by what happened, not by what might have."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..formats.errors import CannotJudge, InfrastructureError, TapedelayError
from .asked import Asked, spelled
from .hook import engine_hook

if TYPE_CHECKING:
    from ..formats.tape import Tape

__all__ = ["Evidence", "Recording", "faults_of", "nothing_recorded"]

_REAL_GPUS = ("gpu", "igpu")
_GIVE_WORK = "give the engine's work to the device (for llama.cpp: n_gpu_layers > 0)"


@dataclass
class Recording:
    """What came of a recording.

    Attributes
    ----------
    output : Path
        Where the tape lies, or will lie.
    asked : Asked
        What was asked for.
    command_code : int
        Exit code of the command; 0 where there is none.
    written : bool
        Whether the tape was written: not where nothing was recorded.
    computes : dict of str to int
        Computes recorded, by device.
    faults : list of TapedelayError
        What is wrong with the recording, worst first; empty: it is what was asked for.
    spool : Path or None
        The raw recording, if it was kept.
    """

    output: Path
    asked: Asked
    command_code: int = 0
    ops: int = 0
    queues: int = 0
    complete: bool = False
    lost: int = 0
    written: bool = False
    computes: dict[str, int] = field(default_factory=dict)
    faults: list[TapedelayError] = field(default_factory=list)
    spool: Path | None = None

    @property
    def exit_code(self) -> int:
        """Exit code of ``record``: the command's if it is not 0, else that of the worst fault."""
        if self.command_code:
            return self.command_code
        return max((f.exit_code for f in self.faults), default=0)

    @property
    def ended(self) -> str:
        """How the command ended, in words."""
        text = f"the command ended with {self.command_code}"
        if self.command_code > 128:
            with suppress(ValueError):
                text += f" ({signal.Signals(self.command_code - 128).name})"
        return text

    @property
    def untold(self) -> bool:
        """Whether the command failed and no fault says so."""
        return bool(self.command_code) and not any(self.ended in f.found for f in self.faults)

    def as_dict(self) -> dict[str, Any]:
        """Return everything for ``--json``."""
        return {
            "tape": str(self.output) if self.written else None,
            "ops": self.ops,
            "queues": self.queues,
            "computes": self.computes,
            "complete": self.complete,
            "lost": self.lost,
            "command_exit_code": self.command_code,
            "exit_code": self.exit_code,
            "faults": [f.as_dict() for f in self.faults],
            "spool": None if self.spool is None else str(self.spool),
        }


@dataclass(frozen=True)
class Evidence:
    """What is known about a run beside its records.

    Attributes
    ----------
    command : sequence of str
        The command; empty where there is none.
    hooks : list of dict
        Reports of the import hook: packages that were imported, and faults.
    python : bool
        Whether a Python loaded the import hook.
    """

    command: Sequence[str] = ()
    hooks: Sequence[dict[str, str]] = ()
    python: bool = False


def nothing_recorded(result: Recording, evidence: Evidence) -> TapedelayError:
    """Return the fault of a run in which no process loaded the plugin."""
    no_tape = _no_tape(result)
    refused = _refused(evidence)
    if refused:
        return _cannot(
            f"nothing was recorded: {refused}{no_tape}", "use a build of the engine whose ggml loads plugins"
        )
    off = "" if evidence.python else _switched_off(evidence.command)
    if off:  # whether it used an engine is not known
        return _cannot(
            f"nothing was recorded: Python with {off} does not load the import hook{no_tape}",
            f"run it without {off}",
        )
    if result.command_code:
        # one line: the command has said more
        return CannotJudge(f"{result.ended} before it used the engine{no_tape}", next_step="")
    found = f"nothing was recorded: no process loaded the plugin{no_tape}"
    if evidence.hooks:
        return _cannot(found, _GIVE_WORK)
    engines = " or ".join(engine_hook.ENGINES)
    if evidence.python:
        return _cannot(
            found,
            f"Python ran without importing {engines}: record the program that imports the engine",
        )
    return _cannot(
        found,
        f"see that the command runs {engines} in a Python that reads PYTHONPATH (-I, -E and -S keep it from "
        "the import hook), or a program whose ggml loads GGML_BACKEND_PATH",
    )


def faults_of(
    result: Recording, tape: Tape, evidence: Evidence, *, judge_default: bool
) -> list[TapedelayError]:
    """Return what keeps a tape from being what was asked for.

    Parameters
    ----------
    result : Recording
        With its counts filled in.
    tape : Tape
        What was recorded.
    evidence : Evidence
        What else is known.
    judge_default : bool
        Whether work on some GPU or test device is expected where no number of devices was asked for.
    """
    no_tape = "" if result.ops else _no_tape(result)
    stopped = [n for n in tape.manifest.notes if n.startswith("recording stopped early")]
    if stopped:
        return [
            InfrastructureError(
                f"{stopped[0]}{no_tape}",
                next_step="free space on the disk of the tape, or raise the limit on files (ulimit -f), and "
                "record again",
            )
        ]
    missing = "" if result.asked.devices is None and not judge_default else _missing(result, tape)
    if missing and result.command_code and not result.computes:
        before = "the engine computed anything" if result.ops else "it used the engine"
        return [CannotJudge(f"{result.ended} before {before}{no_tape}", next_step="")]
    if missing and result.asked.devices == 0 and not _real(tape):
        leave_out = spelled("devices", result.asked, "0")
        return [
            CannotJudge(
                f"no GPU backend was found{no_tape}",
                expected=f"one, as {leave_out} asks for",
                next_step=f"use a build of the engine that has one, or leave {leave_out} out to record on a "
                "test device",
            )
        ]
    if missing:
        failed = [
            f"{h['package']} {h['version']}: {h['fault']}".strip() for h in evidence.hooks if h["fault"]
        ]
        step = f"the plugin could not be loaded into {'; '.join(failed)}" if failed else _GIVE_WORK
        return [_cannot(f"{missing}{no_tape}", step)]
    if not result.ops:
        return [_cannot(f"no op was recorded{no_tape}", _GIVE_WORK)]
    return []


def _refused(evidence: Evidence) -> str:
    faults = [f"{h['package']} {h['version']}: {h['fault']}" for h in evidence.hooks if h.get("fault")]
    return f"the plugin could not be loaded into {'; '.join(faults)}" if faults else ""


def _no_tape(result: Recording) -> str:
    older = f", {result.output} is the older one" if result.output.exists() else ""
    return f"; no tape was written{older}"


def _missing(result: Recording, tape: Tape) -> str:
    """Say which device that was asked for did no work; empty if all did."""
    kinds = {_plain(d["name"]): d["kind"] for d in tape.table("devices").to_pylist()}
    test = [n for n, k in kinds.items() if k == "test"]
    working = {_plain(n) for n in result.computes}
    asked = result.asked.devices
    if asked:
        idle = [n for n in test if n not in working]
        if len(test) < asked:
            return f"only {len(test)} of {asked} test devices are there"
        return f"no compute was recorded on {', '.join(idle)}" if idle else ""
    real = _real(tape)
    wanted = real if asked == 0 else real + test
    if any(n in working for n in wanted):
        return ""
    return "no compute was recorded on any " + ("GPU" if asked == 0 else "GPU or test device")


def _real(tape: Tape) -> list[str]:
    return [_plain(d["name"]) for d in tape.table("devices").to_pylist() if d["kind"] in _REAL_GPUS]


def _plain(name: str) -> str:
    """Return a device's name without its process: any process may do the work."""
    return re.sub(r"^p\d+\.", "", name)


def _cannot(found: str, next_step: str) -> CannotJudge:
    return CannotJudge(found, expected="work on the device asked for", next_step=next_step)


def _switched_off(command: Sequence[str]) -> str:
    """Return the option of a Python command that keeps it from the import hook."""
    if not command or not re.match(r"(python|pypy)[\d.]*t?$", Path(command[0]).name):
        return ""
    words = iter(command[1:])
    for word in words:
        if not re.fullmatch(r"-[A-Za-z]+.*", word):
            break
        for i, letter in enumerate(word[1:], 1):
            if letter in "IES":
                return f"-{letter}"
            if letter in "cm":
                return ""
            if letter in "WX":  # the rest is the option's argument, or the next word
                if i == len(word) - 1:
                    next(words, None)
                break
    return ""
