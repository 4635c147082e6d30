"""Reduces what a campaign found, in the workers that have the engine."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from .crew import Crew
from .recipe import Recipe
from .reduce import Kind, reduce_scenario
from .scenario import Scenario
from .violation import HANG, Violation
from .workers import Died

__all__ = ["Cut", "reduce_death", "reduce_inside"]

_GRACE_S = 60.0
_HANG_S = 3.0
"""How long a call may take while a hang is reduced: it has been confirmed before."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A reduced case.

    Attributes
    ----------
    scenario : Scenario
    litmus : str
        The case as text.
    minimal : bool
        Whether the reduction came to its end.
    runs : int
        Runs that it took.
    """

    scenario: Scenario
    litmus: str
    minimal: bool
    runs: int


def reduce_inside(crew: Crew, made: Scenario, violation: Violation, seconds: float) -> Cut:
    """Reduce a scenario whose run comes to an end: one worker does it all.

    Raises
    ------
    Died
        The worker ended meanwhile.
    """
    message = {"do": "reduce", "scenario": made.as_dict(), "kind": list(violation.kind), "seconds": seconds}
    answer = crew.ask(message, limit_s=seconds + _GRACE_S)
    reduced = Scenario.from_dict(answer["scenario"])
    return Cut(reduced, answer["litmus"], answer["minimal"], answer["runs"])


def reduce_death(crew: Crew, recipe: Recipe, violation: Violation, seconds: float) -> Cut:
    """Reduce what crashes or hangs the scheduler: each run that shows it takes a worker.

    Parameters
    ----------
    crew : Crew
    recipe : Recipe
        What shows it.
    violation : Violation
        The crash or hang; `Violation.call` is the call that does not come back.
    seconds : float
        Time at most.

    Raises
    ------
    Died
        The calls before it do not come back either.
    """
    limit = _HANG_S if violation.invariant == HANG else None
    answer = crew.ask({"do": "recipe", "recipe": recipe.as_dict(), "calls": violation.call})
    made = Scenario.from_dict(answer["made"])
    last = violation
    until = time.monotonic() + seconds

    def probe(tried: Scenario) -> tuple[Collection[Kind], int]:
        nonlocal last
        try:
            told = _ask(crew, tried, limit)
        except Died as e:
            if e.violation is None:
                return (), 0
            if e.violation.kind == violation.kind:
                last = e.violation
            return [e.violation.kind], e.violation.call
        return {(v["invariant"], v["what"]) for v in told["violations"]}, told["calls"]

    reduced = reduce_scenario(made, violation.kind, probe, stop=lambda: time.monotonic() > until)
    probe(reduced.scenario)
    notes = {"breaks": f"{violation.invariant}: {violation.what}", "shows": last.words}
    message = {"do": "scenario", "scenario": reduced.scenario.as_dict(), "calls": last.call, "notes": notes}
    return Cut(reduced.scenario, crew.ask(message)["litmus"], reduced.minimal, reduced.runs)


def _ask(crew: Crew, tried: Scenario, limit_s: float | None) -> Mapping[str, Any]:
    return crew.ask({"do": "scenario", "scenario": tried.as_dict()}, limit_s=limit_s)
