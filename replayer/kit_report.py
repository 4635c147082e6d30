"""What became of the cases of a conformance kit, and the report over them; the kits of backends and of engine
adapters share it. Imports nothing but the standard library: a kit may run in an engine's own Python.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

__all__ = ["KitReport", "Promise", "Result"]


class Promise(Protocol):
    """What the report needs of a case: its name, and what it promises in words."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def promise(self) -> str:
        """What is promised."""
        ...


CaseT = TypeVar("CaseT", bound=Promise)


@dataclass(frozen=True)
class Result(Generic[CaseT]):
    """What became of a case.

    Attributes
    ----------
    case : Promise
        The case.
    state : str
        ``passed``, ``failed`` or ``skipped``.
    why : str
        What was found instead; why it was skipped.
    """

    case: CaseT
    state: str
    why: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the result for ``--json``."""
        return {"name": self.case.name, "state": self.state, "promise": self.case.promise, "why": self.why}


@dataclass
class KitReport(Generic[CaseT]):
    """The results of what a kit measured; each kit says what that is and names its form.

    Attributes
    ----------
    subject : str
        Its name.
    results : list of Result
        In the order of the cases.
    """

    SUBJECT: ClassVar[str]
    """The key of its name in the JSON form."""
    SCHEMA: ClassVar[str]
    """Name of the JSON form."""

    subject: str
    results: list[Result[CaseT]] = field(default_factory=list)

    def of(self, state: str) -> list[Result[CaseT]]:
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
        return "\n".join([*lines, f"{self.subject}: {counts}"])

    def as_dict(self) -> dict[str, Any]:
        """Return the report for ``--json``."""
        counts = {s: len(self.of(s)) for s in ("passed", "failed", "skipped")}
        return {
            "schema": self.SCHEMA,
            self.SUBJECT: self.subject,
            "passed": self.passed,
            "counts": counts,
            "results": [r.as_dict() for r in self.results],
        }
