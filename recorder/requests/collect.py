"""Raw recordings of request schedulers to the tables of a tape."""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from ...formats.builder import TapeBuilder, table_from_rows
from ...formats.requests.words import INPUT_KINDS
from ...formats.tape import Manifest, Process, Tape
from ..origin import Origin
from .frames import Frames, damaged, read_all
from .layout import ANSWER, DECISION, INPUT, INT_MAX, SCHEDULER, STOPPED
from .requested import Requests
from .rows import Rows
from .shapes import fault_of_event, fault_of_frame
from .ties import first_ops

__all__ = ["with_requests"]

_PACKAGE = __name__.partition(".")[0]
_SCHEDULERS_MAX = 1 << 16
"""Schedulers of a recording, and their pools."""
_STEP, _OUTPUT = INPUT_KINDS.index("step"), INPUT_KINDS.index("output")


def with_requests(
    tape: Tape | None, directory: Path, origin: Origin, *, until_ns: int | None = None
) -> Tape | None:
    """Return a tape with the request schedulers that were recorded beside its ops.

    Parameters
    ----------
    tape : Tape or None
        Device ops; None: no process recorded any.
    directory : Path
        The raw recording.
    origin : Origin
        Of the tape.
    until_ns : int, optional
        CLOCK_MONOTONIC: inputs from then on are left out.

    Returns
    -------
    Tape or None
        None where there is neither.

    Raises
    ------
    SpoolError
        A raw recording is damaged.
    """
    found = read_all(directory)
    if not found:
        return tape
    collector = _Collector(found, origin, until_ns)
    collector.run()
    if not collector.inputs.rows:
        return tape
    return collector.tape(tape)


class _Scheduler:
    """One scheduler while its frames are read: local numbers to those of the tape."""

    def __init__(self, number: int, pools: Sequence[int], process: int) -> None:
        self.number = number
        self.process = process
        self.pools = list(pools)
        self.requests: list[int] = []
        self.steps: dict[int, int] = {}
        """Input of each step that has no output yet."""
        self._next = [-1]
        """Request whose id follows: first of none, then of each request."""

    def add(self, request: int, after: int) -> None:
        """Note the next request, and whose id sorts right before its own."""
        self._next.append(self._next[after + 1])
        self._next[after + 1] = len(self.requests)
        self.requests.append(request)

    def ranked(self) -> Iterator[int]:
        """Yield the requests in the order of their ids."""
        at = self._next[0]
        while at >= 0:
            yield self.requests[at]
            at = self._next[at + 1]


