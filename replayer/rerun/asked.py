"""What a campaign is asked for, against what the engine has on this recording."""

from __future__ import annotations

from collections.abc import Collection

from ...formats.errors import InfrastructureError, UsageError
from ...formats.shown import quoted
from .drive import understood
from .perturb import bare
from .plan import Facts, outline_of, possible_actions
from .protocol import Unsupported
from .registry import DRIVERS, driver
from .scenario import Scenario

__all__ = ["check_asked", "check_only", "check_plant"]


def check_asked(scenario: Scenario, only: Collection[str], plant: str | None) -> None:
    """Check both, as far as they can be judged where the engine itself need not be: with our own adapters.

    Parameters
    ----------
    scenario : Scenario
        What was recorded.
    only : collection of str
        Actions that are asked for; empty: all.
    plant : str or None
        Fault that is asked for.

    Raises
    ------
    UsageError
        This engine has not what is asked for.
    """
    if not (only or plant) or scenario.engine not in DRIVERS:
        return
    try:
        adapter = driver(scenario.engine)
        facts = understood(lambda: outline_of(bare(scenario), adapter))
    except (Unsupported, InfrastructureError):
        return  # the engine's own process says so
    if plant is not None:
        check_plant(plant, list(adapter.faults()))
    if only:
        check_only(only, facts, scenario.engine)


def check_only(only: Collection[str], facts: Facts, engine: str) -> None:
    """Check that something of `only` can be tried: the search for what cannot would not end.

    Raises
    ------
    UsageError
        Nothing of it can.
    """
    possible = possible_actions(facts)
    if set(only).isdisjoint(possible):
        raise UsageError(
            f"--only {', '.join(sorted(only))}",
            expected=f"what {engine} can be given on this recording: {', '.join(possible) or 'nothing'}",
            next_step=f"say --only {possible[0]}, or leave it out" if possible else "leave it out",
        )


def check_plant(plant: str, faults: Collection[str]) -> None:
    """Check that there is such a fault.

    Raises
    ------
    UsageError
        There is none.
    """
    if plant not in faults:
        names = ", ".join(map(quoted, faults))
        raise UsageError(
            f"--plant {quoted(plant)}",
            expected=f"one of {names}" if names else "an adapter that has faults to plant",
            next_step="leave the option out: one is chosen",
        )
