"""What to make of a scheduler that schedules nothing though work waits. Standard library only."""

from __future__ import annotations

from .loop import Loop, Stop
from .outside import fits
from .protocol import State
from .scenario import Input

__all__ = ["find_stall"]


def find_stall(loop: Loop) -> None:
    """Find a stall, unless what waits may wait for something from outside.

    Parameters
    ----------
    loop : Loop
        Its last steps scheduled nothing.

    Raises
    ------
    Stop
        There is one, and the run is over with it.
    """
    state = loop.state()
    phases = {r.phase for r in state.requests.values()}
    if "chunk" in phases:
        return
    if "blocked" in phases and not fits(state, loop.pools, getattr(loop.engine, "fits", None)):
        return
    if loop.watch.leaks:
        _give_up(loop, state)
    # An adapter may see why: two stalls for different reasons are two kinds of finding.
    stalled = getattr(loop.engine, "stalled", None)
    why = "" if stalled is None else stalled()
    if why is None:
        return
    loop.watch.stalled(state, why)
    if not loop.limits.stop_at_first:
        return  # what comes next was recorded, and may help
    loop.result.error = "no progress"
    raise Stop


def _give_up(loop: Loop, state: State) -> None:
    """Abort what is left: units are missing, and what is held when all has ended shows it."""
    left = tuple(n for n, r in state.requests.items() if r.phase != "finished")
    loop.call(Input("abort", requests=left), lambda: loop.engine.abort(left), -1)
    for _ in range(loop.limits.settle_steps):
        loop.call(Input("step"), loop.engine.step, loop.result.steps)
    loop.watch.idle(loop.state())
    if loop.watch.violations:
        raise Stop
