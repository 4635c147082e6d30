"""What a run's reads saw, compared with the reference run on the same device."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ....formats.errors import ReplayFailed
from ...layout import Layout
from ...outcome import AT_END, Outcome, Seen, WrongRead, own_first
from .decode import Decoder, content_of, joined
from .graph import Graph
from .lives import Lives
from .memory import Access, Memory
from .run import Trace
from .values import Bytes

__all__ = ["Judge"]


_VALUES = ("stale", "torn")


class Judge:
    """Judges the runs of one program.

    Parameters
    ----------
    reference : Trace
        A run pinned to the reference order.

    Raises
    ------
    ReplayFailed
        The reference run is not what its order says: something was read while it was written.
    """

    def __init__(self, graph: Graph, memory: Memory, lives: Lives, reference: Trace, name: str) -> None:
        self.graph, self.memory, self.lives, self.reference = graph, memory, lives, reference
        self._unit = graph.contract.unit
        self._hulls: dict[tuple[int, int], tuple[int, int]] = {}
        for a in memory.all:
            begin, end = self._hulls.get((a.row, a.access), (a.begin, a.end))
            self._hulls[a.row, a.access] = min(begin, a.begin), max(end, a.end)
        before, after = reference.before, reference.after
        unordered = [a for a in memory.all if a.judged and before[a.index] != after[a.index]]
        if unordered:
            raise ReplayFailed(
                f"op {unordered[0].op} read what was being written, though everything ran one after another",
                expected="a runtime that keeps to the wait lists of events",
                where=name,
                next_step="choose another device (TAPEDELAY_OPENCL)",
            )
        self._expected = Decoder(memory, reference.stamp, reference.stamp)

    def outcome(self, trace: Trace, limit: int, notes: tuple[str, ...]) -> Outcome:
        """Return the outcome of a run."""
        graph, rows = self.graph, len(self._unit)
        start, end = np.full(rows, -1, np.int64), np.full(rows, -1, np.int64)
        for row, unit in enumerate(self._unit):
            if unit in graph.home:
                start[row], end[row] = trace.start_ns[unit], trace.end_ns[unit]
        wrong = self._whole([*self._wrong_reads(trace), *self.lives.facts(trace)])
        # Of two that meet, the one that has just started comes first; values come before lifetimes.
        starts = trace.start_ns
        wrong.sort(key=lambda w: (w.at_ns, w.kind not in _VALUES, w.at_ns > starts[self._unit[w.row]]))
        wrong += self._at_end(trace)
        stuck = graph.order.stuck
        accesses = [a for a in self.memory.all if a.judged and trace.start_ns[self._unit[a.row]] >= 0]
        reads = len({(a.row, a.access) for a in accesses}) + len(self._roots())
        return Outcome(
            "opencl",
            trace.issue_ns,
            start,
            end,
            [_told(w) for w in own_first(wrong, limit)],
            len(wrong),
            sum(not w.derived for w in wrong),
            _chain(wrong, graph),
            reads=reads,
            stuck=tuple(sorted(r for u in stuck.units for r in graph.contract.rows_of(u))),
            never=stuck.never,
            cycles=stuck.cycles,
            notes=notes,
        )

    def _wrong_reads(self, trace: Trace) -> list[WrongRead]:
        reference = self.reference
        decoder: Decoder | None = None
        found = []
        for a in self.memory.all:
            unit = self._unit[a.row]
            if not a.judged or trace.start_ns[unit] < 0:
                continue
            stale = trace.before[a.index] != reference.before[a.index]
            during = trace.done_ns[unit] >= 0 and trace.after[a.index] != trace.before[a.index]
            if not stale and not during:
                continue
            decoder = decoder or self._decoder(trace)
            found.append(self._wrong(a, trace, decoder, stale=stale, during=during))
        return found

    def _decoder(self, trace: Trace) -> Decoder:
        pieces = (p for some in trace.met.pieces.values() for p in some)
        return Decoder(self.memory, trace.stamp, self.reference.stamp, pieces)

    def _whole(self, wrong: list[WrongRead]) -> list[WrongRead]:
        """Tell an access of several ranges, units of a pool, as one."""
        groups: dict[tuple[int, int, str], list[WrongRead]] = {}
        for w in wrong:
            groups.setdefault((w.row, w.access, "" if w.kind in _VALUES else w.kind), []).append(w)
        found = []
        for parts in groups.values():
            parts.sort(key=lambda w: w.at_ns)
            first = parts[0]
            begin, end = self._hulls.get((first.row, first.access), (first.begin, first.end))
            ascending = sorted(parts, key=lambda w: w.begin)
            whole = replace(
                first,
                begin=begin,
                end=end,
                kind=next((w.kind for w in parts if w.kind == "torn"), first.kind),
                saw=joined(s for w in ascending for s in w.saw),
                expected=joined(s for w in ascending for s in w.expected),
                derived=all(w.derived for w in parts),
            )
            found.append(whole)
        return found

    def _wrong(self, a: Access, trace: Trace, decoder: Decoder, *, stale: bool, during: bool) -> WrongRead:
        at = self._when(a, trace, stale=stale)
        first = not stale or a.index in trace.met.at_start
        met = self._met(a, trace) if first else []
        got = content_of(a, trace.content if stale or met else trace.content_after)
        wanted = content_of(a, self.reference.content)
        saw: tuple[Seen, ...] = ()
        expected: tuple[Seen, ...] = ()
        if got is not None and wanted is not None:
            others = _others(a, met)
            quiet = others < 0
            parts = decoder.parts(a.root, a.at, np.where(quiet, got, wanted), wanted)
            saw = joined(sorted([*parts, *decoder.torn(a.root, a.at, others)], key=lambda s: s.begin))
            other = np.where(quiet, got, ~wanted)
            expected = joined(self._expected.parts(a.root, a.at, wanted, other))
        torn = (during and first) or any(s.state == "torn" for s in saw)
        kind, derived = ("torn", False) if torn else ("stale", _derived(saw, expected))
        return WrongRead(a.row, a.access, kind, a.root, a.begin, a.end, at, saw, expected, derived)

    def _when(self, a: Access, trace: Trace, *, stale: bool) -> int:
        """Return when it became a fact, ns."""
        unit = self._unit[a.row]
        if stale or a.index in trace.met.at_start:
            return int(trace.start_ns[unit])
        later = trace.met.torn.get(a.index)
        return int(trace.start_ns[self._unit[later[0].row]] if later else trace.done_ns[unit])

    def _met(self, a: Access, trace: Trace) -> list[Access]:
        """Return who was writing to it when that became a fact, by the order of a pinned run."""
        others = trace.met.torn.get(a.index, [])
        already = trace.met.at_start.get(a.index, 0)
        if already:
            return others[:already]
        return [b for b in others if self._unit[b.row] == self._unit[others[0].row]]

    def _roots(self) -> list[tuple[int, int, int, Layout, bool]]:
        """Return (root, begin, end, layout, in host memory) of what the host reads at the end."""
        found = []
        for layout, in_host in ((self.memory.device, False), (self.memory.host, True)):
            for root, begin, end in zip(layout.root, layout.root_begin, layout.root_end, strict=True):
                if int(root) not in self.lives.gone:
                    found.append((int(root), int(begin), int(end), layout, in_host))
        return sorted(found, key=lambda f: f[0])

    def _at_end(self, trace: Trace) -> list[WrongRead]:
        decoder: Decoder | None = None
        at = int(max(trace.end_ns.max(initial=0), trace.done_ns.max(initial=0)))
        found = []
        for root, begin, end, layout, in_host in self._roots():
            got, wanted = (_part(t, begin, end, in_host) for t in (trace, self.reference))
            if np.array_equal(got, wanted):
                continue
            decoder = decoder or self._decoder(trace)
            saw = joined(decoder.parts(root, begin, got, wanted))
            expected = joined(self._expected.parts(root, begin, wanted, got))
            low, high = layout.recorded(root, begin, end)
            torn = any(s.state == "torn" for s in saw)
            kind, derived = ("torn", False) if torn else ("stale", _derived(saw, expected))
            found.append(WrongRead(AT_END, -1, kind, root, low, high, at, saw, expected, derived))
        return found


def _others(a: Access, met: list[Access]) -> npt.NDArray[np.int64]:
    """Return the row that was writing to each byte, or -1."""
    found = np.full(a.bytes, -1, np.int64)
    for b in reversed(met):
        found[max(b.at - a.at, 0) : b.at + b.bytes - a.at] = b.row
    return found


def _part(trace: Trace, begin: int, end: int, in_host: bool) -> Bytes:
    return (trace.host if in_host else trace.arena)[begin:end]


def _told(wrong: WrongRead) -> WrongRead:
    """Call derived only what the writer of the reference order wrote; another writer is news enough."""
    expected = {e.writer for e in wrong.expected}
    saw = tuple(
        replace(s, state="version") if s.state == "derived" and s.writer not in expected else s
        for s in wrong.saw
    )
    return wrong if saw == wrong.saw else replace(wrong, saw=saw)


def _derived(saw: tuple[Seen, ...], expected: tuple[Seen, ...]) -> bool:
    """Whether the same ops wrote it as in the reference order, only from something wrong."""
    if not saw or any(s.state != "derived" for s in saw):
        return False
    return [(s.begin, s.end, s.writer) for s in saw] == [(e.begin, e.end, e.writer) for e in expected]


def _chain(wrong: list[WrongRead], graph: Graph) -> tuple[int, ...]:
    """Return the rows from the first wrong read to a host read that saw what came out of it."""
    if not wrong or wrong[0].kind in ("freed", "destroyed"):
        return ()
    ops, host = graph.contract.ops, graph.contract.queues.host

    def by_host(row: int) -> bool:
        return row == AT_END or host[ops.queue[row]]

    seen_from: defaultdict[int, list[int]] = defaultdict(list)
    for w in wrong:
        for s in w.saw:
            if s.state in ("derived", "torn") and s.writer >= 0 and w.row != s.writer:
                seen_from[s.writer].append(w.row)
    first = wrong[0].row
    came_from: dict[int, int | None] = {first: None}
    todo = [first]
    for row in todo:
        if by_host(row):
            path = [row]
            while (before := came_from[path[-1]]) is not None:
                path.append(before)
            return tuple(reversed(path))
        for reader in seen_from[row]:
            if reader not in came_from:
                came_from[reader] = row
                todo.append(reader)
    return ()
