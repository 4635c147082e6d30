"""Which perturbations a campaign tries: first aimed by state, then random from a seed.

Standard library only.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .aiming import words_of
from .protocol import PHASES, Driver
from .recipe import ACTIONS, PLACES, Aim, Recipe
from .scenario import Scenario

__all__ = ["Facts", "aimed", "facts_of", "outline_of", "possible_actions", "random_recipes", "variants"]

_WHOLE = 8
"""Requests up to which a recording is perturbed as a whole."""

_GAP = 2
_CAST = 4
_LEVELS = 3
_DECODE_ONLY = 8
_PAUSED_CALLS = 5


@dataclass(frozen=True, slots=True)
class Facts:
    """What a plan has to know of a recording and of its engine.

    Attributes
    ----------
    requests : tuple of int
        In the order of arrival.
    sessions : tuple of int
        Those that get more chunks.
    inputs : frozenset of str
        Inputs that the engine has.
    shrinks : tuple of (str, int)
        What can be made smaller, and in how many ways.
    depth : int
        Steps that may be in flight.
    pause_words, reset_words : tuple of str
        Modes.
    session_flag, blocked_flag : str
        Flags that make a request a session, or unschedulable at first; "" where there are none.
    """

    requests: tuple[int, ...]
    sessions: tuple[int, ...]
    inputs: frozenset[str]
    shrinks: tuple[tuple[str, int], ...]
    depth: int
    pause_words: tuple[str, ...] = ("",)
    reset_words: tuple[str, ...] = ("",)
    session_flag: str = ""
    blocked_flag: str = ""

    def as_dict(self) -> dict[str, object]:
        """Return it for JSON."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__}

    @classmethod
    def from_dict(cls, data: Mapping[str, object]) -> Facts:
        """Return the facts of `as_dict`."""
        given: dict[str, Any] = {name: _frozen(value) for name, value in data.items()}
        given["inputs"] = frozenset(given["inputs"])
        return cls(**given)


def facts_of(base: Scenario, driver: Driver) -> Facts:
    """Return what a plan has to know."""
    shrinks = ((key, len(driver.smaller(base.config, key, base.demands()))) for key in driver.shrinks)
    return replace(outline_of(base, driver), shrinks=tuple((key, n) for key, n in shrinks if n))


def outline_of(base: Scenario, driver: Driver) -> Facts:
    """Return it but for what can be made smaller: no adapter needs its engine for that."""
    submissions = base.submissions()
    flag = str(getattr(driver, "session_flag", ""))
    chunks = {i.request for i in base.inputs if i.kind == "next_chunk"}
    sessions = [s.request for s in submissions if s.request in chunks or (flag and flag in s.flags)]
    return Facts(
        requests=tuple(s.request for s in submissions),
        sessions=tuple(sessions),
        inputs=driver.inputs,
        shrinks=(),
        depth=max(1, driver.depth(base.config)),
        pause_words=words_of(driver, "pause"),
        reset_words=words_of(driver, "cache_reset"),
        session_flag=flag,
        blocked_flag=str(getattr(driver, "blocked_flag", "")),
    )


def possible_actions(facts: Facts) -> list[str]:
    """Return the actions that the engine can be given on this recording at all."""
    known = [a for a, kind in ACTIONS.items() if kind in facts.inputs]
    if not (facts.sessions or facts.session_flag):
        known = [a for a in known if not a.startswith("chunk")]
    return [a for a in known if a != "delay" or facts.depth > 1]


def variants(facts: Facts) -> list[Recipe]:
    """Return the recipes without aims: which requests, how close, under which pressure, with how much less.

    Those that cost least come first.
    """
    casts = _casts(facts)
    pressures = [""]
    pressures += ["decode_only"] * ("decode_only" in facts.inputs) + ["delay"] * (facts.depth > 1)
    made = [Recipe(cast=cast, gap=_GAP) for cast in casts]
    turn = itertools.cycle(casts)
    made += [Recipe(cast=next(turn), shrink=less, gap=_GAP) for less in _shrunk(facts)]
    made += [
        Recipe(cast=next(turn), shrink=less, pressure=pressure, gap=_GAP)
        for pressure in pressures[1:]
        for less in [(), *_shrunk(facts)]
    ]
    made += [made[0].but(order="together"), made[0].but(order="reversed")]
    for flag in filter(None, (facts.session_flag, facts.blocked_flag)):
        for less in [(), *_shrunk(facts)[: len(facts.shrinks)]]:
            cast = next(turn)
            first = (cast or facts.requests)[0]
            made.append(Recipe(cast=cast, shrink=less, gap=_GAP, flags=((first, flag),)))
    return made


def _shrunk(facts: Facts) -> list[tuple[tuple[str, int], ...]]:
    """Return what can be less: one thing by several degrees, the least first, then two at once."""
    made: list[tuple[tuple[str, int], ...]] = []
    for level in range(_LEVELS):
        made += [((key, n - 1 - level),) for key, n in facts.shrinks if level < n]
    for one, other in itertools.combinations([k for k, _ in facts.shrinks], 2):
        counts = dict(facts.shrinks)
        made.append(((one, counts[one] - 1), (other, counts[other] - 1)))
    return made


