"""What a campaign found, so far and in the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from .recipe import Recipe
from .scenario import Scenario
from .violation import Violation

__all__ = ["Found", "Outcome", "Planted"]


@dataclass(slots=True)
class Found:
    """One kind of violation.

    Attributes
    ----------
    violation : Violation
        The one of its kind that took the fewest inputs.
    recipe : Recipe
        What showed it.
    count : int
        Runs that showed it.
    run : int
        The how-manieth run was the first.
    made : Scenario or None
        What was really called then; None after a crash.
    litmus : str
        The reduced case as text, "" where it was not reduced.
    reduced : Scenario or None
        The reduced scenario.
    minimal : bool
        Whether the reduction came to its end.
    reduce_runs : int
        Runs that it took.
    unreduced : str
        What kept it from being reduced.
    """

    violation: Violation
    recipe: Recipe
    count: int = 1
    run: int = 0
    made: Scenario | None = None
    litmus: str = ""
    reduced: Scenario | None = None
    minimal: bool = False
    reduce_runs: int = 0
    unreduced: str = ""


@dataclass(frozen=True, slots=True)
class Planted:
    """What became of the planted fault.

    Attributes
    ----------
    name : str
        Which fault; "" where the adapter has none.
    found : Violation or None
        What showed it.
    runs : int
        Runs that were made with it.
    """

    name: str = ""
    found: Violation | None = None
    runs: int = 0


@dataclass(slots=True)
class Outcome:
    """What a campaign found.

    Attributes
    ----------
    engine, version : str
    runs, calls, steps : int
        Runs that were judged, calls into the engine and steps in them.
    seconds : float
        Time of the perturbed runs, without reductions.
    found : dict of (str, str) to Found
        By kind, first found first.
    planted : Planted
        Whether the machinery bites.
    unjudged : Counter of str
        Runs that ended early without a finding, by reason: they are not clean.
    troubles : list of str
        Runs that infrastructure kept from being judged, in words, the first few.
    trouble_count : int
        How many.
    moments : Counter of (str, str)
        How often some request was in a phase at a place: what there was to aim at.
    actions : Counter of str
        What was inserted, by action.
    interrupted : bool
        Ctrl-C ended it.
    """

    engine: str
    version: str = ""
    runs: int = 0
    calls: int = 0
    steps: int = 0
    seconds: float = 0.0
    found: dict[tuple[str, str], Found] = field(default_factory=dict)
    planted: Planted = field(default_factory=Planted)
    unjudged: Counter[str] = field(default_factory=Counter)
    troubles: list[str] = field(default_factory=list)
    trouble_count: int = 0
    moments: Counter[tuple[str, str]] = field(default_factory=Counter)
    actions: Counter[str] = field(default_factory=Counter)
    interrupted: bool = False

    @property
    def verdict(self) -> str:
        """``found``, ``failed`` (infrastructure), ``cannot judge`` or ``clean``."""
        if self.found:
            return "found"
        if self.trouble_count:
            return "failed"
        if self.planted.found is None or not self.runs or self.unjudged.total() * 2 > self.runs:
            return "cannot judge"
        return "clean"
