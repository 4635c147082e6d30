"""What the kit measures an engine adapter by: cases, results, and the report over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..protocol import Driver, Pool

__all__ = ["Case", "Report", "Result", "Skip", "Subject"]


@dataclass(frozen=True)
class Subject:
    """An engine adapter, and how requests look that suit its engine.

    Attributes
    ----------
    driver : Driver
        The adapter.
    config : mapping of str to scalar
        A configuration with room for four requests of `long_tokens` at once.
    pools : tuple of Pool
        Its pools; empty: as a scheduler just built shows them.
    prompt_tokens : int
        A prompt that one step computes, and that takes more than one unit.
    long_tokens : int
        A prompt that takes several steps where prompts are chunked.
    max_tokens : int
        Tokens to produce.
    shared_tokens : int
        A common beginning of two prompts that is long enough to be found; at most `long_tokens`.
    tight : mapping of str to scalar or None
        A configuration in which two requests of `prompt_tokens` run, but not to their end without a
        preemption; None: those cases are skipped.
    tight_tokens : int
        What the two produce.
    session, blocked : tuple of str
        Flags of a request that takes further chunks, and of one that waits for ``set_schedulable``; empty:
        the engine has no such requests.
    """

    driver: Driver
    config: Mapping[str, Any]
    pools: tuple[Pool, ...] = ()
    prompt_tokens: int = 12
    long_tokens: int = 40
    max_tokens: int = 4
    shared_tokens: int = 32
    tight: Mapping[str, Any] | None = None
    tight_tokens: int = 24
    session: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()


class Skip(Exception):
    """The engine, or this configuration, does not have what a case is about; says what."""


@dataclass(frozen=True)
class Case:
    """One promise of the protocol, and how to see whether it is kept.

    Attributes
    ----------
    name : str
        ``GROUP/NAME``; unique.
    promise : str
        What the adapter promises, in words; printed where it does not keep it.
    trial : callable
        Returns what is wrong, in words, or an empty string; raises `Skip`.
    """

    name: str
    promise: str
    trial: Callable[[Subject], str]


@dataclass(frozen=True)
class Result:
    """What became of a case.

    Attributes
    ----------
    case : Case
        The case.
    state : str
        ``passed``, ``failed`` or ``skipped``.
    why : str
        What was found instead; why it was skipped.
    """

    case: Case
    state: str
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the result for ``--json``."""
        return {"name": self.case.name, "state": self.state, "promise": self.case.promise, "why": self.why}


@dataclass
class Report:
    """The results of an adapter.

    Attributes
    ----------
    engine : str
        Its name.
    results : list of Result
        In the order of the cases.
    """

    engine: str
    results: list[Result] = field(default_factory=list)

    def of(self, state: str) -> list[Result]:
        """Return the results in a state."""
        return [r for r in self.results if r.state == state]

    @property
    def passed(self) -> bool:
        """Whether no case failed, and some passed."""
        return not self.of("failed") and bool(self.of("passed"))

    def text(self, *, every: bool = False) -> str:
        """Return the report for people: what failed and what was skipped; `every`: what passed as well."""
        lines = []
        for r in self.results:
            if r.state == "passed":
                lines += [f"passed   {r.case.name}"] if every else []
                continue
            lines.append(f"{r.state:8} {r.case.name}: {r.why}")
            if r.state == "failed":
                lines.append(f"         promised: {r.case.promise}")
        counts = ", ".join(f"{len(self.of(s))} {s}" for s in ("passed", "failed", "skipped"))
        return "\n".join([*lines, f"{self.engine}: {counts}"])

    def as_dict(self) -> dict[str, Any]:
        """Return the report for ``--json``."""
        counts = {s: len(self.of(s)) for s in ("passed", "failed", "skipped")}
        return {
            "schema": "tapedelay-rerun-conformance-1",
            "engine": self.engine,
            "passed": self.passed,
            "counts": counts,
            "results": [r.as_dict() for r in self.results],
        }
