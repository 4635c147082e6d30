"""Inserts inputs where the state of the scheduler asks for them. Standard library only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from .drive import Moment
from .protocol import Driver
from .recipe import Aim, Recipe
from .scenario import Input

__all__ = ["CHUNK_TOKENS", "MOST_DECODE_ONLY", "Aimed", "phases_at", "place_of", "words_of"]

MOST_DECODE_ONLY = 400
"""Decode-only steps that the pressure inserts at most: then the prompt goes on."""

CHUNK_TOKENS = 4
"""Tokens of an inserted chunk."""
_STREAK = 12

_WORDS: Mapping[str, tuple[str, ...]] = {"pause": ("wait", "keep"), "cache_reset": ("",)}


class Aimed:
    """A hook of `drive.run`: sees every moment, counts it, and inserts what a recipe says.

    Parameters
    ----------
    recipe : Recipe
    driver : Driver
        Says which inputs its engine has.

    Attributes
    ----------
    moments : Counter of (str, str)
        How often some request was in a phase at a place.
    inserted : list of str
        What was inserted.
    """

    def __init__(self, recipe: Recipe, driver: Driver) -> None:
        self.moments: Counter[tuple[str, str]] = Counter()
        self.inserted: list[str] = []
        self._recipe = recipe
        self._inputs = driver.inputs
        self._left = list(recipe.aims)
        self._seen: Counter[Aim] = Counter()
        self._later: list[tuple[int, Input]] = []
        self._calls = 0
        self._decode_only = MOST_DECODE_ONLY
        self._streak = 0
        self._filled = 0

    def __call__(self, moment: Moment) -> list[Input]:
        """Return what to insert at a moment."""
        self._calls += 1
        made = [i for due, i in self._later if due <= self._calls]
        self._later = [(due, i) for due, i in self._later if due > self._calls]
        place = place_of(moment)
        found = phases_at(moment)
        for phase in found:
            self.moments[phase, place] += 1
        for aim in list(self._left):
            who = found.get(aim.phase)
            if place != aim.place or not who:
                continue
            self._seen[aim] += 1
            if self._seen[aim] > aim.nth:
                self._left.remove(aim)
                given = self._inputs_of(aim, who[aim.pick % len(who)], moment)
                self.inserted += [f"{i.text()} ({aim.phase}, {aim.place})" for i in given]
                made += given
        return made + self._pressure(moment)

    def _inputs_of(self, aim: Aim, request: int, moment: Moment) -> list[Input]:
        """Return what an action is, for this request."""
        state = moment.state
        alive = [n for n, r in state.requests.items() if r.phase != "finished"]
        others = [n for n in alive if n != request]
        action = aim.action
        if action == "abort":
            return [Input("abort", requests=(request,))]
        if action == "abort_batch":
            return [Input("abort", requests=(request, *others[:1]))]
        if action == "abort_all":
            return [Input("abort", requests=(request, *others))]
        if action == "abort_any":  # of one that may have ended long ago
            return [Input("abort", requests=(aim.pick,))]
        if action == "decode_only":
            return [i for _ in range(aim.count) for i in (Input("step", decode_only=True), Input("output"))]
        if action == "delay":
            return [Input("step")] if moment.flights < moment.depth else []
        if action in ("chunk", "chunk_last"):
            return [Input("next_chunk", request=request, tokens=CHUNK_TOKENS, last=action == "chunk_last")]
        if action == "pause":
            self._later.append((self._calls + aim.count, Input("resume")))
            return [Input("pause", word=aim.word or None)]
        if action == "cache_reset":
            return [Input("cache_reset", word=aim.word or None)]
        if action in ("priority_first", "priority_last"):
            return [Input("priority", request=request, value=-100 if action == "priority_first" else 100)]
        return [Input("set_schedulable", request=request)]

    def _pressure(self, moment: Moment) -> list[Input]:
        coming = moment.coming
        if coming is None:
            return []
        if self._recipe.pressure == "decode_only" and coming.kind == "step" and "decode_only" in self._inputs:
            # A scheduler that is only ever asked to decode cannot end: after a streak a whole step comes.
            phases = {r.phase for r in moment.state.requests.values()}
            apt = {"prefill", "decode"} <= phases and "preempted" not in phases and not moment.flights
            if apt and not coming.decode_only and self._streak < _STREAK and self._decode_only:
                self._decode_only -= 1
                self._streak += 1
                return [Input("step", decode_only=True), Input("output")]
            self._streak = 0
        if moment.previous == "output":
            self._filled = 0
        if self._recipe.pressure == "delay" and coming.kind == "output" and moment.previous == "step":
            # Once more only if the step before did go into flight.
            if self._filled < moment.flights < moment.depth:
                self._filled = moment.flights
                return [Input("step")]
            self._filled = moment.depth
        return []


def place_of(moment: Moment) -> str:
    """Return where a moment is, one of `PLACES`, "" for none of them."""
    if moment.coming is not None and moment.coming.kind == "step" and not moment.flights:
        return "output" if moment.previous == "output" else "schedule"
    if moment.flights:
        return "output" if moment.previous == "output" else "between"
    return "output" if moment.previous == "output" else ""


def phases_at(moment: Moment) -> dict[str, list[int]]:
    """Return the requests in each phase, those with output in flight, and all of them as ``any``."""
    found: dict[str, list[int]] = {}
    for number, request in sorted(moment.state.requests.items()):
        found.setdefault(request.phase, []).append(number)
        if request.phase != "finished":
            found.setdefault("any", []).append(number)
    flying = [n for n in dict.fromkeys(moment.in_flight) if n in moment.state.requests]
    if flying:
        found["in flight"] = flying
    return found


def words_of(driver: Driver, kind: str) -> tuple[str, ...]:
    """Return the modes of a pause or of a cache reset."""
    words: Mapping[str, tuple[str, ...]] = getattr(driver, "words", _WORDS)
    return words.get(kind, ("",))