class _Collector:
    def __init__(self, found: Sequence[Frames], origin: Origin, until_ns: int | None) -> None:
        self.found = found
        self.until_ns = until_ns
        self.processes = dict(origin.processes)
        self.since_ns = origin.since_ns
        self.schedulers: list[dict[str, Any]] = []
        self.pools: list[dict[str, Any]] = []
        self.requests = Requests()
        self.prefixes = Rows("prefixes")
        self.inputs, self.answers = Rows("inputs"), Rows("answers")
        self.decisions, self.blocks, self.resources = Rows("decisions"), Rows("blocks"), Rows("resources")
        self.known: list[_Scheduler] = []
        self.begun: list[tuple[int, int, int]] = []
        """Input, process and time of each step."""
        self.ended: dict[int, int] = {}
        """Time of the output of each of these inputs."""
        self.counts = [0] * len(found)
        for f in found:
            self.processes.setdefault(f.pid, len(self.processes))

    def run(self) -> None:
        """Read all frames, in the order of their times."""
        streams = [self._stream(i, f) for i, f in enumerate(self.found)]
        local: list[dict[int, _Scheduler]] = [{} for _ in self.found]
        for at_ns, i, frame in heapq.merge(*streams, key=lambda item: item[:2]):
            f = self.found[i]
            if frame[0] == SCHEDULER:
                made = self._scheduler(f, frame)
                if frame[1] in local[i]:
                    raise damaged(f"scheduler {frame[1]} twice", f.where)
                local[i][frame[1]] = made
                continue
            scheduler = local[i].get(frame[1])
            if scheduler is None:
                raise damaged("an input of a scheduler that is not told of", f.where)
            if self.since_ns is None:
                self.since_ns = -at_ns
            self._input(scheduler, f, at_ns, frame)
            self.counts[i] += 1

    def _stream(self, i: int, f: Frames) -> Iterator[tuple[int, int, list[Any]]]:
        at_ns = f.mono_ns
        for frame in f:
            fault = fault_of_frame(frame)
            if fault:
                raise damaged(fault, f.where)
            if frame[0] == INPUT:
                at_ns = frame[3]
                if self.until_ns is not None and at_ns >= self.until_ns:
                    return
            yield at_ns, i, frame

    def _scheduler(self, f: Frames, frame: list[Any]) -> _Scheduler:
        _, _, engine, version, config, pools = frame
        number = len(self.schedulers)
        if max(number, len(self.pools) + len(pools)) >= _SCHEDULERS_MAX:
            raise damaged(f"more than {_SCHEDULERS_MAX} schedulers or pools", f.where)
        self.schedulers.append(
            {
                "scheduler": number,
                "process": self.processes[f.pid],
                "engine": engine,
                "engine_version": version,
                "config": json.dumps(config, sort_keys=True, allow_nan=False),
            }
        )
        made = []
        for name, units, reserved, tokens in pools:
            made.append(len(self.pools))
            self.pools.append(
                {
                    "pool": len(self.pools),
                    "scheduler": number,
                    "name": name,
                    "units": units,
                    "reserved": reserved,
                    "tokens_per_unit": tokens,
                }
            )
        scheduler = _Scheduler(number, made, self.processes[f.pid])
        self.known.append(scheduler)
        return scheduler

    def _input(self, s: _Scheduler, f: Frames, at_ns: int, frame: list[Any]) -> None:
        (_, _, kind, _, request, requests, step, tokens, decode_only, value, word, arrive, new, prefixes,
         events, resources) = frame  # fmt: skip
        since = self.since_ns or 0
        for row in new:
            self._request(s, f, row, since)
        number = self.inputs.rows
        self.inputs.add(
            number,
            s.number,
            kind,
            None if request is None else _known(s.requests, request, f),
            None if requests is None else [_known(s.requests, r, f) for r in requests],
            step,
            tokens,
            decode_only,
            value,
            word,
            at_ns + since,
            _arrival(arrive, f, since),
            None,
        )
        if kind == _STEP and step is not None:
            s.steps[step] = number
            self.begun.append((number, s.process, at_ns + since))
        elif kind == _OUTPUT and step in s.steps:
            self.ended[s.steps.pop(step)] = at_ns + since
        for r, of, begin, end in prefixes:
            self.prefixes.add(_known(s.requests, r, f), _known(s.requests, of, f), begin, end)
        seq = 0
        for event in events:
            seq = self._event(s, f, number, seq, event)
        for pool, free, used in resources:
            self.resources.add(number, _known(s.pools, pool, f), free, used)

    def _request(self, s: _Scheduler, f: Frames, row: list[Any], since: int) -> None:
        local, after, prompt, most, priority, flags, reserve, arrive = row
        if after is not None:
            if local != len(s.requests) or after >= local:
                raise damaged(f"request {local} out of turn, or behind an unknown one", f.where)
            s.add(self.requests.add(s.number), after)
        request = _known(s.requests, local, f)
        if prompt is not None and not self.requests.told(request):
            arrived = _arrival(arrive, f, since)
            self.requests.tell(request, prompt, most, priority, flags, reserve, arrived)

    def _event(self, s: _Scheduler, f: Frames, number: int, seq: int, event: Any) -> int:
        fault = fault_of_event(event)
        if fault:
            raise damaged(fault, f.where)
        if event[0] == DECISION:
            _, kind, request, tokens, computed = event
            self.decisions.add(number, seq, _known(s.requests, request, f), kind, tokens, computed)
        elif event[0] == ANSWER:
            _, request, tokens, word = event
            self.answers.add(number, seq, _known(s.requests, request, f), tokens, word)
        else:
            _, action, pool, request, *units = event
            owner = None if request is None else _known(s.requests, request, f)
            for unit in units:
                self.blocks.add(number, seq, _known(s.pools, pool, f), action, unit, owner)
                seq += 1
            return seq
        return seq + 1

    # --- the tape ---

    def tape(self, tape: Tape | None) -> Tape:
        """Return the tape with what was read."""
        for s in self.known:
            for rank, request in enumerate(s.ranked()):
                self.requests.rank(request, rank)
        if tape is not None and tape.rows("ops"):
            ops = first_ops(tape, self.begun, self.ended, self.inputs.rows)
            self.inputs.set_column("op", ops, ops < 0)
        made = {
            name: table_from_rows(name, [{**dict.fromkeys(_NAMES[name]), **r} for r in rows])
            for name, rows in (
                ("schedulers", self.schedulers),
                ("pools", self.pools),
            )
            if rows
        }
        if len(self.requests):
            made["requests"] = self.requests.table()
        made |= {
            name: getattr(self, name).table()
            for name in ("prefixes", "inputs", "answers", "decisions", "blocks", "resources")
            if getattr(self, name).rows
        }
        base = TapeBuilder().build(Manifest(processes=(), complete=True)) if tape is None else tape
        tables = {name: base.table(name) for name in base.present} | made
        return Tape(self._manifest(base.manifest), tables, name=base.name)

    def _manifest(self, manifest: Manifest) -> Manifest:
        since = self.since_ns or 0
        processes = {p.process: p for p in manifest.processes}
        notes = list(manifest.notes)
        for f, count in zip(self.found, self.counts, strict=True):
            number = self.processes[f.pid]
            complete = f.complete or (self.until_ns is not None and f.status == 0)
            p = processes.get(number) or Process(number, wall_offset_ns=f.wall_ns - f.mono_ns - since)
            processes[number] = replace(
                p,
                complete=p.complete and complete,
                records=p.records + count,
                lost=p.lost + f.cut,
                wall_offset_ns=f.wall_ns - f.mono_ns - since
                if p.wall_offset_ns is None
                else p.wall_offset_ns,
            )
            if f.status == STOPPED:
                notes.append(
                    f"recording stopped early: the request scheduler's ({os.strerror(f.error)})"
                    if f.error
                    else "what a request scheduler did is missing from some moment on: its process said why"
                )
        engine = manifest.engine or {
            "name": self.schedulers[0]["engine"],
            "version": self.schedulers[0]["engine_version"],
        }
        return replace(
            manifest,
            created_by=manifest.created_by or f"tapedelay {import_module(_PACKAGE).__version__}",
            engine=engine,
            processes=tuple(processes[n] for n in sorted(processes)),
            complete=manifest.complete and all(p.complete for p in processes.values()),
            lost=manifest.lost + sum(f.cut for f in self.found),
            notes=tuple(notes),
        )


def _known(where: Sequence[int], number: Any, f: Frames) -> int:
    try:
        if number < 0:
            raise IndexError
        known: int = where[number]
    except IndexError:
        raise damaged(f"request or pool {number}, which is not told of", f.where) from None
    return known


def _arrival(wall_ns: int | None, f: Frames, since: int) -> int | None:
    """Return a time of the wall clock on that of the tape."""
    if wall_ns is None:
        return None
    time_ns = wall_ns - f.wall_ns + f.mono_ns + since
    if abs(time_ns) > INT_MAX:
        raise damaged("a request that arrives at an impossible time", f.where)
    return time_ns


_NAMES = {
    "schedulers": ("scheduler", "process", "engine", "engine_version", "config"),
    "pools": ("pool", "scheduler", "name", "units", "reserved", "tokens_per_unit"),
}
