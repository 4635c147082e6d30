"""What a run did, as the commands of a sequence. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...formats.sequence.commands import Command
from .protocol import BlockChange, Decision, State
from .scenario import Input

__all__ = ["Telling"]

_DECIDED = {"preempt": "preempt", "resume": "resume", "finish": "finish", "reject": "finish"}
_UNKNOWN = "engine"
"""Owner of units that the engine hands out for nobody that it names."""


class Telling:
    """Turns inputs and events into commands, one call after the other.

    Requests are ``R0``, ``R1``, ..., steps ``S1``, ``S2``, ..., units the pool's name and their number.

    Parameters
    ----------
    launches : bool
        Say which units each step uses; without it ``launch`` names none, for an engine that hands out units
        again while a step in flight uses them, on purpose.
    """

    def __init__(self, *, launches: bool = True) -> None:
        self._launches = launches
        self._owners: dict[str, list[str]] = {}

    def given(self, given: Input) -> list[Command]:
        """Return what an input says by itself, before what the scheduler makes of it."""
        verb = {"submit": "arrive", "abort": "abort"}.get(given.kind)
        if verb is not None:
            return [Command(verb, (f"R{r}",)) for r in given.about()]
        if given.kind in ("step", "output"):
            return []
        return [Command("note", (given.text(),))]

    def events(self, events: Iterable[Decision | BlockChange]) -> list[Command]:
        """Return what the scheduler did, but for `launched`."""
        made = []
        for event in events:
            if isinstance(event, BlockChange):
                made += self._blocks(event)
            elif event.kind in _DECIDED:
                made.append(Command(_DECIDED[event.kind], (f"R{event.request}",)))
        return made

    def launched(self, step: int, scheduled: Iterable[Decision], state: State) -> list[Command]:
        """Return what a step runs, on the units that each request has now."""
        made = []
        for decision in scheduled:
            name = f"R{decision.request}"
            made.append(Command("schedule", (name,)))
            request = state.requests.get(decision.request) if self._launches else None
            units: Mapping[str, tuple[int, ...]] = request.units if request is not None else {}
            shown = dict.fromkeys(f"{p}{u}" for p, of in units.items() for u in of) if units else ()
            made.append(Command("launch", (f"S{step}", name, *shown)))
        return made

    def retired(self, step: int) -> list[Command]:
        """Return that the output of a step has come."""
        return [Command("retire", (f"S{step}",))]

    def emitted(self, emitted: Iterable[tuple[int, tuple[int, ...]]]) -> list[Command]:
        """Return what became visible."""
        return [Command("emit", (f"R{r}",)) for r, tokens in emitted if tokens]

    def _blocks(self, event: BlockChange) -> list[Command]:
        units = [f"{event.pool}{u}" for u in event.units]
        if not units:
            return []
        if event.action in ("fill", "read"):
            return [Command(event.action, tuple(units))]
        if event.action not in ("alloc", "share", "free"):
            return []
        if event.request is not None:
            owners = dict.fromkeys([f"R{event.request}"], units)
        else:
            owners = {}
            for unit in units:
                known = self._owners.get(unit, []) if event.action == "free" else []
                owners.setdefault(known[-1] if known else _UNKNOWN, []).append(unit)
        made = []
        for owner, theirs in owners.items():
            for unit in theirs:
                self._note_owner(event.action, unit, owner)
            made.append(Command(event.action, (owner, *theirs)))
        return made

    def _note_owner(self, action: str, unit: str, owner: str) -> None:
        if action == "alloc":
            self._owners[unit] = [owner]
        elif action == "share":
            self._owners.setdefault(unit, []).append(owner)
        elif owner in self._owners.get(unit, ()):
            self._owners[unit].remove(owner)
