"""Cases: an interleaving that is enforced happens every time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from .case import Case
from .values import value_cases

__all__ = ["pin_cases"]

# As it stands the read tends to come in time: nothing but the pin makes it early.
_UNPINNED = """
w | kernel | s0 | | A
1 | kernel | s1 | | B
2 | kernel | s1 | | C
r | kernel | s1 | A | Y
"""


def pin_cases() -> Iterator[Case]:
    """Yield the wrong cases about values once more, pinned; and a racy tape pinned to its right order."""
    for case in value_cases():
        # What tears without a length of its own is a matter of the schedule.
        if case.expect == "wrong":
            name = case.name.replace("values/", "pins/")
            yield replace(case, name=name, promise="A pinned run shows it every time.", pin=True, check=None)
    yield Case(
        "pins/right-order",
        "A racy tape that is pinned to its reference order is right every time.",
        _UNPINNED,
        delays=(("r", "before_start", 3),),
        needs=frozenset({"values"}),
        pin=True,
    )
    yield Case(
        "pins/wrong-order",
        "A racy tape that is pinned to the wrong order is wrong every time.",
        _UNPINNED,
        expect="wrong",
        delays=(("w", "before_start", 3),),
        needs=frozenset({"values"}),
        pin=True,
    )
