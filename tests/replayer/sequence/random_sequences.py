"""Random commands of a request scheduler: sensible enough that what is held and in flight adds up."""

from __future__ import annotations

import random

from hypothesis import strategies as st

from tapedelay.formats.sequence.commands import VERBS, Command

__all__ = ["commands", "random_commands"]

_NAMES = {"R": "ABC", "S": "STU", "u": "123456", "counter": "mn", "mailbox": "xy", "id": "ABC", "name": "pq"}
_USUAL = ("arrive", "alloc", "free", "launch", "retire", "share")


def random_commands(seed: int) -> list[Command]:
    """Return up to 40 commands; half of the time a request gives back what it got, as a scheduler would."""
    rng = random.Random(seed)
    few = rng.sample(sorted(VERBS), rng.randint(4, 10)) + list(_USUAL) * rng.randint(0, 2)
    held: list[tuple[str, str]] = []
    out = []
    for _ in range(rng.randint(1, 40)):
        if held and rng.random() < 0.3:
            request, unit = held.pop(rng.randrange(len(held)))
            verb = rng.choice(("free", "free", "launch", "fill", "read"))
            if verb != "free":
                held.append((request, unit))
            args = {"free": (request, unit), "launch": (rng.choice("STU"), request, unit)}.get(verb, (unit,))
            out.append(Command(verb, args))
            continue
        command = _any(rng, rng.choice(few))
        out.append(command)
        if command.verb in ("alloc", "share"):
            held += [(command.args[0], u) for u in command.args[1:]]
    return out


def _any(rng: random.Random, verb: str) -> Command:
    args: list[str] = []
    for word in VERBS[verb].split():
        if word == "n":
            args.append(str(rng.randint(0, 2)))
        elif word == "u...":
            args += [rng.choice(_NAMES["u"]) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
        elif word == "text":
            args.append("anything")
        else:
            args.append(rng.choice(_NAMES[word]))
    return Command(verb, tuple(args))


@st.composite
def commands(draw: st.DrawFn) -> list[Command]:
    """Return commands that hypothesis can make smaller."""
    out = []
    for verb in draw(st.lists(st.sampled_from(sorted(VERBS)), max_size=30)):
        args: list[str] = []
        for word in VERBS[verb].split():
            if word == "n":
                args.append(str(draw(st.integers(0, 2))))
            elif word == "u...":
                least = 0 if verb == "launch" else 1
                args += draw(st.lists(st.sampled_from("123"), min_size=least, max_size=3))
            elif word == "text":
                args.append("anything")
            else:
                args.append(draw(st.sampled_from(_NAMES[word][:2])))
        out.append(Command(verb, tuple(args)))
    return out
