"""What `check` found: findings, groups of them, and the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..sequence.report import SequenceReport
    from .stated import Stated

__all__ = ["NO_OPS", "SCHEMA", "Condition", "Finding", "Group", "Hider", "OpView", "Report"]

NO_OPS = "no ops"
"""What a tape without any op is told."""

SCHEMA = "tapedelay-check-1"
"""Name of the layout of `Report.as_dict`."""

_SEVERITY = ("race", "lifetime", "deadlock", "possible", "unknown")
_VERDICTS = ("race", "lifetime", "deadlock", "violation", "possible", "unknown")


@dataclass(frozen=True, slots=True)
class OpView:
    """One op of a finding, in names.

    Attributes
    ----------
    op : int
        Op id.
    label : str
        Litmus label, or ``#id``.
    kind, name : str
        Op kind and name (empty where it has none).
    queue, device : str
        Names.
    step, split : int or None
        Where known.
    mode, tensor : str
        Access mode and tensor name of the access (empty where there is none).
    reads, writes : str
        A tensor, else a buffer, that the op reads and writes; empty where there is none.
    """

    op: int
    label: str
    kind: str
    name: str
    queue: str
    device: str
    device_kind: str = ""
    step: int | None = None
    split: int | None = None
    mode: str = ""
    tensor: str = ""
    reads: str = ""
    writes: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the op for ``--json``."""
        return {
            "op": self.op,
            "label": self.label,
            "kind": self.kind,
            "name": self.name,
            "queue": self.queue,
            "device": self.device,
            "step": self.step,
            "split": self.split,
            "mode": self.mode,
            "tensor": self.tensor,
        }


@dataclass(frozen=True, slots=True)
class Hider:
    """A setting of a debugging switch whose edges order the two ops of a finding.

    Attributes
    ----------
    switch, state : str
        Name and state, see `formats.switches`.
    setting : str
        How a person sets it, such as ``GGML_VK_DISABLE_ASYNC=1``.
    others : tuple of str
        Settings that it needs beside it.
    backend : str
        Set where the device only plays a real backend: the switch works there, not on the test device.
    """

    switch: str
    state: str
    setting: str
    others: tuple[str, ...] = ()
    backend: str = ""

    def text(self) -> str:
        """Return the setting with what it needs."""
        return self.setting + (f" (with {' and '.join(self.others)})" if self.others else "")

    def as_dict(self) -> dict[str, Any]:
        """Return the setting for ``--json``."""
        return {
            "kind": "switch",
            "switch": self.switch,
            "state": self.state,
            "set": self.setting,
            "with": list(self.others),
            "real_backend": self.backend or None,
        }


@dataclass(frozen=True, slots=True)
class Finding:
    """One pair of ops, or the ops of one deadlock.

    Attributes
    ----------
    kind : str
        ``race``, ``lifetime`` or ``deadlock``.
    verdict : str
        The kind where it is certain, ``possible`` where it rests on an inferred or over-approximated fact,
        ``unknown`` where something that was not seen may order the two.
    fault : str
        ``RAW``, ``WAR``, ``WAW``, the lifetime fault, or ``deadlock``.
    ops : tuple of OpView
        The two ops, the earlier in reference order first; all ops of a deadlock.
    buffer : str
        Name of the root buffer, or of the destroyed object; empty for a deadlock.
    begin, end : int or None
        Bytes of the root buffer: what both touch, or the sub-allocation that was freed.
    hull : bool
        The bytes are those from the first to the last that both touch; there may be gaps.
    text : str
        What is missing, in words.
    signature : str
        The same for the same kind of finding in another run; baselines hold it.
    accepted : bool
        A baseline holds the signature.
    hidden_by : tuple of Hider
        Debugging switches that would order the two ops.
    delay_hides, delay_shows : str
        Lines of a delay plan: a delay that gives the op that must come first the time to end, and one that
        makes it come late. Empty where there is none.
    """

    kind: str
    verdict: str
    fault: str
    ops: tuple[OpView, ...]
    buffer: str
    begin: int | None
    end: int | None
    text: str
    signature: str
    accepted: bool = False
    hull: bool = False
    hidden_by: tuple[Hider, ...] = ()
    delay_hides: str = ""
    delay_shows: str = ""

    @property
    def first(self) -> int:
        """Op id of the earlier op."""
        return self.ops[0].op

    @property
    def second(self) -> int:
        """Op id of the later op (the same for a deadlock of one op)."""
        return self.ops[-1].op if self.kind == "deadlock" else self.ops[1].op

    @property
    def hazard(self) -> str:
        """The fault, under the name that races give it."""
        return self.fault

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of the ops."""
        return tuple(o.label for o in self.ops)

    @property
    def queues(self) -> tuple[str, ...]:
        """Queue names of the ops."""
        return tuple(o.queue for o in self.ops)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the ops."""
        return tuple(o.name for o in self.ops)

    def line(self) -> str:
        """Return the claim as a verdict line of a litmus file has it after ``verdict:``."""
        if self.kind == "deadlock":
            return ",".join(self.labels)
        first, second = self.labels
        # Labels may contain an x; spaces make the pair unambiguous then.
        pair = f"{first} x {second}" if "x" in first + second else f"{first}x{second}"
        where = self.buffer if self.begin is None else f"{self.buffer}[{self.begin}:{self.end}]"
        return f"{pair} {self.fault} {where}".rstrip()

    def as_dict(self) -> dict[str, Any]:
        """Return the finding for ``--json``."""
        return {
            "kind": self.kind,
            "verdict": self.verdict,
            "fault": self.fault,
            "ops": [o.as_dict() for o in self.ops],
            "buffer": self.buffer,
            "begin": self.begin,
            "end": self.end,
            "hull": self.hull,
            "text": self.text,
            "signature": self.signature,
            "accepted": self.accepted,
            "hidden_by": [
                *(h.as_dict() for h in self.hidden_by),
                *({"kind": "delay", "line": line} for line in [self.delay_hides] if line),
            ],
            "shown_by": [{"kind": "delay", "line": line} for line in [self.delay_shows] if line],
        }


