"""Cases from the patterns: each as it is, and under small random delays."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from ...formats.delays.resolved import PLACES
from ..patterns import Pattern, patterns
from .case import Case, Delay

__all__ = ["pattern_cases"]

_STEPS = 4.0
_SMALL = 0.2


def pattern_cases(*, full: bool = False, seed: int = 1) -> Iterator[Case]:
    """Yield cases for all patterns.

    Parameters
    ----------
    full : bool
        Every variant of every pattern.
    seed : int
        Of the small random delays.
    """
    for pattern in patterns(full=full):
        yield from _of(pattern, Random(f"{seed} {pattern.name}"))


def _of(pattern: Pattern, random: Random) -> Iterator[Case]:
    name = f"patterns/{pattern.name}"
    if pattern.clean:
        promise = "A right pattern is right under small random delays."
        yield Case(name, promise, pattern.text, delays=_small(pattern, random))
    elif pattern.deadlock:
        yield Case(name, "A pattern that never ends is told.", pattern.text, expect="deadlock")
    else:
        promise = "A broken pattern shows its fault when the op that can show it is late."
        held = ((pattern.late, _STEPS), (pattern.then, _STEPS / 2))
        delays = tuple((label, "before_start", steps) for label, steps in held if label)
        yield Case(name, promise, pattern.text, expect="wrong", delays=delays, needs=frozenset({"values"}))


def _small(pattern: Pattern, random: Random) -> tuple[Delay, ...]:
    """Return small delays of a few ops, at random places."""
    labels = sorted(pattern.litmus.labels())
    chosen = random.sample(labels, min(len(labels), 6))
    return tuple((label, random.choice(PLACES), random.uniform(0.0, _SMALL)) for label in chosen)
