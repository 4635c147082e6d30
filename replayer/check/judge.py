"""The report on a tape: what the native pass finds, in words."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from itertools import chain

from ...formats.shown import plural
from ...formats.tape import Tape
from .. import _core
from ..columns import core_tape
from .accepting import Accepting
from .baseline import Baseline
from .conditions import conditions
from .explain import Views, signature, story
from .faults import FAULTS, Pair, kind_of
from .findings import Condition, Finding, Group, Report, ranked
from .hiding import Hiding
from .schedulers import check_schedulers

__all__ = ["MAX_FINDINGS", "Progress", "check_tape"]

MAX_FINDINGS = 20_000
"""Findings kept one by one; beyond, only new kinds are kept, and groups count on."""

MAX_PAIRS = 250_000
"""Pairs after which the pass ends."""

MAX_KINDS = 10_000
"""Kinds of findings after which it ends."""

BLOCK, SETS, TRIED, EVERY = 256, 1024, 64, 4096
"""Ranges per block of a map, access sets whose ranges are kept sorted, chains tried for an op of a queue that
is not in order, ops between two looks at what is settled. Findings do not depend on them.
"""

_EVERY = 4096
"""Ops between two looks at Ctrl-C and reports of progress."""

Progress = Callable[[int, int], None]
"""Called now and then with how many of how many ops are done."""


def check_tape(
    tape: Tape,
    baseline: Baseline | None = None,
    *,
    schedulers: bool = True,
    progress: Progress | None = None,
) -> Report:
    """Return the races, lifetime faults and deadlocks of a tape, and what its request schedulers break.

    Parameters
    ----------
    tape : Tape
        The tape.
    baseline : Baseline, optional
        Accepted findings; they are reported but do not count.
    schedulers : bool
        Judge its request schedulers as well.
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
    return _Judge(tape, baseline, schedulers, progress).run()


class _Judge:
    def __init__(
        self, tape: Tape, baseline: Baseline | None, schedulers: bool, progress: Progress | None
    ) -> None:
        self.tape = tape
        self.baseline = baseline
        self.schedulers = schedulers
        self.progress = progress
        self.core = core_tape(tape, times=False)
        _, self.never, self.cycles = self.core.stuck()
        self.views = Views(tape, self.core)
        self.report = Report(tape.name)
        self.groups: dict[tuple[str, str], Group] = {}
        self.dropped = 0
        self.stopped = False
        self.pairs = 0
        self.sorted_groups: dict[tuple[Hashable, ...], Group] = {}
        self.hiding = Hiding(tape, self.core)

    def run(self) -> Report:
        """Return the report."""
        walk = self._pass()
        self._deadlocks()
        self._walk(walk)
        self.hiding.finish(self.report)
        self.report.groups = ranked(self.groups.values())
        self.report.conditions = conditions(self.tape, self.core, self._cut_short())
        if self.schedulers and self.tape.rows("schedulers"):
            accepts = self.baseline.accepts if self.baseline is not None else lambda signature: False
            self.report.schedulers = check_schedulers(self.tape, accepts, progress=self.progress)
        if self.baseline is not None:
            kinds = (k.signature for s in self.report.schedulers for k in s.kinds)
            self.report.stale = self.baseline.stale(
                chain((g.example.signature for g in self.report.groups), kinds)
            )
        return self.report

    # --- the pass ---

    def _pass(self) -> _core.Pass:
        waits = {c.queue: c.waits for c in self.tape.manifest.coverage}
        unseen = [waits.get(q, "full") != "full" for q in range(self.tape.rows("queues"))]
        accepting = None if self.baseline is None else Accepting(self.baseline, self.views, self.tape)
        return _core.Pass(self.core, unseen, accepting, [BLOCK, SETS, TRIED, EVERY])

    def _walk(self, walk: _core.Pass) -> None:
        rows, told = self.core.rows, 0
        while walk.advance(1 if self._full() else _EVERY):
            for found in walk.found():
                self._found(Pair(*found))
            if self._full():
                self.stopped = walk.done < rows
                break
            if self.progress is not None and walk.done - told >= _EVERY:
                told = walk.done
                self.progress(told, rows)
        self.report.ops_checked = walk.done
        self.report.accesses_checked = walk.accesses

    def _cut_short(self) -> list[Condition]:
        """Return what was left out because there was too much."""
        found = []
        if self.stopped:
            judged = plural(self.report.ops_checked, "op")
            detail = f"{self.pairs:,} pairs of {len(self.groups):,} kinds: only the first {judged} are judged"
            found.append(Condition("findings", detail, True))
        if self.dropped:
            found.append(Condition("findings", f"{self.dropped} more findings are only counted, not listed"))
        return found

    def _full(self) -> bool:
        return self.pairs >= MAX_PAIRS or len(self.groups) >= MAX_KINDS

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
            self.hiding.add(group, sides[0][0], sides[1][0], listed=False)
            return
        ops = (self.views.of(*sides[0]), self.views.of(*sides[1]))
        group = self.sorted_groups[key] = self._add(
            Finding(
                kind, certainty, fault, ops, what, begin, end,
                story(kind, fault, ops, what), signature(kind, fault, ops, what), hull=hull,
            )
        )  # fmt: skip
        self.hiding.add(group, sides[0][0], sides[1][0], listed=True)

    def _found(self, pair: Pair) -> None:
        kind = kind_of(pair.fault)
        verdict = "unknown" if pair.assumed else kind if pair.definite else "possible"
        self._pair(
            kind,
            FAULTS[pair.fault],
            verdict,
            ((pair.first, pair.first_access), (pair.second, pair.second_access)),
            self.views.title(pair.buffer, pair.sync),
            pair.begin,
            pair.end,
            pair.hull,
        )

    def _deadlocks(self) -> None:
        for rows in [[r] for r in self.never] + self.cycles:
            ops = tuple(self.views.of(r) for r in rows)
            self._add(
                Finding(
                    "deadlock", "deadlock", "deadlock", ops, "", None, None,
                    story("deadlock", "deadlock", ops, ""), signature("deadlock", "deadlock", ops, ""),
                )
            )  # fmt: skip
            self.hiding.none()