def aimed(variant: Recipe, moments: Iterable[tuple[str, str, int]], facts: Facts, part: int) -> list[Recipe]:
    """Return what is inserted into a variant, at moments that a run of it had.

    Parameters
    ----------
    variant : Recipe
        Without aims.
    moments : iterable of (str, str, int)
        Phase, place, and how often some request was in that phase there.
    facts : Facts
    part : int
        0: at the first moment in each phase and place; 1: at the middle one; 2: at the last, where those are
        others.
    """
    seen = {(phase, place): n for phase, place, n in moments}
    order = ("preempted", "chunk", "blocked", "prefill", "in flight", "decode", "waiting", "finished")
    assert set(order) - {"in flight"} == set(PHASES)
    made: dict[Aim, None] = {}
    for phase, place in itertools.product(order, PLACES):
        n = seen.get((phase, place), 0)
        nth = (0, n // 2, n - 1)[part]
        if n and nth not in (0, n // 2, n - 1)[:part]:
            made.update(dict.fromkeys(_actions(phase, place, nth, facts)))
    # Every state is aimed at with the first action before any is with the next.
    actions = list(ACTIONS)
    return [variant.but(aims=(aim,)) for aim in sorted(made, key=lambda a: actions.index(a.action))]


def random_recipes(facts: Facts, seed: int) -> Iterator[Recipe]:
    """Yield recipes without end, the same for the same seed."""
    for number in itertools.count():
        yield _random(random.Random(f"{seed}/{number}"), facts)


def _casts(facts: Facts) -> list[tuple[int, ...]]:
    """Return which requests take part: all of few; of many, some that followed each other, sessions first."""
    every = facts.requests
    if len(every) <= _WHOLE:
        return [()]
    starts = [0, len(every) // 3, 2 * len(every) // 3]
    casts = [every[s : s + _CAST] for s in starts]
    if facts.sessions:
        among = every.index(facts.sessions[0])
        casts.insert(0, every[max(0, among - 1) : among - 1 + _CAST])
    return list(dict.fromkeys(casts))


def _actions(phase: str, place: str, nth: int, facts: Facts) -> Iterator[Aim]:
    for action, kind in ACTIONS.items():
        if kind not in facts.inputs or action == "abort_any":
            continue
        aim = Aim(action, phase, place, nth)
        if action == "decode_only":
            if place != "between":
                yield from (Aim(action, phase, place, nth, count=n) for n in (1, _DECODE_ONLY))
        elif action == "delay":
            if facts.depth > 1 and place == "between":
                yield aim
        elif action in ("chunk", "chunk_last"):
            if facts.sessions or facts.session_flag:
                yield aim
        elif action == "pause":
            for word in facts.pause_words:
                yield Aim(action, phase, place, nth, word, count=_PAUSED_CALLS)
        elif action == "cache_reset":
            yield from (Aim(action, phase, place, nth, word) for word in facts.reset_words)
        elif action == "schedulable":
            if phase == "blocked":
                yield aim
        elif action == "abort" or phase != "finished":
            yield aim


def _random(dice: random.Random, facts: Facts) -> Recipe:
    every = facts.requests
    many = dice.randint(2, min(6, len(every))) if len(every) > 2 else len(every)
    start = dice.randrange(len(every) - many + 1) if every else 0
    cast = every[start : start + many]
    shrink = tuple((key, dice.randrange(n)) for key, n in facts.shrinks if dice.random() < 0.6)
    pressures = ["", ""]
    pressures += ["decode_only"] * ("decode_only" in facts.inputs) + ["delay"] * (facts.depth > 1)
    flags = []
    for flag in filter(None, (facts.session_flag, facts.blocked_flag)):
        if cast and dice.random() < 0.25:
            flags.append((dice.choice(cast), flag))
    aims = tuple(_random_aim(dice, facts, bool(flags)) for _ in range(dice.choice((1, 1, 2, 2, 3, 4))))
    return Recipe(
        cast=cast,
        shrink=shrink,
        pressure=dice.choice(pressures),
        gap=dice.choice((-1, 0, 1, 1, 2, 3)) if many < len(every) else dice.choice((0, 1, 2, 3)),
        order=dice.choice(("recorded", "recorded", "together", str(dice.randrange(1 << 30)))),
        aims=aims,
        flags=tuple(flags),
    )


def _random_aim(dice: random.Random, facts: Facts, flagged: bool) -> Aim:
    known = possible_actions(facts)
    if not (facts.sessions or flagged):
        known = [a for a in known if not a.startswith("chunk")]
    action = dice.choice(known) if known else "abort"
    words = {"pause": facts.pause_words, "cache_reset": facts.reset_words}.get(action, ("",))
    return Aim(
        action,
        dice.choice(("any", "in flight", *PHASES)),
        dice.choice(PLACES),
        min(int(dice.expovariate(0.35)), 60),
        dice.choice(words),
        count=dice.choice((1, 2, 4, 8, 12)),
        pick=dice.choice(facts.requests) if action == "abort_any" and facts.requests else dice.randrange(4),
    )


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset) else value


def _frozen(value: object) -> object:
    return (
        tuple(_frozen(v) for v in value)
        if isinstance(value, Sequence) and not isinstance(value, str)
        else value
    )
