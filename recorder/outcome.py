"""What came of a recording, and what to tell the user about it: by what happened, not by what might have."""

from __future__ import annotations

import re
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..formats.errors import CannotJudge, InfrastructureError, TapedelayError, UsageError
from ..formats.shown import plural, quoted
from .asked import Asked, spelled
from .evidence import Evidence
from .hook import engine_hook
from .reasons import refused_by, unused_copy, why_nothing

if TYPE_CHECKING:
    from ..formats.tape import Tape
    from .delays import LineCount

__all__ = ["Evidence", "Recording", "ask_doctor", "faults_of", "nothing_recorded"]

_REAL_GPUS = ("gpu", "igpu")
_SHOWN_MAX = 200
_STOPPED = "recording stopped early"
_UNRECORDED = "not recorded"
_NO_COMPUTE = "no compute was recorded on"
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
    ops, queues : int
        Rows on the tape.
    complete : bool
        Whether each process came to its end and lost nothing.
    lost : int
        Records that found no room.
    written : bool
        Whether the tape was written: not where nothing was recorded.
    computes : dict of str to int
        Computes recorded, by device.
    faults : list of TapedelayError
        What is wrong with the recording, worst first; empty: it is what was asked for.
    spool : Path or None
        The raw recording, if it was kept.
    dropped : int
        Older records that a flight recorder dropped.
    saved : list of Path
        Tapes that were saved on the way.
    living : Path or None
        The raw recording while it grows, inside of ``with record(...)``.
    delays : tuple of LineCount or None
        How often each line of the plan was applied; None without a plan.
    schedulers : dict of str to int
        Request schedulers recorded, by engine.
    inputs : int
        What reached them.
    untapped : str
        Why there is nothing of the scheduler on the tape though the tap was asked for.
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
    dropped: int = 0
    saved: list[Path] = field(default_factory=list)
    living: Path | None = field(default=None, repr=False)
    delays: tuple[LineCount, ...] | None = None
    schedulers: dict[str, int] = field(default_factory=dict)
    inputs: int = 0
    untapped: str = ""

    def save(self, output: str | Path, *, force: bool = False) -> Path:
        """Save what was recorded so far, inside of ``with record(...)``; the engine may go on meanwhile.

        Parameters
        ----------
        output : str or Path
            The tape: a directory, or one file if it ends in ``.zip``.
        force : bool
            Replace a tape that is there.

        Returns
        -------
        Path
            `output`.

        Raises
        ------
        UsageError
            The recording is over, or the output is there already.
        InfrastructureError
            It could not be done.
        """
        from .saving import save_living
        from .target import target

        if self.living is None:
            raise UsageError(
                "this recording is over", expected="a call inside of `with record(...)`", where=str(output)
            )
        path = target(Path(output).absolute(), self.asked, force)
        save_living(self.living, path)
        self.saved.append(path)
        return path

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
            "schedulers": self.schedulers,
            "inputs": self.inputs,
            "complete": self.complete,
            "lost": self.lost,
            "dropped": self.dropped,
            "saved": [str(p) for p in self.saved],
            "command_exit_code": self.command_code,
            "exit_code": self.exit_code,
            "faults": [f.as_dict() for f in self.faults],
            "spool": None if self.spool is None else str(self.spool),
            "delays": None if self.delays is None else [d.as_dict() for d in self.delays],
            "untapped": self.untapped or None,
        }


