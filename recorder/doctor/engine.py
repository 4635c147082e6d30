"""What of one engine can be recorded: found out by recording it, exactly as ``record`` does."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...formats.errors import MissingInput, SpoolError, TapedelayError
from ..asked import Asked
from ..companion import Companion
from ..evidence import Evidence, Watched, evidence_of
from ..outcome import Recording
from ..patience import Patience
from ..reasons import Reason, refused_by, unused_copy, why_nothing
from ..requests.layout import PATTERN
from ..session import record_command
from .finding import LIMIT, NO, OK, Finding
from .watch import Watch

if TYPE_CHECKING:
    from ..engines.ggml.definitions import DeviceDef, Spool

__all__ = ["Examined", "examine"]

_TOLD_ELSEWHERE = ("telemetry:", "no compute was recorded on any device")


@dataclass(frozen=True)
class Examined:
    """What came of it.

    Attributes
    ----------
    findings : list of Finding
        What was found.
    exit_code : int
        That of the worst fault that ``record`` would have told; 0 for none.
    """

    findings: list[Finding]
    exit_code: int


def examine(
    command: Sequence[str],
    asked: Asked,
    *,
    limit_s: float,
    folder: Path,
    signals: Patience,
    companions: Sequence[Companion] = (),
) -> Examined:
    """Record a command for a while and return what of it can be recorded, what cannot, and why.

    Parameters
    ----------
    command : sequence of str
        The command.
    asked : Asked
        As for ``record``.
    limit_s : float
        After how long the command is ended.
    folder : Path
        Where the recording lies meanwhile.
    signals : Patience
        As for ``record``.
    companions : sequence of Companion
        What goes along beside the watcher: the tap, if it is to be tried.

    Raises
    ------
    UsageError
        The command cannot be run.
    InfrastructureError
        There is no plugin, or no place for the recording.
    """
    watch = Watch(command, limit_s)
    with tempfile.TemporaryDirectory(prefix=".tapedelay-doctor.", dir=folder) as made:
        result = record_command(
            command,
            Path(made) / "doctor.tape",
            asked,
            signals=signals,
            keep_spool=True,
            companions=[*companions, watch],
        )
        assert result.spool is not None
        findings = [*_processes(watch.watched), *_packages(result.spool)]
        if watch.fault:
            findings.append(_unwatched(watch.fault))
        try:
            evidence = evidence_of(result.spool, command)
            spools = _spools(result.spool)
        except (MissingInput, SpoolError):  # that is among the faults
            evidence, spools = Evidence(command, watched=watch.watched), []
        findings += _recorded(spools, result)
        if companions and result.ops:
            findings.append(_tap(result))
        loaded = bool(spools) or any(result.spool.glob(PATTERN))
        findings += [_fault(f, result, evidence, loaded) for f in result.faults]
        if result.untold:
            until = "; what it did until then is recorded" * result.written
            findings.append(Finding("exit-code", LIMIT, f"{result.ended}{until}"))
    return Examined(findings, max((f.exit_code for f in result.faults), default=0))


def _spools(directory: Path) -> list[Spool]:
    from ..engines.ggml.spool import read_spools

    return read_spools(directory)


def _packages(spool: Path) -> Iterator[Finding]:
    from ..engines.ggml.collect import hook_reports

    with suppress(SpoolError):
        for report in hook_reports(spool):
            if not report["fault"]:
                name = f"{report['package']} {report['version']}".strip()
                yield Finding("package", OK, f"{name} was imported, and the plugin is in its ggml")


def _processes(watched: Watched) -> Iterator[Finding]:
    names = [
        p.name + " with the plugin" * p.plugin + " with a request scheduler" * p.scheduler
        for p in watched.processes
    ]
    if names:
        shown = ", ".join(dict.fromkeys(names))
        yield Finding("processes", OK, f"programs that ran: {shown}")
    if watched.stopped_s is not None:
        yield Finding("stopped", OK, f"the command was ended after {watched.stopped_s:g} s (--seconds)")


def _unwatched(fault: str) -> Finding:
    return Finding(
        "watch",
        LIMIT,
        f"the command's processes could not all be looked at ({fault})",
        "see that /proc can be read and that there is memory left: what is said of programs may lack some",
    )


# --- what was recorded --------------------------------------------------------------------------------------


def _recorded(spools: Sequence[Spool], result: Recording) -> Iterator[Finding]:
    seen: set[str] = set()
    for s in spools:
        if s.engine and "engine" not in seen:
            seen.add("engine")
            build = f" build {s.build}" if s.build else ""
            yield Finding("engine", OK, f"{s.engine}{build}, backend API version {s.api_version}")
        used = {q.device for q in s.queues}
        for index, device in enumerate(s.devices):
            if device.name not in seen:
                seen.add(device.name)
                yield _device(device, index in used, result.computes.get(device.name, 0))
    if result.written:
        yield from _schedulers(result)
        if result.ops or not result.schedulers:
            yield Finding("records", OK, f"{result.ops:,} ops on {result.queues} queues were recorded")
        yield from _notes(result)
    if result.lost:
        found = f"{result.lost:,} records were lost"
        yield Finding("lost", LIMIT, found, "record on a machine with more cores, or a faster disk")


def _schedulers(result: Recording) -> Iterator[Finding]:
    for engine, count in result.schedulers.items():
        many = f"{count} request scheduler{'s' * (count != 1)} of {engine}"
        yield Finding("scheduler", OK, f"{many}: every input and decision is recorded")


def _tap(result: Recording) -> Finding:
    if result.untapped:
        return Finding(
            "tap", LIMIT, result.untapped, "record without --tap: nothing else is missing on the tape"
        )
    return Finding("tap", OK, "the scheduler's steps, splits and graphs: recorded with --tap")


def _device(d: DeviceDef, used: bool, computes: int) -> Finding:
    from ..engines.ggml.definitions import Cap

    head = f"{d.name} ({'test device' if d.is_test else d.kind} of {d.reg})"
    if d.kind == "meta":
        return Finding("device", OK, f"{head}: its calls and those that it makes on its devices")
    if d.kind == "host":
        return Finding("device", OK, f"{head}: works on the calling thread; {_count(computes)}")
    can = ["calls are asynchronous" if d.caps & Cap.ASYNC else "no asynchronous calls"]
    can.append("events are recorded" if d.caps & Cap.EVENTS else "no events")
    can.append("pinned host memory" if d.caps & Cap.HOST_BUFFER else "no host memory of its own")
    can.append(_count(computes) if used else "not used")
    return Finding("device", OK, f"{head}: {', '.join(can)}")


def _count(computes: int) -> str:
    return f"{computes:,} compute{'s' * (computes != 1)}"


def _notes(result: Recording) -> Iterator[Finding]:
    from ...formats.load import load_tape
    from ..engines.ggml.tapped import NOT_SEEN

    with suppress(TapedelayError):
        for note in load_tape(result.output, validate=False).manifest.notes:
            if not note.startswith((*_TOLD_ELSEWHERE, NOT_SEEN)):
                yield Finding("note", OK if note.startswith("assumed: ") else LIMIT, note)


# --- what was not -------------------------------------------------------------------------------------------


def _fault(fault: TapedelayError, result: Recording, evidence: Evidence, loaded: bool) -> Finding:
    reason = _reason(result, evidence, loaded)
    if reason is not None:
        return Finding(reason.code, NO, fault.found.partition("; no tape was written")[0], reason.remedy)
    if evidence.watched.stopped_s is not None and not result.computes:
        code = "too-short"
    elif result.ended in fault.found:
        code = "ended-early"
    else:
        code = "no-work" if loaded else "not-loaded"
    found = fault.found.partition("; no tape was written")[0]
    by_itself = "see what the command says, and try it by itself"
    remedy = by_itself if code == "ended-early" else fault.next_step
    if result.spool is not None and str(result.spool) in remedy:  # which goes with our folder
        remedy = "record it with --keep-spool and please report it with what that keeps"
    return Finding(code, NO, found, remedy)


def _reason(result: Recording, evidence: Evidence, loaded: bool) -> Reason | None:
    """Return the reason that the fault is made of, as `faults_of` and `nothing_recorded` choose it."""
    if not loaded:
        return why_nothing(evidence)
    return (None if result.computes else unused_copy(evidence)) or refused_by(evidence)
