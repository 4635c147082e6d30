"""A recorded scenario made into another one, by a recipe. Standard library only."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from .aiming import CHUNK_TOKENS, Aimed
from .drive import Limits, Run, run
from .protocol import Driver, Unsupported
from .recipe import Recipe
from .scenario import Input, Scenario

__all__ = ["bare", "perturb", "run_recipe"]


def run_recipe(
    base: Scenario, recipe: Recipe, driver: Driver, limits: Limits | None = None
) -> tuple[Run, Aimed]:
    """Perturb a scenario and run it.

    Returns
    -------
    Run
        What came of it; `Run.made` is the scenario without any recipe.
    Aimed
        What was inserted, and which moments there were.
    """
    hook = Aimed(recipe, driver)
    return run(perturb(base, recipe, driver), driver, hook=hook, limits=limits), hook


def perturb(base: Scenario, recipe: Recipe, driver: Driver) -> Scenario:
    """Return the scenario that a recipe makes of another one, without what it inserts by state.

    Parameters
    ----------
    base : Scenario
        A recorded one. Its steps lose their numbers, its outputs their answers: both are another run's.
    recipe : Recipe
    driver : Driver
        Says which configurations are smaller.
    """
    cast = set(recipe.cast) or {s.request for s in base.submissions()}
    kept = [_of(i, cast) for i in base.inputs]
    inputs = [i for i in kept if i is not None]
    if recipe.gap >= 0:
        inputs = _closer(inputs, recipe.gap)
    inputs = _ordered(inputs, recipe.order)
    if recipe.flags:
        inputs = [_flagged(i, recipe.flags) for i in inputs]
    config = dict(base.config)
    submissions = base.but(inputs=tuple(inputs)).demands(_chunks(base, recipe, driver))
    for key, level in recipe.shrink:
        try:
            smaller = driver.smaller(config, key, submissions)
        except Unsupported:
            continue
        if smaller:
            config = dict(smaller[min(level, len(smaller) - 1)])
    return base.but(config=config, inputs=tuple(inputs))


def _chunks(base: Scenario, recipe: Recipe, driver: Driver) -> dict[int, int]:
    """Return how much longer each session may get by the chunks that a recipe inserts."""
    many = sum(aim.action.startswith("chunk") for aim in recipe.aims)
    if not many:
        return {}
    flag = getattr(driver, "session_flag", "")
    flagged = {r for r, f in recipe.flags if f == flag}
    flagged |= {i.request for i in base.inputs if i.kind == "next_chunk" and i.request is not None}
    return {
        s.request: many * (CHUNK_TOKENS + (s.max_tokens or 0))
        for s in base.submissions()
        if s.request in flagged or (flag and flag in s.flags)
    }


def bare(base: Scenario) -> Scenario:
    """Return a scenario whose steps have no numbers and whose outputs no answers: as recipes want it."""
    cast = {s.request for s in base.submissions()}
    return base.but(inputs=tuple(i for given in base.inputs if (i := _of(given, cast)) is not None))


def _of(given: Input, cast: set[int]) -> Input | None:
    """Return an input as far as it is about these requests."""
    about = given.about()
    if given.kind in ("step", "output"):
        bare = given.step is None and given.answers is None
        return given if bare else replace(given, step=None, answers=None)
    if not about:
        return given
    left = tuple(r for r in about if r in cast)
    if not left:
        return None
    return given if given.submission is not None or not given.requests else replace(given, requests=left)


def _closer(inputs: Sequence[Input], gap: int) -> list[Input]:
    """Leave at most so many steps, with their outputs, between two other inputs."""
    made: list[Input] = []
    counts = {"step": 0, "output": 0}
    for given in inputs:
        if given.kind not in counts:
            counts = {"step": 0, "output": 0}
        else:
            counts[given.kind] += 1
            if counts[given.kind] > gap:
                continue
        made.append(given)
    while made and made[-1].kind in counts:
        made.pop()
    return made


def _ordered(inputs: list[Input], order: str) -> list[Input]:
    """Return the inputs with their arrivals in another order; what is about a request stays behind it."""
    if order == "recorded":
        return inputs
    submits = [i for i in inputs if i.kind == "submit"]
    if order == "together":
        return submits + [i for i in inputs if i.kind != "submit"]
    if order == "reversed":
        submits.reverse()
    else:
        random.Random(int(order)).shuffle(submits)
    fresh = iter(submits)
    return [next(fresh) if i.kind == "submit" else i for i in inputs]


def _flagged(given: Input, flags: Sequence[tuple[int, str]]) -> Input:
    if given.submission is None:
        return given
    more = tuple(f for r, f in flags if r == given.submission.request and f not in given.submission.flags)
    return replace(given, submission=replace(given.submission, flags=given.submission.flags + more))
