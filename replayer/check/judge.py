"""One pass over a tape in reference order: clocks, races, lifetimes, and the report."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

from ...formats.edges import Contract, Order, resolve
from ...formats.errors import InvalidTape
from ...formats.limits import MAX_SIDE_BY_SIDE
from ...formats.plain import NULL
from ...formats.tape import Tape
from ...formats.window import windows
from .accepting import Accepting
from .baseline import Baseline
from .clocks import Chains, Clocks, assumptions
from .explain import Views, signature, story
from .findings import NO_OPS, Condition, Finding, Group, Report, plural, ranked
from .lifetime import Fault, Lifetimes
from .races import Lanes, Pair, Races, Ranks
from .ranges import Buffers, Ranges

__all__ = ["MAX_FINDINGS", "Progress", "check_tape"]

MAX_FINDINGS = 20_000
"""Findings kept one by one; beyond, only new kinds are kept, and groups count on."""

MAX_PAIRS = 250_000
"""Pairs after which the pass ends."""

MAX_KINDS = 10_000
"""Kinds of findings after which it ends."""

_TOUCH = frozenset({"host", "kernel", "compute", "copy", "memset", "rdma", "coll"})
_WAITS = frozenset({"semwait", "semsig", "alloc", "free", "destroy"})
_EVERY = 4096

Progress = Callable[[int, int], None]
"""Called now and then with how many of how many ops are done."""


def check_tape(tape: Tape, baseline: Baseline | None = None, *, progress: Progress | None = None) -> Report:
    """Return the races, lifetime faults and deadlocks of a tape.

    Parameters
    ----------
    tape : Tape
        The tape.
    baseline : Baseline, optional
        Accepted findings; they are reported but do not count.
    progress : callable, optional
        Called with the ops done and the ops in all.

    Returns
    -------
    Report
        Findings, groups, failed conditions and the verdict.

    Raises
    ------
    InvalidTape
        If a reference of the tape points nowhere.
    """
    return _Judge(tape, baseline, progress).run()


class _Judge:
    def __init__(self, tape: Tape, baseline: Baseline | None, progress: Progress | None) -> None:
        self.tape = tape
        self.baseline = baseline
        self.progress = progress
        self.contract: Contract = resolve(tape)
        self.order: Order = self.contract.order()
        self.buffers = Buffers(tape)
        self.ranges = Ranges(tape, self.contract, self.buffers)
        self.views = Views(tape, self.buffers)
        self.report = Report(tape.name)
        self.groups: dict[tuple[str, str], Group] = {}
        self.coverage = {c.queue: c for c in tape.manifest.coverage}
        self.dropped = 0
        self.stopped = False
        self.pairs = 0
        self.sorted_groups: dict[tuple[Hashable, ...], Group] = {}

    def run(self) -> Report:
        """Return the report."""
        self._deadlocks()
        self._walk()
        self.report.groups = ranked(self.groups.values())
        self._conditions()
        if self.baseline is not None:
            self.report.stale = self.baseline.stale(g.example.signature for g in self.report.groups)
        return self.report

    # --- the pass ---

    def _walk(self) -> None:
        contract = self.contract
        queues = contract.queues
        chains = Chains(contract)
        clocks = Clocks(contract, chains)
        unseen = {q for q in range(queues.rows) if q in self.coverage and self.coverage[q].waits != "full"}
        assumed = assumptions(contract, unseen)
        hopes = Clocks(contract, chains, assumed) if assumed else None
        lanes, ranks = Lanes(contract, chains), Ranks(contract.ops.rows)
        accepting = None if self.baseline is None else Accepting(self.baseline, self.views, self.buffers)
        races = Races(contract, self.ranges, chains, lanes, ranks, accepting)
        lifetimes = Lifetimes(self.tape, contract, self.buffers, self.ranges, chains, lanes, ranks, accepting)
        children, members = contract.children, contract.members
        done = 0
        for event in self.order.schedule:
            unit = event if event >= 0 else ~event
            rows = members.get(unit) or (unit,)
            if event < 0:
                for row in rows:
                    chains.end(row)
                clocks.end(unit, None)
                if hopes is not None:
                    hopes.end(unit, None)
                continue
            clock = clocks.start(unit)
            hopeful = hopes.start(unit) if hopes is not None else None
            lanes.start(unit)
            for row in rows:
                ranks.add(row)
                chains.place(row, clock)
            if chains.count > queues.rows + MAX_SIDE_BY_SIDE:
                raise InvalidTape(
                    f"more than {MAX_SIDE_BY_SIDE:,} ops side by side on queues that are not in order",
                    expected="edges between them, or a part of the tape",
                    where=self.tape.where,
                )
            for pair in races.visit(unit, rows, clock, hopeful):
                self._race(pair)
            if lifetimes.active:
                for fault in lifetimes.visit(unit, rows, clock, hopeful):
                    self._lifetime(lifetimes, fault)
            if unit not in children:
                for row in rows:
                    chains.end(row)
                clocks.end(unit, clock)
                if hopes is not None and hopeful is not None:
                    hopes.end(unit, hopeful)
            done += len(rows)
            if self.pairs >= MAX_PAIRS or len(self.groups) >= MAX_KINDS:
                self.stopped = done < contract.ops.rows
                break
            if self.progress is not None and done % _EVERY < len(rows):
                self.progress(done, contract.ops.rows)
        self.report.ops_checked = done
        self.report.accesses_checked = races.seen

    # --- findings ---

    def _add(self, finding: Finding) -> Group:
        if self.baseline is not None and self.baseline.accepts(finding.signature):
            finding = replace(finding, accepted=True)
        self.report.findings.append(finding)
        key = (finding.verdict, finding.signature)
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(finding)
        group.add(finding.begin, finding.end)
        return group

    def _pair(
        self,
        kind: str,
        fault: str,
        certainty: str,
        sides: tuple[tuple[int, int], tuple[int, int]],
        what: str,
        begin: int | None,
        end: int | None,
        hull: bool = False,
    ) -> None:
        """Add a finding about two rows and their accesses; words are made only where they are kept."""
        self.pairs += 1
        sorts = (self.views.sort(*sides[0]), self.views.sort(*sides[1]))
        key = (kind, fault, certainty, what, *sorts)
        group = self.sorted_groups.get(key)
        if group is not None and len(self.report.findings) >= MAX_FINDINGS:
            self.dropped += 1
            group.add(begin, end)
            return
        ops = (self.views.of(*sides[0]), self.views.of(*sides[1]))
        self.sorted_groups[key] = self._add(
            Finding(
                kind, certainty, fault, ops, what, begin, end,
                story(kind, fault, ops, what), signature(kind, fault, ops, what), hull=hull,
            )
        )  # fmt: skip

    def _race(self, pair: Pair) -> None:
        verdict = "unknown" if pair.assumed else "race" if pair.definite else "possible"
        sides = ((pair.first, pair.first_access), (pair.second, pair.second_access))
        what = self.buffers.title(pair.root)
        self._pair("race", pair.fault, verdict, sides, what, pair.begin, pair.end, pair.hull)

    def _lifetime(self, lifetimes: Lifetimes, fault: Fault) -> None:
        begin = end = None
        if fault.sync == NULL:
            size = self.buffers.bytes[fault.buffer]
            if not self.buffers.is_whole(fault.buffer) and size is not None:
                begin = self.buffers.offset[fault.buffer]
                end = begin + size
        verdict = "unknown" if fault.assumed else "lifetime" if fault.definite else "possible"
        sides = lifetimes.sides(fault.first, fault.second, fault.access)
        what = lifetimes.title(fault.buffer, fault.sync)
        self._pair("lifetime", fault.fault, verdict, sides, what, begin, end)

    def _deadlocks(self) -> None:
        stuck = self.order.stuck
        for rows in [(r,) for r in stuck.never] + list(stuck.cycles):
            ops = tuple(self.views.of(r) for r in rows)
            self._add(
                Finding(
                    "deadlock", "deadlock", "deadlock", ops, "", None, None,
                    story("deadlock", "deadlock", ops, ""), signature("deadlock", "deadlock", ops, ""),
                )
            )  # fmt: skip

    # --- what limits the verdict ---

    def _conditions(self) -> None:
        contract, add = self.contract, self.report.conditions.append
        ops, queues = contract.ops, contract.queues
        told = self._told_by_parts()
        touching = [r for r, kind in enumerate(ops.kind) if kind in _TOUCH and contract.unit[r] not in told]
        unknown = sum(ops.access_set[r] == NULL for r in touching)
        if unknown:
            add(
                Condition(
                    "accesses", f"what {plural(unknown, 'op')} touch{'es' * (unknown == 1)} is unknown", True
                )
            )
        busy = {ops.queue[r] for r in touching}
        for level in ("none", "partial"):
            blind = [q for q in sorted(busy) if q in self.coverage and self.coverage[q].accesses == level]
            if blind:
                seen = "no accesses were" if level == "none" else "not all accesses were"
                add(Condition("accesses", f"{seen} seen on {self._names(blind)}", True))
            threads = [
                q
                for q in range(queues.rows)
                if queues.host[q] and q in self.coverage and self.coverage[q].host_accesses == level
            ]
            if threads:
                add(
                    Condition(
                        "host_accesses",
                        f"host code between ops was {'not' if level == 'none' else 'only partly'} seen on "
                        f"{self._names(threads)}",
                    )
                )
        if contract.unresolved:
            add(
                Condition(
                    "waits",
                    f"{plural(len(contract.unresolved), 'wait')} without a known record: pairs that "
                    "depend on them are unknown",
                )
            )
        unseen = [q for q in range(queues.rows) if q in self.coverage and self.coverage[q].waits != "full"]
        hosts = [q for q in unseen if queues.host[q]]
        if len(hosts) and sum(queues.host) > 1:
            add(
                Condition(
                    "host_waits",
                    f"synchronisation between host threads was not all seen ({self._names(hosts)}): pairs "
                    "that depend on it are unknown",
                )
            )
        others = [q for q in unseen if not queues.host[q]]
        if others:
            add(
                Condition(
                    "waits",
                    f"waits were not all seen on {self._names(others)}: pairs that depend on them are "
                    "unknown",
                )
            )
        manifest = self.tape.manifest
        if manifest.engine.get("device_compute") is False:
            add(Condition("device_compute", "no device but the host computed anything", True))
        for note in windows(manifest):
            add(Condition("window", f"a {note}: pairs with ops outside are not judged"))
        if not manifest.complete:
            add(Condition("complete", "the recording did not end cleanly: what followed is not judged"))
        if manifest.lost:
            add(Condition("complete", f"{plural(manifest.lost, 'record')} lost", True))
        stuck = len(self.order.stuck.units)
        if stuck:
            add(
                Condition(
                    "complete", f"{plural(stuck, 'op')} never start: what they touch is not judged", True
                )
            )
        if self.stopped:
            judged = plural(self.report.ops_checked, "op")
            detail = f"{self.pairs:,} pairs of {len(self.groups):,} kinds: only the first {judged} are judged"
            add(Condition("findings", detail, True))
        if self.dropped:
            add(Condition("findings", f"{self.dropped} more findings are only counted, not listed"))
        if not ops.rows:
            add(Condition("accesses", NO_OPS, True))
        elif (
            not touching and not any(k in _WAITS for k in ops.kind) and not any(s > 0 for s in ops.access_set)
        ):
            add(Condition("accesses", "no op that touches memory or waits for a signal", True))

    def _told_by_parts(self) -> set[int]:
        """Return the units some of whose parts have accesses: what those touch is what the whole touches."""
        contract, sets = self.contract, self.contract.ops.access_set
        told: set[int] = set()
        for unit, above in contract.above.items():
            if not above <= told and any(sets[r] > 0 for r in contract.rows_of(unit)):
                told |= above
        return told

    def _names(self, queues: list[int]) -> str:
        names = [self.contract.queues.name[q] or f"queue {q}" for q in queues]
        more = len(names) - 4
        return ", ".join(names[:4]) + (f" and {more} more" if more > 0 else "")
