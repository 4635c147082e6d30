"""From a plan to text."""

from __future__ import annotations

from functools import lru_cache

from .globs import Glob
from .parse import HEADER, UNITS
from .plan import EVERY, LAST, VERSION, Line, Pattern, Plan
from .resolved import PLACES

__all__ = ["print_anchor", "print_line", "print_plan", "print_time"]


def print_time(ns: int) -> str:
    """Return a time in the largest unit in which it is a whole number: ``3ms``."""
    for unit in ("s", "ms", "us"):
        if ns and ns % UNITS[unit] == 0:
            return f"{ns // UNITS[unit]}{unit}"
    return f"{ns}ns"


def print_anchor(anchor: int | Pattern) -> str:
    """Return an anchor as a plan writes it."""
    if isinstance(anchor, int):
        return f"#{anchor}"
    words = [_which(anchor.which), anchor.kind]
    for key, glob in (("of", anchor.name), ("touching", anchor.touching), ("on", anchor.on)):
        if glob is not None:
            words += [key, _text(glob)]
    if anchor.further:
        words.append(f"+{anchor.further}")
    return " ".join(words)


def print_line(line: Line) -> str:
    """Return a line without its comment: what ``--delays`` takes."""
    time = print_time(line.ns)
    place = PLACES[line.place]
    if line.seed is None:
        return f"{print_anchor(line.anchor)} +{time} {place}"
    return f"random seed={line.seed} max={time} {print_anchor(line.anchor)} {place}"


def print_plan(plan: Plan) -> str:
    """Return the text of a plan file."""
    out = [f"{HEADER} {VERSION}"]
    out += [f"# {_comment(n)}".rstrip() for n in plan.notes]
    for line in plan.lines:
        text = print_line(line)
        out.append(f"{text}  # {_comment(line.note)}" if _comment(line.note) else text)
    return "\n".join(out) + "\n"


@lru_cache(1024)
def _text(glob: Glob) -> str:
    return glob.text()


def _which(which: int) -> str:
    if which in (EVERY, LAST, 1):
        return {EVERY: "every", LAST: "last", 1: "first"}[which]
    ending = "th" if which % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(which % 10, "th")
    return f"{which}{ending}"


def _comment(text: str) -> str:
    shown = "".join(c if c.isprintable() else f"\\u{{{ord(c):x}}}" for c in text).strip()
    return shown if len(shown) <= 1000 else shown[:997] + "..."
