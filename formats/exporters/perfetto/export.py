"""Writes the trace: ops in the order in which they start, then counters and findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np

from ...columns import Columns
from ...edges import resolve
from ...edges.contract import ISSUE, PROGRAM
from ...shown import printable
from ...tape import Tape
from ..edges import Edges
from ..lanes import Lanes
from ..mark import Mark
from ..timeline import WORK, Timeline, timeline
from ..titles import Titles
from .counters import counters
from .flows import Flows, positions
from .packets import Packets
from .tracks import Tracks

__all__ = ["Progress", "Written", "write_perfetto"]

Progress = Callable[[int, int], None]
"""Called now and then with how many of how many ops are done."""

_CHUNK = 8192
_WAITS = "waits and marks"
_ISSUES = "issues"
_ENDS = "waits ended"
_LAST = 1_000_000


@dataclass(frozen=True)
class Written:
    """What a trace holds.

    Attributes
    ----------
    ops, flows, counters, findings : int
        How many of each.
    backward : int
        Edges that the recorded times turn backwards: not shown.
    recorded : bool
        The times are those of the tape; false: it has none.
    """

    ops: int
    flows: int
    counters: int
    findings: int
    backward: int
    recorded: bool

    def as_dict(self) -> dict[str, int | bool]:
        """Return the numbers for ``--json``."""
        return {
            "ops": self.ops,
            "flows": self.flows,
            "counters": self.counters,
            "findings": self.findings,
            "backward": self.backward,
            "times_recorded": self.recorded,
        }


def write_perfetto(
    tape: Tape,
    file: IO[bytes],
    *,
    marks: Sequence[Mark] = (),
    edges: Edges | None = None,
    progress: Progress | None = None,
) -> Written:
    """Write a tape as a Perfetto trace.

    Parameters
    ----------
    tape : Tape
        A valid tape.
    file : binary file
        Where to; written in order, packet after packet.
    marks : sequence of Mark
        Findings to be shown.
    edges : tuple of arrays, optional
        The edges of its contract, where they are at hand.
    progress : callable, optional
        Called with the ops done and the ops in all.

    Returns
    -------
    Written
        What the trace holds.

    Raises
    ------
    InfrastructureError
        The package `perfetto` is not installed.
    InvalidTape
        If a reference of the tape points nowhere.
    """
    packets = Packets(file)
    return _Trace(tape, packets, marks, edges, progress).write()


class _Trace:
    def __init__(
        self,
        tape: Tape,
        packets: Packets,
        marks: Sequence[Mark],
        edges: Edges | None,
        progress: Progress | None,
    ) -> None:
        self.tape, self.packets, self.marks, self.progress = tape, packets, marks, progress
        self.ops = Columns(tape.table("ops"))
        contract = None
        if edges is None:
            contract = resolve(tape)
            edges = (contract.source, contract.target, contract.rule)
        self.times: Timeline = timeline(tape, contract)
        self.place = positions(edges[0], edges[1], self.times)
        self.pairs = [self._forward(m) for m in marks if m.link]
        self.flows = self._flows(edges)
        self.titles = Titles(tape)
        self.tracks = Tracks(tape, packets)
        self.issues: dict[int, int] = {}
        self.issued = self.issues_backward = 0
        self.found_in: dict[int, list[str]] = {}
        for mark in marks:
            for row in mark.rows:
                self.found_in.setdefault(row, []).append(mark.title)

    def _forward(self, mark: Mark) -> tuple[int, int]:
        """Return the pair in the order in which the two began: a flow cannot go back in time."""
        first, second = mark.rows[0], mark.rows[1]
        when = [(int(self.times.start_ns[r]), int(self.place[r])) for r in (first, second)]
        return (first, second) if when[0] <= when[1] else (second, first)

    def _flows(self, edges: Edges) -> Flows:
        source, target, rule = edges
        queue = self.ops.ints("queue")
        crosses = (queue[source] != queue[target]) & (rule != PROGRAM) & (rule != ISSUE)
        pairs = np.array(self.pairs, np.int64).reshape(-1, 2)
        return Flows(
            np.concatenate((source[crosses], pairs[:, 0])),
            np.concatenate((target[crosses], pairs[:, 1])),
            self.times,
            self.place,
        )

    def write(self) -> Written:
        """Write everything."""
        self._findings_track()
        self._ops()
        self._late()
        n_counters = self._counters()
        self._findings()
        self._about()
        self.packets.flush()
        return Written(
            ops=self.ops.rows,
            flows=self.flows.shown + self.issued,
            counters=n_counters,
            findings=len(self.marks),
            backward=self.flows.backward + self.issues_backward,
            recorded=self.times.recorded,
        )

    # --- ops ---

    def _ops(self) -> None:
        ops, times = self.ops, self.times
        order = np.lexsort((self.place, times.start_ns))
        work = ops.words("kind").isin(WORK)
        columns = (
            ops.ints("op"), ops.ints("queue"), ops.ints("issuer"), ops.ints("parent"), times.issue_ns,
            times.start_ns, times.end_ns, times.lasting, work,
        )  # fmt: skip
        for begin in range(0, ops.rows, _CHUNK):
            rows = order[begin : begin + _CHUNK]
            for row, *values in zip(rows.tolist(), *(c[rows].tolist() for c in columns), strict=True):
                self._op(row, *values)
            if self.progress is not None:
                self.progress(min(begin + _CHUNK, ops.rows), ops.rows)

    def _op(
        self, row: int, op: int, queue: int, issuer: int, parent: int, issue: int, start: int, end: int,
        lasting: bool, work: bool,
    ) -> None:  # fmt: skip
        flows, packets, tracks = self.flows, self.packets, self.tracks
        name = self.titles.title(row)
        ends = list(flows.end_at_begin(row))
        if issuer not in (-1, queue):
            if issue <= start:
                self.issued += 1
                ends.append(flows.shown + self.issued)
                packets.event(
                    self._issues(issuer), issue, f"issue {name}", ("issue",), {"op": op},
                    instant=True, flows=ends[-1:],
                )  # fmt: skip
            else:
                self.issues_backward += 1
        track = tracks.place(queue, "" if work else _WAITS, op, parent, start, end)
        categories = [self.titles.kind(row)]
        if row in self.found_in:
            categories.append("finding")
        packets.event(
            track, start, name, categories, self._notes(row, op),
            instant=not lasting, flows=flows.leave(row), ends=ends,
        )  # fmt: skip
        if lasting:
            packets.end(track, end)

    def _late(self) -> None:
        """Write where waits end that began before what they waited for: after all else of that instant."""
        queue, end = self.ops.ints("queue"), self.times.end_ns
        tracks: dict[int, int] = {}
        for row in self.flows.late.tolist():
            mine = int(queue[row])
            if mine not in tracks:
                name = f"{self.titles.queues[mine]} {_ENDS}"
                tracks[mine] = self.tracks.new(
                    name, self.tracks.queue(mine), rank=_LAST, about="when waits ended"
                )
            name = f"end of {self.titles.title(row)}"
            notes = {"op": int(self.ops.ints("op")[row])}
            flows = self.flows.end_at_end(row)
            self.packets.event(tracks[mine], int(end[row]), name, ("end",), notes, instant=True, ends=flows)

    def _issues(self, issuer: int) -> int:
        track = self.issues.get(issuer)
        if track is None:
            about = "when this thread handed ops to queues"
            own = self.tracks.queue(issuer)
            name = f"{self.titles.queues[issuer]} {_ISSUES}"
            track = self.issues[issuer] = self.tracks.new(name, own, rank=_LAST, about=about)
        return track

    def _notes(self, row: int, op: int) -> dict[str, int | str]:
        ops, titles = self.ops, self.titles
        notes: dict[str, int | str] = {"op": op}
        if label := ops.words("label")[row]:
            notes["label"] = printable(label)
        if name := titles.name(row):
            notes["name"] = name
        reads, writes = titles.touched(row)
        if reads:
            notes["reads"] = reads
        if writes:
            notes["writes"] = writes
        if what := titles.object(row):
            notes["object"] = what
        for column in ("bytes", "step", "split", "arg", "value"):
            if ops.valid(column)[row]:
                notes[column] = int(ops.ints(column)[row])
        if not self.times.timed[row]:
            notes["time"] = "not recorded: where the row before it stands"
        for title in self.found_in.get(row, ()):
            notes["finding"] = title
        return notes

    # --- the rest ---

    def _counters(self) -> int:
        n = 0
        for counter in counters(self.tape, self.times):
            n += 1
            track = self.tracks.counter(counter.device, counter.name, counter.unit, counter.about)
            for at, value in zip(counter.at_ns.tolist(), counter.value.tolist(), strict=True):
                self.packets.count(track, at, value)
        return n

    def _findings_track(self) -> None:
        if self.marks:
            self.top = self.tracks.findings("what `tapedelay check` found; the flow is the missing edge")

    def _findings(self) -> None:
        pairs = iter(self.pairs)
        flow = self.flows.shown + self.issued
        for n, mark in enumerate(self.marks, 1):
            group = self.tracks.new(f"{n}: {mark.title}", self.top, rank=n, about=mark.text)
            rows = next(pairs) if mark.link else sorted(mark.rows, key=lambda r: int(self.times.start_ns[r]))
            lanes: dict[int, int] = {}
            assigned = Lanes()
            flow += bool(mark.link)
            for i, row in enumerate(rows):
                start, end = int(self.times.start_ns[row]), int(self.times.end_ns[row])
                lane = assigned.place(row, -1, start, end)
                if lane not in lanes:
                    lanes[lane] = (
                        group if not lane else self.tracks.new(f"{n}: overlap {lane}", group, rank=lane)
                    )
                self._finding(mark, row, lanes[lane], (start, end), [flow] if mark.link else [], i)

    def _finding(
        self, mark: Mark, row: int, track: int, at: tuple[int, int], flow: list[int], place: int
    ) -> None:
        where = mark.rows.index(row)
        role = ("first", "second")[where] if mark.link else "op"
        notes: dict[str, int | str] = {"op": int(self.ops.ints("op")[row]), "finding": mark.text}
        if mark.link:
            notes[mark.link] = f"from {mark.labels[0]} to {mark.labels[1]}"
        notes.update(mark.facts)
        lasting = bool(self.times.lasting[row])
        self.packets.event(
            track, at[0], f"{role}: {mark.labels[where]} {self.titles.title(row)}",
            ("finding", *([mark.link] if mark.link else [])), notes,
            instant=not lasting, flows=[] if place else flow, ends=flow if place else [],
        )  # fmt: skip
        if lasting:
            self.packets.end(track, at[1])

    def _about(self) -> None:
        manifest = self.tape.manifest
        notes: dict[str, int | str] = {"ops": self.ops.rows}
        for key, value in manifest.engine.items():
            notes[f"engine {printable(str(key))}"] = printable(str(value))
        for i, note in enumerate((*self.tape.remarks, *manifest.notes)):
            notes[f"note {i}"] = printable(note)
        if not self.times.recorded:
            notes["times"] = "not recorded: each op starts as soon as the edges allow"
        self.packets.event(self.tracks.root, 0, printable(self.tape.name), ("tape",), notes, instant=True)
