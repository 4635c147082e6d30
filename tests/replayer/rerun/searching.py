"""Clean recordings of the toy, and the search for a fault that is planted into it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import replace

from tapedelay.replayer.rerun.drive import Run, run
from tapedelay.replayer.rerun.perturb import run_recipe
from tapedelay.replayer.rerun.plan import Facts, aimed, facts_of, variants
from tapedelay.replayer.rerun.protocol import Pool, Submission
from tapedelay.replayer.rerun.recipe import Recipe
from tapedelay.replayer.rerun.reduce import Kind, Reduced, Shrinks, reduce_scenario
from tapedelay.replayer.rerun.scenario import Ending, Input, Scenario

from .toy import ToyDriver

__all__ = ["RECORDINGS", "probe", "recorded", "reduced", "search"]

DRIVER = ToyDriver()
_PAIR = (Input("step"), Input("output"))


def _submit(
    request: int, prompt: int, most: int, *flags: str, reserve: int | None = None, priority: int | None = None
) -> Input:
    submission = Submission(request, prompt, most, flags=flags, reserve_tokens=reserve, priority=priority)
    return Input("submit", submission=submission)


def recorded(inputs: tuple[Input, ...], **config: int | bool) -> Scenario:
    """Return a scenario as a recording of the toy gives it."""
    made = {"kv_units": 33, "unit_tokens": 4, "token_budget": 8, "max_running": 4, **config}
    pools: tuple[Pool, ...] = (Pool("kv", int(made["kv_units"]), 1, 4),)
    if made.get("slots"):
        pools += (Pool("state", int(made["slots"])),)
    prefixes = ((1, 0, 0, 8), (2, 0, 0, 8)) if made.get("sharing") else ()
    return Scenario("toy", "1.0", made, pools, inputs, prefixes)


_PLAIN = (
    _submit(0, 9, 6), *_PAIR * 2, _submit(1, 13, 6), *_PAIR, _submit(2, 10, 5), *_PAIR * 9,
)  # fmt: skip
_SESSION = (
    _submit(0, 6, 2, "session"), _submit(1, 9, 6), *_PAIR * 7, Input("next_chunk", request=0, tokens=5),
    *_PAIR * 6, Input("next_chunk", request=0, last=True),
)  # fmt: skip
_BLOCKED = (
    _submit(0, 9, 4), _submit(1, 10, 3, "blocked", reserve=10), *_PAIR * 4,
    Input("set_schedulable", request=1), *_PAIR * 4,
)  # fmt: skip
_LONG = (
    _submit(0, 9, 12, priority=1), *_PAIR * 3, _submit(1, 30, 2, priority=0), *_PAIR * 4,
)  # fmt: skip

RECORDINGS = {
    "plain": recorded(_PLAIN),
    "slots": recorded(_PLAIN, slots=4),
    "async": recorded(_PLAIN, depth=2, sharing=True, priority=True).but(endings=(Ending(0, 2, "stop"),)),
    "session": recorded(_SESSION, depth=2).but(endings=(Ending(0, 1, "stop"),)),
    "long": recorded(_LONG, priority=True),
    "blocked": recorded(_BLOCKED),
}
"""One for each configuration; nothing is aborted or preempted in any."""


def search(
    base: Scenario, only: Collection[str], most: int, less: Collection[str] = ()
) -> Iterator[tuple[Recipe, Run]]:
    """Yield perturbed runs, as a campaign makes them with ``--only``.

    Parameters
    ----------
    base : Scenario
        The recording.
    only : collection of str
        Actions that are inserted.
    most : int
        Runs at most.
    less : collection of str
        Keys of the configuration that may be smaller.
    """
    facts = facts_of(base, DRIVER)
    shrinks = tuple((key, n) for key, n in facts.shrinks if key in less)
    inputs = facts.inputs if "decode_only" in only else facts.inputs - {"decode_only"}
    facts = replace(facts, shrinks=shrinks, inputs=inputs, session_flag="", blocked_flag="")
    yield from itertools.islice(_runs(base, facts, only), most)


def _runs(base: Scenario, facts: Facts, only: Collection[str]) -> Iterator[tuple[Recipe, Run]]:
    lists = []
    for variant in variants(facts):
        result, hook = run_recipe(base, variant, DRIVER)
        yield variant, result
        moments = [(phase, place, n) for (phase, place), n in hook.moments.items()]
        lists.append([r for r in aimed(variant, moments, facts, 0) if r.aims[0].action in only])
    for row in itertools.zip_longest(*lists):
        for recipe in row:
            if recipe is not None:
                yield recipe, run_recipe(base, recipe, DRIVER)[0]


def probe(scenario: Scenario) -> tuple[set[Kind], int]:
    """Run a scenario for a reduction."""
    result = run(scenario, DRIVER)
    return {v.kind for v in result.violations}, len(result.commands)


def reduced(scenario: Scenario, kind: Kind) -> Reduced:
    """Reduce a scenario on the toy."""
    return reduce_scenario(scenario, kind, probe, shrinks=Shrinks(DRIVER.shrinks, DRIVER.smaller))
