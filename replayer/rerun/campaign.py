"""A campaign: perturbed reruns of one recording, aimed by state, then random.

A fault planted into the engine proves in each that the machinery bites.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ...formats.errors import UsageError
from .budget import Budget
from .crew import Crew, Told
from .plan import Facts, aimed, possible_actions, random_recipes, variants
from .recipe import Recipe
from .reducing import reduce_death, reduce_inside
from .scenario import Scenario
from .violation import CRASH, HANG, Violation
from .workers import Died, Worker

__all__ = ["Campaign", "Found", "Outcome", "Planted"]

_SAME_AIM = 3
"""Variants in which the same aim is tried, for each part of the aims."""
_PLANT_AIMS = 70
_PLANT_RUNS = 100
"""Runs with one planted fault; after that comes the next."""
_PLANT_S = 20.0
_PLANT_SHARE = 0.25
_REDUCE_S = 30.0
_TROUBLES = 5


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


class Campaign:
    """Perturbs one recording.

    Parameters
    ----------
    base : Scenario
        What was recorded.
    make : callable
        Makes a worker for its engine.
    jobs : int
        Workers at once.
    seed : int
        Of the random part.
    budget : Budget
        Of all perturbed runs; those with the planted fault come on top, as do reductions.
    only : frozenset of str
        Actions that are tried; empty: all.
    plant : str or None
        Which fault is planted, None: the adapter's first that applies.
    plant_s : float
        Seconds for the planted faults, at least; a quarter of the budget where that is more.
    reduce_s : float
        Seconds for each reduction, 0: none.
    progress : callable, optional
        Told after each run what there is so far.

    Attributes
    ----------
    outcome : Outcome
        What there is so far.
    """

    def __init__(
        self,
        base: Scenario,
        make: Callable[[], Worker],
        *,
        jobs: int = 1,
        seed: int = 0,
        budget: Budget | None = None,
        only: frozenset[str] = frozenset(),
        plant: str | None = None,
        plant_s: float = _PLANT_S,
        reduce_s: float = _REDUCE_S,
        progress: Callable[[Outcome], None] | None = None,
    ) -> None:
        self.outcome = Outcome(base.engine)
        self._base = base
        self._make = make
        self._jobs = jobs
        self._seed = seed
        self._budget = budget or Budget()
        self._only = only
        self._plant = plant
        self._plant_s = plant_s
        self._reduce_s = reduce_s
        self.progress = progress
        self._start = 0.0
        self._tried = 0
        self._moments: dict[Recipe, list[tuple[str, str, int]]] = {}

    def run(self) -> Outcome:
        """Run it; Ctrl-C ends it with what there is.

        Raises
        ------
        Unsupported
            The engine is not there, or cannot be built like this.
        InfrastructureError
            Its process does not work.
        """
        with Crew(self._make, self._jobs, self._base.as_dict()) as crew:
            self.outcome.version = str(crew.opened["version"])
            self._start = time.monotonic()
            try:
                self._search(crew)
            except KeyboardInterrupt:
                self.outcome.interrupted = True
            self.outcome.seconds = time.monotonic() - self._start
            if self._reduce_s and not self.outcome.interrupted:
                self._reduce(crew)
        return self.outcome

    # --- what is tried ---

    def _search(self, crew: Crew) -> None:
        facts = Facts.from_dict(crew.facts)
        if self._only:
            _check_only(facts, self._only, self._base.engine)
            facts = _narrowed(facts, self._only)
        plain = [Recipe(), *variants(facts)]
        self._try(crew, plain)
        self._plant_one(crew, plain, facts)
        for part in (0, 1, 2):
            self._try(crew, self._aims(plain[1:], facts, part))
        self._try(crew, self._kept(random_recipes(facts, self._seed)))

    def _aims(self, plain: Iterable[Recipe], facts: Facts, part: int) -> Iterator[Recipe]:
        """Yield aims, in turn from each variant; the same one only in a few of them.

        Those variants come first in which requests are in most phases.
        """
        turns = [(v, self._moments.get(v, [])) for v in plain]
        turns.sort(key=lambda t: -len({phase for phase, *_ in t[1]}))
        tried = Counter[tuple[str, str, str, str, int]]()
        lists = [deque(aimed(variant, moments, facts, part)) for variant, moments in turns]
        while any(lists):
            for left in lists:
                while left:
                    recipe = left.popleft()
                    (aim,) = recipe.aims
                    key = aim.action, aim.phase, aim.place, aim.word, aim.count
                    if tried[key] < _SAME_AIM:
                        tried[key] += 1
                        yield from self._kept([recipe])
                        break

    def _kept(self, recipes: Iterable[Recipe]) -> Iterator[Recipe]:
        """Leave out what `only` does not name."""
        for recipe in recipes:
            if self._only:
                recipe = recipe.but(aims=tuple(a for a in recipe.aims if a.action in self._only))
                if not recipe.aims:
                    continue
            yield recipe

    def _try(self, crew: Crew, recipes: Iterable[Recipe]) -> None:
        for told in crew.run(self._counted(recipes), goes_on=self._goes_on):
            self._take(told)
            if self.progress is not None:
                self.outcome.seconds = time.monotonic() - self._start
                self.progress(self.outcome)

    def _counted(self, recipes: Iterable[Recipe]) -> Iterator[tuple[Recipe, dict[str, Any]]]:
        for recipe in recipes:
            self._tried += 1
            yield recipe, {"do": "recipe", "recipe": recipe.as_dict()}

    def _goes_on(self) -> bool:
        """Whether the budget has something left."""
        runs, seconds = self._budget.runs, self._budget.seconds
        if runs is not None and self._tried >= runs:
            return False
        return seconds is None or time.monotonic() - self._start < seconds

    def _take(self, told: Told) -> None:
        out, recipe = self.outcome, told.job
        if told.trouble:
            out.trouble_count += 1
            if len(out.troubles) < _TROUBLES:
                out.troubles.append(f"{told.trouble} ({recipe.text()})")
        if told.violation is not None:
            out.runs += 1
            self._find(told.violation, recipe, None)
        if told.answer is None:
            return
        answer = told.answer
        out.runs += 1
        out.calls += answer["calls"]
        out.steps += answer["steps"]
        moments = [(str(phase), str(place), int(n)) for phase, place, n in answer["moments"]]
        if not recipe.aims:
            self._moments[recipe] = moments
        for phase, place, n in moments:
            out.moments[phase, place] += n
        if answer["inserted"]:
            out.actions.update(aim.action for aim in recipe.aims)
        made = Scenario.from_dict(answer["made"]) if answer["made"] else None
        for kind in dict.fromkeys((v["invariant"], v["what"]) for v in answer["violations"]):
            first = next(v for v in answer["violations"] if (v["invariant"], v["what"]) == kind)
            self._find(Violation(**first), recipe, made)
        if not answer["violations"] and not answer["drained"]:
            out.unjudged[answer["reason"] or "it did not come to its end"] += 1

    def _find(self, violation: Violation, recipe: Recipe, made: Scenario | None) -> None:
        known = self.outcome.found.get(violation.kind)
        if known is None:
            self.outcome.found[violation.kind] = Found(violation, recipe, run=self.outcome.runs, made=made)
            return
        known.count += 1
        shorter = made is not None and known.made is not None and len(made.inputs) < len(known.made.inputs)
        if shorter:  # less to reduce
            known.violation, known.recipe, known.made = violation, recipe, made

    # --- the planted fault ---

    def _plant_one(self, crew: Crew, plain: list[Recipe], facts: Facts) -> None:
        """Plant faults, one after the other, until one is found: the machinery bites."""
        names = [str(n) for n in crew.opened["faults"]]
        if self._plant is not None:
            if self._plant not in names:
                raise UsageError(
                    f"--plant {self._plant}",
                    expected=f"one of {', '.join(names)}" if names else "an adapter that has faults to plant",
                    next_step="leave the option out",
                )
            names = [self._plant]
        elif names:
            turn = self._seed % len(names)
            names = names[turn:] + names[:turn]
        start = time.monotonic()
        most_s = max(self._plant_s, _PLANT_SHARE * (self._budget.seconds or 0.0))
        runs = 0
        for name in names:
            most = _PLANT_RUNS if self._plant is None else 10 * _PLANT_RUNS
            aims = self._aims(plain[1:], facts, 0)
            recipes = itertools.chain(
                itertools.islice(aims, _PLANT_AIMS), plain[1:], aims, random_recipes(facts, self._seed)
            )
            violation, made = self._planted(crew, name, itertools.islice(recipes, most), start + most_s)
            runs += made
            self.outcome.planted = Planted(name, violation, runs)
            if violation is not None or time.monotonic() > start + most_s:
                break
        self._start += time.monotonic() - start  # it does not count in the budget, nor in runs/s

    def _planted(
        self, crew: Crew, name: str, recipes: Iterable[Recipe], until: float
    ) -> tuple[Violation | None, int]:
        """Run recipes with a fault until one shows it; return what it shows and how many ran."""
        found: list[Violation] = []
        runs = 0
        jobs = ((r, {"do": "recipe", "recipe": r.as_dict(), "plant": name}) for r in recipes)
        suspects: list[tuple[Recipe, Violation]] = []
        for told in crew.run(jobs, goes_on=lambda: not suspects and time.monotonic() < until):
            runs += 1
            suspects.extend((told.job, v) for v in self._bitten(told)[:1])
        for recipe, violation in suspects:
            # It must be the fault's: without it the same run does not show that.
            try:
                answer = crew.ask({"do": "recipe", "recipe": recipe.as_dict()})
            except Died:
                continue
            if all((v["invariant"], v["what"]) != violation.kind for v in answer["violations"]):
                found.append(violation)
        return (found[0] if found else None), runs

    def _bitten(self, told: Told) -> list[Violation]:
        """Return the kinds that a run with a planted fault shows and the engine so far does not."""
        shown = [Violation(**v) for v in (told.answer or {}).get("violations", ())]
        shown += [told.violation] if told.violation is not None else []
        return [v for v in shown if v.kind not in self.outcome.found]

    # --- reduction ---

    def _reduce(self, crew: Crew) -> None:
        for found in self.outcome.found.values():
            try:
                if found.violation.invariant in (CRASH, HANG):
                    cut = reduce_death(crew, found.recipe, found.violation, self._reduce_s)
                elif found.made is not None:
                    cut = reduce_inside(crew, found.made, found.violation, self._reduce_s)
                else:
                    continue
            except Died as e:
                self.outcome.troubles.append(f"not reduced: {e.words}")
                continue
            except KeyboardInterrupt:
                self.outcome.interrupted = True
                return
            found.litmus, found.reduced = cut.litmus, cut.scenario
            found.minimal, found.reduce_runs = cut.minimal, cut.runs


def _check_only(facts: Facts, only: frozenset[str], engine: str) -> None:
    """Raise a `UsageError` where nothing of `only` can be tried: the search for one would not end."""
    possible = possible_actions(facts)
    if only.isdisjoint(possible):
        raise UsageError(
            f"--only {', '.join(sorted(only))}",
            expected=f"what {engine} can be given on this recording: {', '.join(possible) or 'nothing'}",
            next_step=f"say --only {possible[0]}, or leave it out" if possible else "leave it out",
        )


def _narrowed(facts: Facts, only: frozenset[str]) -> Facts:
    """Return the facts without pressures that nobody asked for."""
    inputs = facts.inputs if "decode_only" in only else facts.inputs - {"decode_only"}
    return Facts(**{**{n: getattr(facts, n) for n in facts.__slots__}, "inputs": inputs})
