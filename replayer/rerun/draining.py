"""From the last input of a run on, until everything has ended. Standard library only."""

from __future__ import annotations

from collections import Counter

from .loop import Loop, Stop
from .protocol import State
from .scenario import Input

__all__ = ["Drain"]

_ASKED_MOST = 64
"""How often the same request is told the same: a hook may block it or pause the scheduler again."""

_STEPS_IN_VAIN = 8


class Drain:
    """Goes on with a run.

    Parameters
    ----------
    loop : Loop
        All inputs of its scenario were offered.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._refused: set[tuple[str, int | None]] = set()
        self._waiting_in_vain = 0

    def run(self) -> None:
        """Go on until everything has ended.

        Raises
        ------
        Stop
            The run is over before.
        """
        loop, result = self._loop, self._loop.result
        asked: Counter[tuple[str, int | None]] = Counter()
        while True:
            coming = self._coming(loop.state())
            if coming is None and loop.hooked:
                calls = len(result.calls)
                loop.offer(None)
                if len(result.calls) > calls:
                    continue
            if coming is None:
                break
            skipped = result.skipped[coming.kind]
            loop.offer(coming)
            if coming.kind not in ("step", "output"):
                asked[coming.kind, coming.request] += 1
                if asked[coming.kind, coming.request] > _ASKED_MOST:
                    loop.watch.ignored(coming)
                    result.error = f"{coming.text()} has no effect"
                    raise Stop
            if result.skipped[coming.kind] > skipped and coming.kind not in ("step", "output"):
                self._refused.add((coming.kind, coming.request))
            if self._waiting_in_vain > _STEPS_IN_VAIN:
                kinds = ", ".join(sorted({kind for kind, _ in self._refused}))
                result.error = f"the engine refuses {kinds}, without which it cannot be drained"
                raise Stop
        for _ in range(loop.limits.settle_steps):
            loop.do(Input("step"))
            if loop.flights:
                loop.do(Input("output"))
        if loop.check:
            loop.watch.idle(loop.state())
        result.drained = True

    def _coming(self, state: State) -> Input | None:
        """Return the next call on the way to the end; None at the end."""
        flights, watch = self._loop.flights, self._loop.watch
        phases = [r.phase for r in state.requests.values()]
        working = any(p in ("waiting", "prefill", "decode", "preempted") for p in phases)
        if state.paused and ("resume", None) not in self._refused:
            return Input("resume")
        if state.paused:
            self._waiting_in_vain += 1
        if flights and (flights.full or not working or self._idle_step()):
            return Input("output")
        if working and not watch.stuck:
            return Input("step")
        for phase, kind in (("blocked", "set_schedulable"), ("chunk", "next_chunk")):
            for number, request in state.requests.items():
                if request.phase == phase and (kind, number) not in self._refused:
                    return Input(kind, request=number, last=kind == "next_chunk")
        if not working and ("blocked" in phases or "chunk" in phases):
            self._waiting_in_vain += 1  # one that was aborted may leave in the next step
            return Input("step")
        return Input("step") if working else None

    def _idle_step(self) -> bool:
        """Whether the last call was a step that scheduled nothing: the next waits for an output."""
        calls = self._loop.result.calls
        last = calls[-1] if calls else None
        return last is not None and last.given.kind == "step" and not last.reaction.scheduled()