@dataclass
class Group:
    """Findings of one kind: the first one and how many there are.

    Attributes
    ----------
    example : Finding
        The first in reference order.
    count : int
        How many pairs.
    begin, end : int or None
        Hull of the bytes over all of them.
    hidden_by : tuple of Hider
        Debugging switches that would order the ops of every one of them.
    delays_hide, delays_show : tuple of str
        Lines of a delay plan that belong together: with the former every op that must come first has the
        time to end, with the latter it comes late. Empty where there are none.
    """

    example: Finding
    count: int = 0
    begin: int | None = None
    end: int | None = None
    hidden_by: tuple[Hider, ...] = ()
    delays_hide: tuple[str, ...] = ()
    delays_show: tuple[str, ...] = ()

    def add(self, begin: int | None, end: int | None) -> None:
        """Count a finding about these bytes."""
        self.count += 1
        if begin is not None and end is not None:
            self.begin = begin if self.begin is None else min(self.begin, begin)
            self.end = end if self.end is None else max(self.end, end)

    def as_dict(self) -> dict[str, Any]:
        """Return the group for ``--json``."""
        return {
            "count": self.count,
            "bytes_begin": self.begin,
            "bytes_end": self.end,
            "hidden_by": [*(h.as_dict() for h in self.hidden_by), *_together(self.delays_hide)],
            "shown_by": _together(self.delays_show),
            "example": self.example.as_dict(),
        }


