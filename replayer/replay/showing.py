"""Which findings of `check` the wrong reads of a run show."""

from __future__ import annotations

import re

import numpy as np

from ..check.findings import Finding, Report
from ..outcome import Outcome, WrongRead
from ..program import Program
from .names import Names
from .pairs import flipped
from .races import Races, involved

__all__ = ["Showing"]

_DIGITS = re.compile(r"\d+")
_ENDS = ("alloc", "free", "destroy")
_FREED = ("use-after-free", "free-in-flight", "use-before-alloc", "double-free")


class Showing:
    """Compares wrong reads with the findings of one tape.

    Parameters
    ----------
    report : Report
        Findings.
    names : Names
        Of the same tape.
    program : Program
        What runs.
    """

    def __init__(self, report: Report, names: Names, program: Program) -> None:
        self._names = names
        self._op_ids = program.op_ids
        self.report = report
        known = {(f.signature, f.ops[0].op, f.ops[-1].op) for f in report.findings}
        examples = [g.example for g in report.groups]
        more = [f for f in examples if (f.signature, f.ops[0].op, f.ops[-1].op) not in known]
        self._findings = [*report.findings, *more]
        self._cut_short = any(c.name == "findings" for c in report.conditions)
        self._by_row: dict[int, list[int]] = {}
        self._by_sort: dict[tuple[str, frozenset[str]], list[int]] = {}
        self._rows: list[tuple[int, ...]] = []
        for at, finding in enumerate(self._findings):
            rows = tuple(self.row(o.op) for o in finding.ops)
            self._rows.append(rows)
            if finding.kind == "deadlock":
                continue
            for row in dict.fromkeys(rows):
                self._by_row.setdefault(row, []).append(at)
            sorts = frozenset(_sort(o.kind, o.queue, o.name) for o in finding.ops)
            self._by_sort.setdefault((finding.buffer, sorts), []).append(at)
        self._races = Races(self._findings, self._rows, names, program)

    def row(self, op: int) -> int:
        """Return the row of an op id."""
        return int(np.searchsorted(self._op_ids, op))

    def rows(self, finding: Finding) -> tuple[int, ...]:
        """Return the rows of a finding's ops."""
        return tuple(self.row(o.op) for o in finding.ops)

    def of(self, wrong: WrongRead, outcome: Outcome) -> list[Finding]:
        """Return the findings that a wrong read of a run shows; none where `check` has nothing for it.

        Where it is none exactly: those that stand for it (`check` lists the latest of several pairs only);
        where there are none either, those behind old content that a writer kept, which is not judged.
        """
        at = sorted({i for row in involved(wrong) for i in self._by_row.get(row, ())})
        pairs = [(self._findings[i], self._rows[i]) for i in at]
        found = [f for f, rows in pairs if self.shows(f, rows, wrong)]
        found += [f for f, rows in pairs if f not in found and self.near(f, rows, wrong, outcome)]
        if found:
            return found
        if wrong.kind in ("freed", "destroyed"):
            return self._other_use(wrong)
        found = self._races.standing_for(wrong, outcome) or self._races.behind(wrong, outcome)
        return found if found or not self._cut_short else self._alike(wrong)

    def wrong(self, finding: Finding, outcome: Outcome) -> WrongRead | None:
        """Return the wrong read of a run that shows a finding."""
        rows = self.rows(finding)
        for wrong in outcome.wrong:
            if self.shows(finding, rows, wrong):
                return wrong
        return next((w for w in outcome.wrong if self.near(finding, rows, w, outcome)), None)

    def shows(self, finding: Finding, rows: tuple[int, ...], wrong: WrongRead) -> bool:
        """Whether a wrong read shows exactly this pair."""
        if finding.kind == "lifetime":
            return self._shows_lifetime(finding, rows, wrong)
        if finding.kind != "race" or wrong.kind not in ("stale", "torn") or wrong.derived:
            return False
        if not self._meets(finding, wrong):
            return False
        first, second = rows
        seen = {s.writer for s in wrong.saw}
        due = {s.writer for s in wrong.expected}
        for one, other in ((first, second), (second, first)):
            if wrong.row == one and other in seen | due:
                return True
            if one in seen and other in (seen | due):
                return True
        return False

    def near(self, finding: Finding, rows: tuple[int, ...], wrong: WrongRead, outcome: Outcome) -> bool:
        """Whether one op of a pair has to do with a wrong read there, and the two came the wrong way around.

        The other one need not be named: what was seen may be from a third writer, or of torn bytes only one.
        """
        return (
            finding.kind == "race"
            and not wrong.derived
            and wrong.kind in ("stale", "torn")
            and not involved(wrong).isdisjoint(rows)
            and self._meets(finding, wrong)
            and flipped(finding, rows, outcome)
        )

    def confirmed(self, outcome: Outcome) -> list[Finding]:
        """Return the findings that a run shows, deadlocks among them, in the order in which it does."""
        found: dict[int, Finding] = {}
        for wrong in outcome.wrong:
            if not wrong.derived:
                found.update((id(f), f) for f in self.of(wrong, outcome))
        for finding in self._findings:
            if finding.kind == "deadlock" and self.stands(finding, outcome):
                found[id(finding)] = finding
        return list(found.values())

    def stands(self, finding: Finding, outcome: Outcome) -> bool:
        """Whether the ops of a deadlock never ended in a run."""
        return bool(outcome.stuck) and all(int(outcome.end_ns[r]) < 0 for r in self.rows(finding))

    def _meets(self, finding: Finding, wrong: WrongRead) -> bool:
        if wrong.root < 0 or self._names.title(wrong.root) != finding.buffer:
            return False
        if finding.begin is None or finding.end is None:
            return True
        return finding.begin < wrong.end and wrong.begin < finding.end

    def _shows_lifetime(self, finding: Finding, rows: tuple[int, ...], wrong: WrongRead) -> bool:
        if wrong.kind != _kind(finding) or wrong.row not in _users(finding, rows):
            return False
        return wrong.kind == "destroyed" or self._meets(finding, wrong)

    def _other_use(self, wrong: WrongRead) -> list[Finding]:
        """Return the lifetime faults whose use is a later one of the same queue."""
        queue = self._races.queue
        found = []
        for finding, rows in zip(self._findings, self._rows, strict=True):
            if finding.kind != "lifetime" or wrong.kind != _kind(finding):
                continue
            if wrong.kind == "freed" and not self._meets(finding, wrong):
                continue
            if any(r >= wrong.row and queue[r] == queue[wrong.row] for r in _users(finding, rows)):
                found.append(finding)
        return found

    def _alike(self, wrong: WrongRead) -> list[Finding]:
        """Return the findings between ops of the same kinds on the same buffer, if `check` lists not all."""
        if wrong.root < 0 or {s.writer for s in wrong.saw} == {s.writer for s in wrong.expected}:
            return []
        rows = sorted(involved(wrong))[:16]
        sorts = {r: self._sort(r) for r in rows}
        title = self._names.title(wrong.root)
        at: dict[int, None] = {}
        for i, one in enumerate(rows):
            for other in rows[i:]:
                at.update(
                    dict.fromkeys(self._by_sort.get((title, frozenset((sorts[one], sorts[other]))), ()))
                )
        return [self._findings[i] for i in at]

    def _sort(self, row: int) -> str:
        view = self._names.of(row)
        return _sort(view.kind, view.queue, view.name)


def _kind(finding: Finding) -> str:
    return "freed" if finding.fault in _FREED else "destroyed"


def _users(finding: Finding, rows: tuple[int, ...]) -> list[int]:
    """Return the rows of a lifetime fault that use what begins or ends."""
    return [r for r, o in zip(rows, finding.ops, strict=True) if o.kind not in _ENDS] or list(rows)


def _sort(kind: str, queue: str, name: str) -> str:
    return f"{kind} {queue} {_DIGITS.sub('#', name)}"
