"""Run a scenario on an engine's real scheduler.

Standard library only: it runs in the engine's own Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ...formats.errors import InfrastructureError
from .draining import Drain
from .flights import Flights
from .loop import Loop, Stop
from .protocol import Driver, Engine, Pool, State, Unsupported
from .results import Call, Hook, Limits, Moment, Run
from .scenario import Scenario
from .stall import find_stall
from .watch import Watch

__all__ = ["Call", "Hook", "Limits", "Moment", "Run", "run", "understood"]

_T = TypeVar("_T")


def run(
    scenario: Scenario,
    driver: Driver,
    *,
    check: bool = True,
    limits: Limits | None = None,
    hook: Hook | None = None,
    drain: bool = True,
    at: Callable[[int, str], None] | None = None,
) -> Run:
    """Run a scenario.

    Parameters
    ----------
    scenario : Scenario
    driver : Driver
        The engine's adapter.
    check : bool
        Judge after every call.
    limits : Limits, optional
        When to give up.
    hook : callable, optional
        May insert inputs, see `Hook`.
    drain : bool
        Go on after the last input until everything has ended.
    at : callable, optional
        Told before each call into the engine its number and kind, and -1 after the last.

    Returns
    -------
    Run
        With what was found; an exception of the engine is a finding.

    Raises
    ------
    Unsupported
        The engine cannot be built with this configuration.
    InfrastructureError
        The adapter says that something beside the scheduler failed.
    """
    result = Run(scenario)
    limits = limits or Limits()
    at = at or (lambda call, kind: None)
    flights = Flights(understood(lambda: max(1, driver.depth(scenario.config))), scenario.endings)
    tokens = scenario.tokens()
    at(0, "build")
    engine: Engine = understood(lambda: driver.build(scenario.config, tokens))
    result.pools = _pools(scenario.pools, engine.state())
    at(-1, "")
    watch = Watch(
        result.pools,
        tokens,
        exempt=getattr(driver, "exempt", frozenset()),
        patience=understood(lambda: _patience(driver, scenario.config)),
        slack_steps=limits.slack_steps,
    )
    loop = Loop(
        result, engine, result.pools, flights, watch,
        stuck=find_stall, check=check, limits=limits, hook=hook, at=at,
    )  # fmt: skip
    try:
        for given in scenario.inputs:
            try:
                loop.offer(given)
            finally:
                result.given = len(result.calls)
        if drain:
            Drain(loop).run()
    except Stop:
        pass
    finally:
        result.commands = watch.commands
        result.violations = watch.violations
        at(len(result.calls), "close")
        engine.close()
        at(-1, "")
    return result


def understood(make: Callable[[], _T]) -> _T:
    """Return what an adapter makes of a configuration.

    Raises
    ------
    Unsupported
        It makes nothing of it: a configuration comes from a file and may hold anything.
    """
    try:
        return make()
    except (Unsupported, InfrastructureError, MemoryError):
        raise
    except Exception as e:
        what = f"{type(e).__name__}: {str(e)[:200]}"
        raise Unsupported(f"nothing can be built with this configuration: {what}") from None


def _pools(recorded: Sequence[Pool], empty: State) -> tuple[Pool, ...]:
    """Return the pools as they are in a scheduler just built: a configuration may make them smaller."""
    known = {p.name: p for p in recorded}
    made = []
    for name, seen in empty.pools.items():
        pool = known.get(name, Pool(name, seen.free))
        made.append(replace(pool, units=seen.free + pool.reserved))
    return tuple(made)


def _patience(driver: Driver, config: Mapping[str, Any]) -> int:
    """Return how many steps in a row that schedule nothing, while work waits, prove a stall."""
    depends = getattr(driver, "patience_of", None)
    return int(depends(config)) if depends is not None else int(getattr(driver, "patience", 3))