@dataclass(frozen=True)
class Condition:
    """A condition of exactness that does not hold on this tape.

    Attributes
    ----------
    name : str
        ``accesses``, ``host_accesses``, ``waits``, ``host_waits``, ``device_compute``, ``window``,
        ``complete`` or ``findings``.
    detail : str
        What is missing, in words.
    blocks : bool
        Nothing can be called clean because of it.
    """

    name: str
    detail: str
    blocks: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return the condition for ``--json``."""
        return {"name": self.name, "detail": self.detail, "blocks": self.blocks}


@dataclass
class Report:
    """The result of a check.

    Attributes
    ----------
    tape : str
        Name of the tape.
    findings : list of Finding
        Every pair, in reference order, up to a limit that a condition names where it was reached.
    groups : list of Group
        One entry per kind of finding, the certain ones first; the counts are always complete.
    conditions : list of Condition
        Conditions of exactness that fail.
    ops_checked, accesses_checked : int
        How much was looked at.
    stale : list of str
        Signatures of the baseline that nothing matched.
    stated : Stated or None
        How the verdict lines of a litmus file agree with the findings; None where there are none.
    schedulers : list of SequenceReport
        What the request schedulers of the tape, or the commands of a sequence, break.
    """

    tape: str
    findings: list[Finding] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    ops_checked: int = 0
    accesses_checked: int = 0
    stale: list[str] = field(default_factory=list)
    stated: Stated | None = None
    schedulers: list[SequenceReport] = field(default_factory=list)

    def count(self, verdict: str, *, accepted: bool | None = None) -> int:
        """Return how many pairs, or violations of a request scheduler's invariants, have a verdict."""
        if verdict == "violation":
            kinds = [k for s in self.schedulers for k in s.kinds]
            return sum(k.count for k in kinds if accepted in (None, k.accepted))
        return sum(
            g.count
            for g in self.groups
            if g.example.verdict == verdict and accepted in (None, g.example.accepted)
        )

    @property
    def verdict(self) -> str:
        """``race``, ``lifetime``, ``deadlock``, ``violation``, ``possible``, ``unknown``, ``cannot judge`` or
        ``clean``.
        """
        for verdict in _VERDICTS[:-1]:
            if self.count(verdict, accepted=False):
                return verdict
        open_groups = [g for g in self.groups if not g.example.accepted]
        if any(c.blocks for c in self.conditions):
            return "cannot judge"
        return "unknown" if open_groups else "clean"

    @property
    def exit_code(self) -> int:
        """0 clean, 1 found, 4 cannot judge or only unknowns left."""
        return {"clean": 0, "unknown": 4, "cannot judge": 4}.get(self.verdict, 1)

    def verdict_lines(self) -> list[str]:
        """Return the findings as the verdict lines of a litmus file.

        A tape that cannot be judged has the line ``unknown:`` without pairs.
        """
        lines = []
        for verdict in _SEVERITY:
            claims = [f.line() for f in self.findings if f.verdict == verdict]
            if claims:
                lines.append(f"{verdict}: {'; '.join(claims)}")
        lines += [line for s in self.schedulers if s.violations for line in s.verdict_lines()]
        if lines:
            return lines
        return ["unknown:"] if any(c.blocks for c in self.conditions) else ["clean"]

    def as_dict(self) -> dict[str, Any]:
        """Return the report for ``--json``.

        Keys: ``schema``; ``tape``; ``verdict`` and ``exit_code`` (see the properties); ``counts`` (pairs per
        verdict); ``accepted`` (pairs that the baseline accepts); ``ops``, ``accesses`` (how much was
        checked); ``groups`` (``count``, ``bytes_begin``, ``bytes_end``, ``hidden_by`` and ``shown_by`` (what
        hides and shows all of them, delays as objects of kind ``delays`` with ``lines`` that belong together
        in one plan), ``example``); ``findings`` (``kind``, ``verdict``, ``fault``, ``ops`` with ``op``,
        ``label``, ``kind``, ``name``, ``queue``, ``device``, ``step``, ``split``, ``mode``, ``tensor``;
        ``buffer``, ``begin``, ``end``, ``hull``, ``text``, ``signature``, ``accepted``; ``hidden_by``:
        objects of ``kind`` ``switch`` (``switch``, ``state``, ``set``, ``with``, ``real_backend``: null, or
        what a test device plays) or ``delay`` (``line`` of a delay plan); ``shown_by``: objects of kind
        ``delay``); ``conditions`` (``name``, ``detail``, ``blocks``); ``stale`` (baseline signatures without
        a match); ``verdict_lines`` (of a litmus file: ``hold``, ``expected``, ``found``; null where nothing
        is stated); ``schedulers`` (what request schedulers break, see `SequenceReport.as_dict`).
        """
        return {
            "schema": SCHEMA,
            "tape": self.tape,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "counts": {v: self.count(v) for v in _VERDICTS},
            "accepted": sum(self.count(v, accepted=True) for v in _VERDICTS),
            "ops": self.ops_checked,
            "accesses": self.accesses_checked,
            "groups": [g.as_dict() for g in self.groups],
            "findings": [f.as_dict() for f in self.findings],
            "conditions": [c.as_dict() for c in self.conditions],
            "stale": self.stale,
            "verdict_lines": None if self.stated is None else self.stated.as_dict(),
            "schedulers": [s.as_dict() for s in self.schedulers],
        }


def _together(lines: Sequence[str]) -> list[dict[str, Any]]:
    return [{"kind": "delays", "lines": list(lines)}] if lines else []


def ranked(groups: Iterable[Group]) -> list[Group]:
    """Return groups with the certain ones first, else as they came."""
    return sorted(groups, key=lambda g: (g.example.accepted, _SEVERITY.index(g.example.verdict)))


def joined(parts: Sequence[str]) -> str:
    """Return ``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
