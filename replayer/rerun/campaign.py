"""A campaign: perturbed reruns of one recording, aimed by state, then random.

A fault planted into the engine proves in each that the machinery bites.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...formats.errors import InfrastructureError, Unsupported
from .asked import check_only, check_plant
from .budget import Budget
from .crew import Crew, Told
from .outcome import Found, Outcome, Planted
from .plan import Facts, aimed, random_recipes, variants
from .recipe import Recipe
from .reducing import reduce_death, reduce_inside
from .scenario import Scenario
from .violation import CRASH, HANG, Violation
from .workers import Died, Worker

__all__ = ["PERTURBING", "Campaign"]

PERTURBING = "perturbing"
"""What goes on, as `progress` is told it, while the budget is spent."""

_SAME_AIM = 3
"""Variants in which the same aim is tried, for each part of the aims."""
_PLANT_AIMS = 70
_PLANT_RUNS = 100
"""Runs with one planted fault; after that comes the next."""
_PLANT_S = 20.0
_PLANT_SHARE = 0.25
_REDUCE_S = 30.0
_TROUBLES = 5


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
        Told what goes on, in words, and what there is so far: when something else begins and after each run.

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
        progress: Callable[[str, Outcome], None] | None = None,
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
        out = self.outcome
        try:
            self._tell(f"starting {out.engine}")
            with Crew(self._make, self._jobs, self._base.as_dict()) as crew:
                out.version = str(crew.opened["version"])
                self._start = time.monotonic()
                try:
                    self._search(crew)
                finally:
                    out.seconds = time.monotonic() - self._start
                if self._reduce_s:
                    self._reduce(crew)
        except KeyboardInterrupt:
            out.interrupted = True
        except InfrastructureError as e:
            if not out.found:
                raise
            self._trouble(e.found)  # what was found before is told all the same
        return out

    def _tell(self, doing: str) -> None:
        if self.progress is not None:
            self.progress(doing, self.outcome)

    def _trouble(self, words: str) -> None:
        self.outcome.trouble_count += 1
        if len(self.outcome.troubles) < _TROUBLES:
            self.outcome.troubles.append(words)

    # --- what is tried ---

    def _search(self, crew: Crew) -> None:
        facts = Facts.from_dict(crew.facts)
        faults = [str(name) for name in crew.opened["faults"]]
        if self._plant is not None:
            check_plant(self._plant, faults)
        if self._only:
            check_only(self._only, facts, self._base.engine)
            facts = _narrowed(facts, self._only)
        plain = [Recipe(), *variants(facts)]
        self._try(crew, plain)
        self._plant_one(crew, plain, facts, faults)
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
            self.outcome.seconds = time.monotonic() - self._start
            self._tell(PERTURBING)

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
            self._trouble(f"{told.trouble} ({recipe.text()})")
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

    def _plant_one(self, crew: Crew, plain: list[Recipe], facts: Facts, faults: list[str]) -> None:
        """Plant faults, one after the other, until one is found: the machinery bites."""
        turn = self._seed % max(1, len(faults))
        names = [*faults[turn:], *faults[:turn]] if self._plant is None else [self._plant]
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
            self._tell(f"looking for the planted fault {name}")
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
        kinds = self.outcome.found
        for number, found in enumerate(kinds.values(), 1):
            violation = found.violation
            self._tell(f"reducing {number} of {len(kinds)}: {violation.invariant} {violation.what}")
            try:
                if violation.invariant in (CRASH, HANG):
                    cut = reduce_death(crew, found.recipe, violation, self._reduce_s)
                elif found.made is not None:
                    cut = reduce_inside(crew, found.made, violation, self._reduce_s)
                else:
                    continue
            except Died as e:
                found.unreduced = e.words
            except (InfrastructureError, Unsupported) as e:
                found.unreduced = e.found
            else:
                found.litmus, found.reduced = cut.litmus, cut.scenario
                found.minimal, found.reduce_runs = cut.minimal, cut.runs


def _narrowed(facts: Facts, only: frozenset[str]) -> Facts:
    """Return the facts without pressures that nobody asked for."""
    inputs = facts.inputs if "decode_only" in only else facts.inputs - {"decode_only"}
    return Facts(**{**{n: getattr(facts, n) for n in facts.__slots__}, "inputs": inputs})
