"""What the judge finds in a long stream of commands: kinds of violations, each with its first example."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ...formats.sequence.commands import Command
from .judge import Judge
from .violation import Violation

__all__ = [
    "MAX_VIOLATIONS",
    "Kind",
    "Placed",
    "Reporting",
    "Seen",
    "SequenceReport",
    "report_on",
    "signature",
]

MAX_VIOLATIONS = 20_000
"""Violations kept one by one; beyond, kinds count on."""

_MAX_KINDS = 1_000
_HISTORY = 8
_HISTORIES = 50
"""Commands that are shown before a violation, and kinds of violations for which they are looked up."""

_FATES = ("preempt", "resume", "abort", "finish")
_EVERY = 4096
_POOL = re.compile(r"[A-Za-z_]+")


@dataclass(frozen=True, slots=True)
class Seen:
    """A command and where it comes from.

    Attributes
    ----------
    command : Command
    input : int or None
        Id of the input of the tape that it belongs to.
    step : int or None
        Number of the scheduler's step, where the input makes or answers one.
    """

    command: Command
    input: int | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """A violation, the command that breaks it and where that comes from."""

    violation: Violation
    seen: Seen

    def where(self) -> str:
        """Return the place in words."""
        text = f"command {self.violation.at:,}"
        if self.seen.input is not None:
            text += f", input {self.seen.input:,}"
        return text if self.seen.step is None else f"{text}, step {self.seen.step:,}"

    def as_dict(self) -> dict[str, Any]:
        """Return it for ``--json``."""
        return {
            **self.violation.as_dict(),
            "command": self.seen.command.text(),
            "input": self.seen.input,
            "step": self.seen.step,
        }


@dataclass(slots=True)
class Kind:
    """Violations of one kind: the first one and how many there are.

    Attributes
    ----------
    first : Placed
    count : int
    accepted : bool
        A baseline holds the signature.
    history : tuple of (int, str)
        The last commands before the first one, and itself, that are about the same things: number, text.
    """

    first: Placed
    count: int = 0
    accepted: bool = False
    history: tuple[tuple[int, str], ...] = ()

    @property
    def signature(self) -> str:
        """The same for the same kind of violation in another run."""
        return signature(self.first.violation)

    def as_dict(self) -> dict[str, Any]:
        """Return it for ``--json``."""
        return {
            "signature": self.signature,
            "count": self.count,
            "accepted": self.accepted,
            "first": self.first.as_dict(),
            "history": [{"at": at, "command": text} for at, text in self.history],
        }


@dataclass(slots=True)
class SequenceReport:
    """The verdict on what one request scheduler did.

    Attributes
    ----------
    name : str
        The engine and its version, or the file.
    commands, requests : int
        How much was judged.
    steps : int or None
        Steps of the scheduler in it (`formats.requests.counts.steps_of`); None: a file of commands, in which
        a step that runs nothing does not stand.
    kinds : list of Kind
        In the order in which they were found first.
    violations : list of Placed
        Every one, up to `MAX_VIOLATIONS`.
    """

    name: str
    commands: int = 0
    requests: int = 0
    steps: int | None = None
    kinds: list[Kind] = field(default_factory=list)
    violations: list[Placed] = field(default_factory=list)

    @property
    def found(self) -> int:
        """How many violations no baseline accepts."""
        return sum(k.count for k in self.kinds if not k.accepted)

    def verdict_lines(self) -> list[str]:
        """Return the verdict lines of a litmus file."""
        claims = sorted(p.violation.claim() for p in self.violations)
        return [f"violates: {', '.join(c.text() for c in claims)}" if claims else "clean"]

    def as_dict(self) -> dict[str, Any]:
        """Return it for ``--json``.

        Keys: ``scheduler``; ``commands``, ``requests``, ``steps`` (how much was judged; steps are null where
        only commands are known); ``count`` (how many violations no baseline accepts); ``kinds``
        (``signature``, ``count``, ``accepted``, ``first``, ``history`` with ``at`` and ``command``);
        ``violations`` (``invariant``, ``says``, ``at``, ``what``, ``words``, ``names``, ``command``,
        ``input``, ``step``).
        """
        return {
            "scheduler": self.name,
            "commands": self.commands,
            "requests": self.requests,
            "steps": self.steps,
            "count": self.found,
            "kinds": [k.as_dict() for k in self.kinds],
            "violations": [p.as_dict() for p in self.violations],
        }


def report_on(
    name: str,
    stream: Callable[[], Iterable[Seen]],
    *,
    accepts: Callable[[str], bool] = lambda signature: False,
    limit: int = MAX_VIOLATIONS,
    progress: Callable[[int], None] | None = None,
) -> SequenceReport:
    """Judge a stream of commands.

    Parameters
    ----------
    name : str
        For the report.
    stream : callable
        Returns the commands from the first on; called again where something is found.
    accepts : callable
        Whether a kind of violation, by its signature, is accepted.
    limit : int
        Violations that are kept one by one.
    progress : callable, optional
        Called now and then with the commands judged so far.
    """
    made = Reporting(name, accepts=accepts, limit=limit)
    for count, seen in enumerate(stream(), 1):
        made.take(seen)
        if progress is not None and count % _EVERY == 0:
            progress(count)
    made.judged()
    if made.looks_back:
        for seen in stream():
            made.look_back(seen)
            if not made.looks_back:
                break
    return made.report


class Reporting:
    """Makes a report on one stream of commands, of several that come mixed.

    Every command goes to `take`; after `judged` all go once more to `look_back`, as long as it `looks_back`.

    Parameters
    ----------
    name, accepts, limit
        As `report_on` takes them.

    Attributes
    ----------
    report : SequenceReport
    """

    def __init__(
        self,
        name: str,
        *,
        accepts: Callable[[str], bool] = lambda signature: False,
        limit: int = MAX_VIOLATIONS,
    ) -> None:
        self.report = SequenceReport(name)
        self._accepts = accepts
        self._limit = limit
        self._judge = Judge()
        self._kinds: dict[str, Kind] = {}
        self._requests: set[str] = set()
        self._past: list[_Past] = []
        self._last = self._at = 0

    def take(self, seen: Seen) -> None:
        """Judge the next command."""
        command = seen.command
        if command.verb == "arrive":
            self._requests.add(command.args[0])
        for violation in self._judge.feed(command):
            placed = Placed(violation, seen)
            key = signature(violation)
            kind = self._kinds.get(key)
            if kind is None:
                if len(self._kinds) >= _MAX_KINDS:
                    key = violation.invariant
                kind = self._kinds.setdefault(key, Kind(placed, accepted=self._accepts(key)))
            kind.count += 1
            if len(self.report.violations) < self._limit:
                self.report.violations.append(placed)

    def judged(self) -> None:
        """Note that there is no further command."""
        report = self.report
        report.commands = self._judge.count
        report.requests = len(self._requests)
        report.kinds = sorted(self._kinds.values(), key=lambda k: k.accepted)
        self._past = [_Past(k) for k in report.kinds[:_HISTORIES]]
        self._last = max((p.kind.first.violation.at for p in self._past), default=0)

    @property
    def looks_back(self) -> bool:
        """Whether it wants the next command once more: for what led to the first example of each kind."""
        return self._at < self._last

    def look_back(self, seen: Seen) -> None:
        """Take the next command once more."""
        if not self.looks_back:
            return
        self._at += 1
        words = frozenset((*seen.command.args, seen.command.verb))
        for of in self._past:
            if self._at <= of.kind.first.violation.at:
                of.see(self._at, seen.command, words)
        if not self.looks_back:
            for of in self._past:
                of.kind.history = tuple(of.kept)


def signature(v: Violation) -> str:
    """Return what is the same for the same kind of violation in another run."""
    pools = sorted({m[0] for n in v.names if (m := _POOL.match(n)) and v.invariant not in ("I5", "I8")})
    return f"{v.invariant} {v.what}" + (f" ({', '.join(pools)})" if pools else "")


class _Past:
    """Keeps what the first example of a kind is about, and the fates of those who got its unit."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.kept: deque[tuple[int, str]] = deque(maxlen=_HISTORY)
        self._about = _about(kind.first)
        self._owners: set[str] = set()

    def see(self, at: int, command: Command, words: frozenset[str]) -> None:
        """Take the next command; `words` are its verb and arguments."""
        about = not self._about.isdisjoint(words)
        if about and command.verb in ("alloc", "share"):
            self._owners.add(command.args[0])
        if about or (command.verb in _FATES and command.args[0] in self._owners):
            self.kept.append((at, command.text()))


def _about(placed: Placed) -> frozenset[str]:
    violation = placed.violation
    if violation.invariant == "I5":  # what the scheduler still did for those that wait
        return frozenset((*violation.names[:2], "pass", "progress"))
    if violation.invariant == "I3":
        return frozenset((*violation.names[:1], "idle"))
    return frozenset(violation.names[:1])
