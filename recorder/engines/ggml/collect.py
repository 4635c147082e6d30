"""Spools to a tape."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ....formats.builder import TapeBuilder
from ....formats.commands.progress import Progress
from ....formats.errors import InfrastructureError, SpoolError
from ....formats.profiles import BUILTIN
from ....formats.rules.manifest import looks_like_path
from ....formats.switches import TABLE
from ....formats.tape import DelayLine, Manifest, Tape
from ...delays.spool import read_line_counts
from ...files import REPORT_BYTES_MAX, read_regular
from ...origin import Origin
from ...tap import TAP_ASKED
from ...telemetry.table import Place, with_telemetry
from .definitions import Spool
from .delays import delays_table
from .graphs import GraphTables
from .joins import Ints
from .last import cut_off, keep_last, line_up
from .places import Naming
from .process import ProcessCollector
from .rows import AccessSets, OpRows
from .said import exec_notes
from .spool import read_spools
from .tapped import tap_notes
from .thread_rows import thread_rows

__all__ = ["collect", "collect_directory", "collect_with_origin", "hook_reports"]

_PACKAGE = __name__.partition(".")[0]
"""It knows its version in a source tree too, where there is no metadata of a distribution."""
_HANDOVERS = {
    "backend": "ggml callers serialise calls on one backend object",
    "weights": "weights are loaded before another thread uses them",
}
_PATH = re.compile(r"(?:[A-Za-z]:)?[\\/][^\s:;,'\")]+")
_WORD = re.compile(r"[A-Za-z0-9_.+-]{1,24}")
_TEXT_MAX = 500
_SAID_MAX = 100
_LINES_MAX = 1000
"""Lines of a plan that the manifest holds."""
_READ, _WALKED, _STEPS = 40, 85, 100
"""Percent of the work that is done when all spools are read, and when their ops are made."""
_REPORT = ("package", "version", "fault")


def collect_directory(
    directory: Path, *, until_ns: int | None = None, progress: Progress | None = None
) -> Tape:
    """Return the tape of `collect_with_origin`."""
    return collect_with_origin(directory, until_ns=until_ns, progress=progress)[0]


def collect_with_origin(
    directory: Path, *, until_ns: int | None = None, progress: Progress | None = None
) -> tuple[Tape, Origin]:
    """Read all spools of a directory and return them as one tape, and where its times come from.

    Parameters
    ----------
    directory : Path
        The folder.
    until_ns : int, optional
        CLOCK_MONOTONIC: the processes go on, and what they record from then on is left out.
    progress : callable, optional
        Told now and then how much is done.

    Raises
    ------
    SpoolError
        There is nothing to collect, or a spool is damaged.
    """
    say = progress or _nobody
    say(0, _STEPS)
    spools = read_spools(directory)
    say(_READ, _STEPS)
    if until_ns is not None:
        cut_off(spools, until_ns)
    line_up(spools)
    keep_last(spools)
    if not spools:
        raise SpoolError(
            "no process wrote a spool",
            expected="at least one process that loaded the plugin",
            where=directory.name,
            next_step="see that the program loads ggml and that ggml can load plugins",
        )
    tape = _Collector(spools, (directory / TAP_ASKED).exists(), say).tape()
    tape.manifest = replace(tape.manifest, delays=_plan(directory))
    packages = hook_reports(directory)
    if packages and tape.manifest.engine:
        engine = {
            **tape.manifest.engine,
            "package": packages[0]["package"],
            "package_version": packages[0]["version"],
        }
        tape.manifest = replace(tape.manifest, engine=engine)
    since_ns = _since_origin(tape, spools)
    origin = Origin(since_ns, {s.pid: process for process, s in enumerate(spools)})
    return with_telemetry(tape, directory, _places(tape, spools), since_ns), origin


def _places(tape: Tape, spools: Sequence[Spool]) -> list[Place]:
    """Return the devices of the tape with what NVML may know them by."""
    ids = {d["name"]: d["device"] for d in tape.table("devices").to_pylist()}
    return [
        Place(ids[name], d.reg == "CUDA", d.bus)
        for process, s in enumerate(spools)
        for d in s.devices
        if (name := f"p{process}.{d.name}" if process else d.name) in ids and not d.is_test
    ]


def _since_origin(tape: Tape, spools: Sequence[Spool]) -> int | None:
    """Return what turns CLOCK_MONOTONIC into times of the tape; None: nothing was recorded."""
    for made, s in zip(tape.manifest.processes, spools, strict=True):
        if made.wall_offset_ns is not None:
            return s.wall_ns - s.mono_ns - made.wall_offset_ns
    return None


def _plan(directory: Path) -> tuple[DelayLine, ...]:
    """Return the plan under which the recording was made, as the manifest may hold it."""
    found = read_line_counts(directory)
    lines = [] if found is None else found[2][:_LINES_MAX]
    # Names may hold slashes and backslashes: only what the specification takes for a path is masked.
    return tuple(
        DelayLine(c.line, _mask(c.text) if looks_like_path(c.text) else c.text[:_TEXT_MAX], c.count)
        for c in lines
    )


def hook_reports(directory: Path) -> list[dict[str, str]]:
    """Return what the import hook left behind: each engine's package, its version, and what went wrong.

    Raises
    ------
    SpoolError
        Something else lies there under the name of a report.
    """
    reports = []
    for path in sorted(directory.glob("hook-*.json")):
        with suppress(InfrastructureError, OSError, ValueError, RecursionError):
            report = json.loads(read_regular(path, REPORT_BYTES_MAX))
            if isinstance(report, dict) and all(isinstance(report.get(k), str) for k in _REPORT):
                reports.append({k: _mask(report[k]) for k in _REPORT})
    return reports


def collect(spools: Sequence[Spool], *, tap_asked: bool = False) -> Tape:
    """Return the tape of some processes' spools.

    Times count from the first record of any process; processes are lined up by the monotonic clock that they
    share, else by their wall clocks. Addresses, process ids and device descriptions stay behind.
    """
    return _Collector(spools, tap_asked, _nobody).tape()


def _nobody(done: int, total: int) -> None:
    """Nobody wants to know how much is done."""


class _Collector:
    def __init__(self, spools: Sequence[Spool], tap_asked: bool, say: Progress) -> None:
        self._say = say
        self.spools = list(spools)
        self.tap_asked = tap_asked
        self.builder = TapeBuilder()
        self.naming = Naming()
        self.graphs = GraphTables(self.builder)
        self.rows = OpRows()
        self.sets = AccessSets()
        self.origin_ns = min(
            (int(s.records["issue_ns"][0]) + s.shift_ns for s in spools if len(s.records)), default=0
        )

    def tape(self) -> Tape:
        positions = self._positions()
        done = [
            ProcessCollector(
                s,
                p,
                at,
                s.shift_ns - self.origin_ns,
                threads=threads,
                rows=self.rows,
                sets=self.sets,
                builder=self.builder,
                naming=self.naming,
                graphs=self.graphs,
            )
            for p, (s, at, threads) in enumerate(
                zip(self.spools, positions, thread_rows(self.spools), strict=True)
            )
        ]
        records = max(1, sum(len(s.records) for s in self.spools))
        seen = 0
        for d in done:
            d.run()
            seen += len(d.spool.records)
            self._say(_READ + (_WALKED - _READ) * seen // records, _STEPS)
        ops = self.rows.finish()
        for d in done:
            d.link_buffers()
        nodes = self.graphs.finish(self.rows)
        built = self.builder.build()
        tables = {n: built.table(n) for n in built.present}
        tables |= {"ops": ops, "accesses": self.sets.finish(), **nodes}
        delays = delays_table([d.delays() for d in done], self.rows.numbered)
        if delays is not None:
            tables["delays"] = delays
        return Tape(self._manifest(done), tables)

    def _positions(self) -> list[Ints]:
        """Give every record of every process its place in one issue order."""
        times = [s.records["issue_ns"].astype(np.int64) + s.shift_ns for s in self.spools]
        owner = np.repeat(np.arange(len(times)), [len(t) for t in times])
        # Stable: within a process the order stays, and of two processes the first goes first.
        order = np.argsort(np.concatenate([np.empty(0, np.int64), *times]), kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return [rank[owner == i] for i in range(len(times))]

    def _manifest(self, done: list[ProcessCollector]) -> Manifest:
        first = next((s for s in self.spools if s.engine), None)
        engine: dict[str, Any] = {}
        if first is not None:
            engine = {
                "name": _mask(first.engine),
                "build": _mask(first.build),
                "api_version": first.api_version,
            }
        notes = tap_notes(self.spools, self.tap_asked)
        notes += exec_notes(self.spools)
        for d in done:
            notes += [n for n in map(_mask, d.notes()[-_SAID_MAX:]) if n not in notes]
        handed = sum((d.handovers for d in done), Counter[str]())
        for why, note in _HANDOVERS.items():
            if handed[why]:
                times = f"{handed[why]} hand-over{'s' * (handed[why] != 1)}"
                notes.append(f"assumed: {times} between host threads ({note})")
        engine["device_compute"] = any(d.device_computes for d in done)
        if not engine["device_compute"]:
            notes.append("no compute was recorded on any device but the host")
        builds = {(s.engine, s.build) for s in self.spools if s.engine}
        if len(builds) > 1:
            notes.append(f"{len(builds)} engine builds in one recording: the manifest names the first")
        switches: dict[str, str] = {}
        for s in self.spools:
            for name, word in list(s.switches.items())[:_SAID_MAX]:
                if name not in TABLE:
                    switches.setdefault(_mask(name), word if _WORD.fullmatch(word) else "on")
                elif word in TABLE[name].states:  # what no reader knows orders nothing
                    switches.setdefault(name, word)
        return Manifest(
            created_by=f"tapedelay {import_module(_PACKAGE).__version__}",
            engine=engine,
            profiles=_profiles(self.builder),
            processes=tuple(d.process_entry() for d in done),
            coverage=tuple(c for d in done for c in d.coverage()),
            switches=switches,
            notes=tuple(notes),
            complete=all(s.complete for s in self.spools),
            lost=sum(s.lost for s in self.spools),
            dropped=sum(s.dropped for s in self.spools),
        )


def _mask(text: str) -> str:
    """Return words of the recorder as the manifest may hold them: short, encodable, without paths."""
    words = text[:_TEXT_MAX].encode("utf-8", "replace").decode()
    return _PATH.sub("<path>", words)


def _profiles(builder: TapeBuilder) -> dict[str, dict[str, Any]]:
    used = {d["profile"] for d in builder.rows("devices")}
    return {name: BUILTIN[name].as_dict() for name in sorted(used) if name in BUILTIN}
