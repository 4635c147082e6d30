"""A perturbation in words that can be kept: which requests, with how much less, and what is inserted where.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...formats.shown import ordinal

__all__ = ["ACTIONS", "PLACES", "PRESSURES", "Aim", "Recipe"]

PLACES = ("schedule", "between", "output")
"""Before a step is scheduled; between a schedule and its output; after an output."""

ACTIONS = {
    "abort": "abort",
    "abort_batch": "abort",
    "abort_all": "abort",
    "abort_any": "abort",
    "decode_only": "decode_only",
    "delay": "step",
    "chunk": "next_chunk",
    "chunk_last": "next_chunk",
    "pause": "pause",
    "cache_reset": "cache_reset",
    "priority_first": "priority",
    "priority_last": "priority",
    "schedulable": "set_schedulable",
}
"""What can be inserted, and the kind of input that the engine must have for it."""

PRESSURES = ("", "decode_only", "delay")
"""What goes on during a whole run: nothing; a decode-only step before each step while a prompt is in work;
outputs as late as the depth allows."""


_WHERE = {
    "schedule": "before a schedule",
    "between": "between a schedule and its output",
    "output": "after an output",
}
_STATES = {
    "any": "any request is there",
    "in flight": "a request has output in flight",
    "waiting": "a request waits",
    "prefill": "a request is in the middle of its prompt",
    "decode": "a request decodes",
    "preempted": "a request is preempted",
    "blocked": "a request cannot be scheduled yet",
    "chunk": "a session waits for its next chunk",
    "finished": "a request has ended and is still known",
}


@dataclass(frozen=True, slots=True)
class Aim:
    """One insertion, aimed by state.

    Attributes
    ----------
    action : str
        One of `ACTIONS`.
    phase : str
        The phase that some request must be in (`PHASES`), ``in flight`` (its output is outstanding) or
        ``any``.
    place : str
        One of `PLACES`.
    nth : int
        The how-manieth such moment, from 0.
    word : str
        Mode of a pause or a cache reset.
    count : int
        How many decode-only steps; calls until a pause ends.
    pick : int
        Which of the requests in that phase, modulo their number.
    """

    action: str
    phase: str
    place: str
    nth: int = 0
    word: str = ""
    count: int = 1
    pick: int = 0

    def text(self) -> str:
        """Return it in words; they count from 1."""
        word = f" {self.word}" if self.word else ""
        times = {"pause": f" for {self.count} calls", "decode_only": f" x{self.count}"}
        many = times.get(self.action, "") if self.count > 1 else ""
        when = f"when {_STATES[self.phase]}, {_WHERE[self.place]}, the {ordinal(self.nth + 1)} time"
        return f"{self.action}{word}{many} {when}"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a scenario is perturbed; the same recipe gives the same run.

    Attributes
    ----------
    cast : tuple of int
        Requests that take part; empty: all.
    shrink : tuple of (str, int)
        Key of the configuration and which of the smaller values (`Driver.smaller`, 0 is the first).
    pressure : str
        One of `PRESSURES`.
    gap : int
        Steps between two arrivals at most, -1: as recorded.
    order : str
        ``recorded``, ``reversed``, ``together`` (all at once), or a seed that shuffles, as digits.
    aims : tuple of Aim
        Insertions.
    flags : tuple of (int, str)
        Flags given to requests beside their own (a session, blocked at first).
    """

    cast: tuple[int, ...] = ()
    shrink: tuple[tuple[str, int], ...] = ()
    pressure: str = ""
    gap: int = -1
    order: str = "recorded"
    aims: tuple[Aim, ...] = ()
    flags: tuple[tuple[int, str], ...] = ()

    def text(self) -> str:
        """Return it in words."""
        parts = [aim.text() for aim in self.aims]
        parts += [f"{key} made smaller" for key, _ in self.shrink]
        parts += [f"{self.pressure} throughout"] * bool(self.pressure)
        parts += [f"arrivals {self.order}"] * (self.order != "recorded")
        parts += [f"R{r} submitted as {flag}" for r, flag in self.flags]
        return "; ".join(parts) or "as recorded"

    def but(self, **changes: Any) -> Recipe:
        """Return it with other values of some attributes."""
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Recipe:
        """Return the recipe of `as_dict`."""
        given = dict(data)
        given["cast"] = tuple(given["cast"])
        given["shrink"] = tuple((str(k), int(n)) for k, n in given["shrink"])
        given["aims"] = tuple(Aim(**a) for a in given["aims"])
        given["flags"] = tuple((int(r), str(f)) for r, f in given["flags"])
        return cls(**given)