def nothing_recorded(result: Recording, evidence: Evidence) -> TapedelayError:
    """Return the fault of a run in which no process loaded the plugin, or none could write."""
    no_tape = _no_tape(result)
    unwritten = [n for n in evidence.refusals if n.startswith(_STOPPED)]
    if unwritten:
        return _stopped(unwritten[0], no_tape)
    reason = why_nothing(evidence)
    if reason is not None:
        return _cannot(f"nothing was recorded: {reason.found}{no_tape}", reason.remedy, evidence)
    if evidence.watched.stopped_s is not None:
        given = f"{evidence.watched.stopped_s:g} s"
        return _cannot(
            f"nothing was recorded: the command did not use the engine within {given}{no_tape}",
            "give it more time with --seconds",
            evidence,
        )
    if result.command_code:
        return _ended_before("it used the engine", result, no_tape, evidence)
    found = f"nothing was recorded: no process loaded the plugin{no_tape}"
    if evidence.hooks:
        return _cannot(found, _GIVE_WORK, evidence)
    engines = " or ".join((*engine_hook.ENGINES, *(n.partition(".")[0] for n in engine_hook.SCHEDULERS)))
    if evidence.python:
        return _cannot(
            found,
            f"Python ran without importing {engines}: record the program that imports the engine",
            evidence,
        )
    return _cannot(
        found,
        f"see that the command runs {engines} in a Python that reads PYTHONPATH (-I, -E and -S keep it from "
        "the import hook), or a program whose ggml loads GGML_BACKEND_PATH",
        evidence,
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
    no_tape = "" if result.ops or result.inputs else _no_tape(result)
    stopped = [n for n in tape.manifest.notes if n.startswith(_STOPPED)]
    if stopped:
        return [_stopped(stopped[0], no_tape)]
    unrecorded = [r for r in evidence.refusals if _UNRECORDED in r]
    if result.inputs and unrecorded:
        return [
            InfrastructureError(
                unrecorded[0],
                expected="a request scheduler that is recorded from its begin to its end",
                next_step="please report it; what the tape holds is sound",
            )
        ]
    if result.inputs and result.asked.devices is None:  # an engine that is recorded above its devices
        return []
    missing = "" if result.asked.devices is None and not judge_default else _missing(result, tape)
    dropped = tape.manifest.dropped
    if missing.startswith(_NO_COMPUTE) and dropped and not (result.asked.devices == 0 and not _real(tape)):
        return [
            CannotJudge(
                f"{missing} in what was kept; {plural(dropped, 'older record')} dropped",
                expected="work on the device asked for among the last records",
                next_step=f"keep more of them: give a greater {spelled('last', result.asked)}",
            )
        ]
    if missing and result.command_code and not result.computes:
        before = "the engine computed anything" if result.ops else "it used the engine"
        return [_ended_before(before, result, no_tape, evidence)]
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
        copy = None if result.computes else unused_copy(evidence)
        if copy is not None:
            return [_cannot(f"{missing}: {copy.found}{no_tape}", copy.remedy, evidence)]
        refused = refused_by(evidence)
        return [_cannot(f"{missing}{no_tape}", refused.found if refused else _GIVE_WORK, evidence)]
    if not result.ops:
        return [_cannot(f"no op was recorded{no_tape}", _GIVE_WORK, evidence)]
    return []


def _stopped(said: str, no_tape: str) -> InfrastructureError:
    return InfrastructureError(f"{said}{no_tape}", next_step=f"{_room(said)}, and record again")


def _room(stopped: str) -> str:
    """Return what helps a recording that had to stop early."""
    if "memory" in stopped:
        return "give the process more memory (ulimit -v, or the limit of its container)"
    if "threads" in stopped:
        return "raise the limit on threads (ulimit -u, or the limit of its container)"
    return "free space on the disk of the tape, or raise the limit on files (ulimit -f)"


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
        return f"{_NO_COMPUTE} {', '.join(idle)}" if idle else ""
    real = _real(tape)
    wanted = real if asked == 0 else real + test
    if any(n in working for n in wanted):
        return ""
    return f"{_NO_COMPUTE} any " + ("GPU" if asked == 0 else "GPU or test device")


def _real(tape: Tape) -> list[str]:
    return [_plain(d["name"]) for d in tape.table("devices").to_pylist() if d["kind"] in _REAL_GPUS]


def _plain(name: str) -> str:
    """Return a device's name without its process: any process may do the work."""
    return re.sub(r"^p\d+\.", "", name)


def _cannot(found: str, next_step: str, evidence: Evidence) -> CannotJudge:
    return CannotJudge(
        found, expected="work on the device asked for", next_step=f"{next_step}{ask_doctor(evidence)}"
    )


def _ended_before(what: str, result: Recording, no_tape: str, evidence: Evidence) -> CannotJudge:
    return CannotJudge(f"{result.ended} before {what}{no_tape}", next_step=_doctor(evidence))


def ask_doctor(evidence: Evidence) -> str:
    """Return the command that looks closer, as the end of a next step; empty where it is that command."""
    command = _doctor(evidence)
    return f"; more is told by: {command}" if command else ""


def _doctor(evidence: Evidence) -> str:
    if evidence.watched.processes:
        return ""
    command = " ".join(map(quoted, evidence.command))
    if not evidence.command:  # a program that records itself cannot be recorded by another one
        return "tapedelay doctor -- COMMAND, where COMMAND runs the engine without `with record(...)`"
    return f"tapedelay doctor -- {command if len(command) <= _SHOWN_MAX else 'COMMAND'}"
