"""What a worker does for each message: it owns the engine, the other side only sends and receives JSON.

Standard library only: it runs in the engine's own Python.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from ...formats.errors import InfrastructureError
from .aiming import Aimed
from .drive import Limits, Run, run, understood
from .perturb import bare, perturb
from .plan import facts_of
from .protocol import Driver, Unsupported
from .recipe import Recipe
from .registry import driver
from .scenario import Scenario
from .strict import compare, recorded_of

__all__ = ["Server"]

Told = Callable[[int, str], None]

_SHOWN_KEYS = 6


class _Incomplete(Exception):
    """A tape does not say with what its scheduler was built."""


class Server:
    """Holds one engine adapter, and the scenario that recipes start from.

    Parameters
    ----------
    told : callable
        Told before each call into the engine its number and kind, and -1 after the last.
    limits : Limits, optional
        When a run is given up.
    """

    def __init__(self, told: Told, limits: Limits | None = None) -> None:
        self._told = told
        self._limits = limits
        self._driver: Driver | None = None
        self._base: Scenario | None = None

    def handle(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a message; what went wrong stands in ``error`` and ``words``."""
        does = {
            "open": self._open,
            "base": self._set_base,
            "recipe": self._recipe,
            "scenario": self._scenario,
            "strict": self._strict,
            "reduce": self._reduce,
        }
        try:
            return does[message["do"]](message)
        except Unsupported as e:
            return {"error": "unsupported", "words": str(e)}
        except _Incomplete as e:
            return {"error": "incomplete", "words": str(e)}
        except InfrastructureError as e:
            return {"error": "infrastructure", "words": e.text()}
        except MemoryError:
            return {"error": "infrastructure", "words": "no memory is left"}
        except Exception as e:
            where = traceback.extract_tb(e.__traceback__)[-1]
            words = f"the engine adapter failed: {type(e).__name__}: {e} (in {where.name})"
            return {"error": "infrastructure", "words": words}

    def _open(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self._driver = driver(message["engine"])
        version = self._driver.version()
        return {
            "version": version,
            "inputs": sorted(self._driver.inputs),
            "faults": list(self._driver.faults()),
            "exempt": sorted(getattr(self._driver, "exempt", ())),
        }

    def _set_base(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self._base = base = bare(self._whole(Scenario.from_dict(message["scenario"])))
        return {"facts": understood(lambda: facts_of(base, self._mine)).as_dict()}

    def _recipe(self, message: Mapping[str, Any]) -> dict[str, Any]:
        assert self._base is not None
        recipe = Recipe.from_dict(message["recipe"])
        hook = Aimed(recipe, self._mine)
        with self._planted(message):
            made = perturb(self._base, recipe, self._mine)
            result = run(made, self._mine, hook=hook, limits=self._within(message), at=self._told)
        moments = [[phase, place, n] for (phase, place), n in hook.moments.items()]
        told = _told(result)
        if "calls" in message:
            told["made"] = result.made().as_dict()
        return {**told, "inserted": hook.inserted, "moments": moments}

    def _scenario(self, message: Mapping[str, Any]) -> dict[str, Any]:
        scenario = Scenario.from_dict(message["scenario"])
        with self._planted(message):
            result = run(scenario, self._mine, limits=self._within(message, scenario), at=self._told)
        told = _told(result)
        if "notes" in message:
            told["litmus"] = _litmus(result, {**self._note(), **message["notes"]})
        return told

    def _strict(self, message: Mapping[str, Any]) -> dict[str, Any]:
        scenario = self._whole(Scenario.from_dict(message["scenario"]))
        recorded = recorded_of(message["recorded"])
        start = time.perf_counter()
        limits = replace(self._within(message, scenario), stop_at_first=False)
        result = run(scenario, self._mine, limits=limits, drain=False, at=self._told)
        seconds = time.perf_counter() - start
        divergence = compare(recorded, result, ordered=getattr(self._mine, "ordered", True))
        if divergence is not None:
            # The recorded answers do not fit what the scheduler does from there on.
            result.violations = [v for v in result.violations if v.call <= divergence.index]
        return {
            **_told(result),
            "divergence": None if divergence is None else divergence.as_dict(),
            "compared": len(recorded),
            "seconds": seconds,
        }

    def _reduce(self, message: Mapping[str, Any]) -> dict[str, Any]:
        from .case import run_to_show
        from .reduce import Shrinks, reduce_scenario

        scenario = Scenario.from_dict(message["scenario"])
        kind = (message["kind"][0], message["kind"][1])
        mine = self._mine
        until = time.monotonic() + message["seconds"]

        def probe(tried: Scenario) -> tuple[Collection[tuple[str, str]], int]:
            try:
                tried_run = run(tried, mine, limits=self._limits, at=self._told)
            except Unsupported:
                return (), 0
            return {v.kind for v in tried_run.violations}, len(tried_run.commands)

        with self._planted(message):
            reduced = reduce_scenario(
                scenario,
                kind,
                probe,
                shrinks=Shrinks(mine.shrinks, mine.smaller),
                stop=lambda: time.monotonic() > until,
            )
            last = run_to_show(reduced.scenario, mine, limits=self._limits, at=self._told)
        return {
            **_told(last),
            "scenario": reduced.scenario.as_dict(),
            "runs": reduced.runs,
            "minimal": reduced.minimal,
            "litmus": _litmus(last, self._note()),
        }

    @property
    def _mine(self) -> Driver:
        if self._driver is None:
            raise Unsupported("no engine is open")
        return self._driver

    def _whole(self, scenario: Scenario) -> Scenario:
        """Return what a tape gives; raise where it lacks what the engine's recorder always writes."""
        missing = getattr(self._mine, "missing", None)
        lacking = [] if missing is None else understood(lambda: list(missing(scenario.config)))
        if lacking:
            shown = ", ".join(lacking[:_SHOWN_KEYS]) + ", ..." * (len(lacking) > _SHOWN_KEYS)
            raise _Incomplete(f"the configuration of the recorded scheduler has no {shown}")
        return scenario

    def _within(self, message: Mapping[str, Any], scenario: Scenario | None = None) -> Limits:
        """Return the limits: on steps beside those that a scenario gives, and on calls as a message says."""
        limits = self._limits or Limits()
        if scenario is not None:
            given = sum(i.kind == "step" for i in scenario.inputs)
            limits = replace(limits, max_steps=limits.max_steps + given)
        return replace(limits, max_calls=int(message["calls"])) if "calls" in message else limits

    def _note(self) -> dict[str, str]:
        return {"engine": f"{self._mine.name} {self._mine.version()}"}

    def _planted(self, message: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Return the fault that a message wants planted into the engine, as a context."""
        name = message.get("plant")
        if not name:
            return nullcontext()
        faults = self._mine.faults()
        if name not in faults:
            raise Unsupported(f"{self._mine.name} has no fault {name!r}: {', '.join(faults)}")
        return faults[name]()


def _litmus(result: Run, notes: Mapping[str, str]) -> str:
    from ...formats.sequence import print_sequence
    from .case import case_of

    return print_sequence(case_of(result, notes=notes))


def _told(result: Run) -> dict[str, Any]:
    return {
        "violations": [v.as_dict() for v in result.violations],
        "drained": result.drained,
        "steps": result.steps,
        "calls": len(result.calls),
        "reason": result.error,
        "skipped": dict(result.skipped),
        "lacking": dict(result.lacking),
        "made": result.made().as_dict() if result.violations else None,
        "requests": len(result.scenario.submissions()),
    }
