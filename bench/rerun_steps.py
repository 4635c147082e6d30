"""Reruns one recorded request scheduler, exactly and perturbed, and says how fast that goes.

Runs in a Python that has the engine: ``rerun_steps.py FILE``, where FILE is JSON with ``scenario`` and
``recorded``, or without FILE on the toy of the tests. Prints one JSON object; times are processor time.
"""

from __future__ import annotations

import gc
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tapedelay.replayer.rerun.drive import Limits, Run, run
from tapedelay.replayer.rerun.perturb import bare, run_recipe
from tapedelay.replayer.rerun.plan import facts_of, random_recipes, variants
from tapedelay.replayer.rerun.protocol import Driver, Pool, Submission, Unsupported
from tapedelay.replayer.rerun.recipe import Aim, Recipe
from tapedelay.replayer.rerun.registry import driver
from tapedelay.replayer.rerun.scenario import Input, Scenario
from tapedelay.replayer.rerun.strict import Recorded, compare, recorded_of

ROUNDS = 5
VARIANTS = 30
RANDOM = 60
ABORT = Recipe(aims=(Aim("abort", "decode", "between", 7),))
"""One abort, and the recording as long as it is: most recipes take a few of its requests."""


def measured(scenario: Scenario, recorded: Sequence[Recorded], engine: Driver) -> dict[str, Any]:
    """Return rates, and whether the exact rerun was as recorded."""
    version = engine.version()

    def exact(*, check: bool = True) -> Run:
        return run(scenario, engine, limits=Limits(stop_at_first=False), drain=False, check=check)

    first = exact()
    gc.collect()
    gc.freeze()  # as the worker of a campaign does
    base = bare(scenario)
    facts = facts_of(base, engine)
    recipes = [*variants(facts)[::3][:VARIANTS], *itertools.islice(random_recipes(facts, 1), RANDOM)]
    begin = time.process_time()
    made = list(_campaign(base, recipes, engine))
    seconds = time.process_time() - begin
    whole = run_recipe(base, ABORT, engine, Limits(stop_at_first=False))[0]
    return {
        "version": version,
        "diverged": compare(recorded, first) is not None,
        "steps": first.steps,
        "strict_s": _fastest(exact),
        "unchecked_s": _fastest(lambda: exact(check=False)),
        "whole_s": _fastest(lambda: run_recipe(base, ABORT, engine, Limits(stop_at_first=False))),
        "whole_steps": whole.steps,
        "runs": len(made),
        "runs_steps": sum(made),
        "runs_s": seconds,
    }


def _campaign(base: Scenario, recipes: list[Recipe], engine: Driver) -> Iterator[int]:
    """Yield the steps of each run that the engine takes."""
    for recipe in recipes:
        try:
            yield run_recipe(base, recipe, engine)[0].steps
        except Unsupported:
            continue


def _fastest(what: Callable[[], object]) -> float:
    taken = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        what()
        taken.append(time.process_time() - begin)
    return min(taken)


def toy() -> tuple[Scenario, tuple[Recorded, ...], Driver]:
    """Return a run of the toy scheduler, and what it did."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "replayer" / "rerun"))
    from toy import ToyDriver  # type: ignore[import-not-found]

    config = {"kv_units": 24, "unit_tokens": 16, "token_budget": 64, "max_running": 8, "sharing": True}
    inputs = []
    for n in range(100):
        inputs.append(Input("submit", submission=Submission(n, 10 + 37 * n % 70, 5 + 11 * n % 30)))
        inputs += [Input("step"), Input("output")] * 3
    pools = (Pool("kv", config["kv_units"], 0, config["unit_tokens"]),)
    scenario = Scenario("toy", "1.0", config, pools, tuple(inputs))
    made = run(scenario, ToyDriver())
    given = tuple(c.given for c in made.calls)
    recorded = tuple(
        Recorded(
            c.given.kind,
            c.reaction.events,
            {pool: (free, c.used[pool]) for pool, free in c.free.items()},
            c.reaction.ended or (),
            tuple((r, len(t)) for r, t in c.reaction.emitted),
        )
        for c in made.calls
    )
    return scenario.but(inputs=given, pools=made.pools), recorded, ToyDriver()


def main(file: str = "") -> None:
    """Measure and print."""
    if not file:
        print(json.dumps(measured(*toy())))
        return
    data = json.loads(Path(file).read_text())
    scenario = Scenario.from_dict(data["scenario"])
    print(json.dumps(measured(scenario, recorded_of(data["recorded"]), driver(scenario.engine))))


if __name__ == "__main__":
    main(*sys.argv[1:])
