"""Cases: a delay takes its time where it stands, and holds up only what it has to."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from .case import Case, Run

__all__ = ["place_cases"]

_THREE = """
a | kernel | s0 | | A
b | kernel | s0 | | B
c | kernel | s1 | | C
d | host | H | | D
1 | sync | H | | | *
f | host | H | A, B, C |
"""


def _later(what: str, *labels: str, exact: bool = True) -> Callable[[Run], str]:
    """Return a check: the first row is later by the delay, in virtual time exactly; the others as well."""

    def check(run: Run) -> str:
        for label in labels:
            row = run.rows[label]
            now, before = (int(getattr(o, what)[row]) for o in (run.outcome, run.plain))
            to_the_ns = exact and label == labels[0] and not run.capabilities.real_time
            if to_the_ns and now - before != 10 * run.step_ns:
                return f"{what} of {label} is {now - before} ns later, the delay is {10 * run.step_ns} ns"
            if now < 10 * run.step_ns - run.slack_ns:
                return f"{what} of {label} is {now} ns, the delay is {10 * run.step_ns} ns"
        return ""

    return check


def _free(*labels: str) -> Callable[[Run], str]:
    """Return a check: these rows end before the delay is over, as they have no part in it."""

    def check(run: Run) -> str:
        for label in labels:
            end = int(run.outcome.end_ns[run.rows[label]])
            if end >= 10 * run.step_ns:
                return f"{label} ends at {end} ns: a delay of {10 * run.step_ns} ns elsewhere held it up"
        return ""

    return check


def _all(*checks: Callable[[Run], str]) -> Callable[[Run], str]:
    return lambda run: next((found for c in checks if (found := c(run))), "")


def _same_order(run: Run) -> str:
    order = np.argsort(run.outcome.issue_ns[[run.rows[x] for x in "abcd"]], kind="stable").tolist()
    return "" if order == [0, 1, 2, 3] else "a host thread does not issue in program order"


def place_cases() -> Iterator[Case]:
    """Yield a case for each place and kind of queue."""
    long = 10.0
    yield Case(
        "delays/none",
        "A host thread issues in program order; without delays nothing goes wrong.",
        _THREE,
        check=_same_order,
    )
    yield Case(
        "delays/before-issue",
        "A delay before the issue holds up its host thread, not what was issued already.",
        _THREE,
        delays=(("b", "before_issue", long),),
        check=_all(_later("issue_ns", "b", "c", "d", "f"), _free("a"), _same_order),
    )
    yield Case(
        "delays/before-start",
        "A delay before the start holds up its queue, not its issuer and not other queues.",
        _THREE,
        delays=(("a", "before_start", long),),
        check=_all(_later("start_ns", "a", "b", "f"), _free("c", "d")),
    )
    yield Case(
        "delays/after-end",
        "A delay after the end holds up what waits for the op, not what does not.",
        _THREE,
        delays=(("a", "after_end", long),),
        check=_all(_later("end_ns", "a"), _later("start_ns", "b", "f"), _free("c", "d")),
    )
    yield Case(
        "delays/host-before-start",
        "A delay before the start of a host thread's own op holds up that thread, not the queues.",
        _THREE,
        delays=(("d", "before_start", long),),
        check=_all(_later("start_ns", "d", "f"), _free("a", "b", "c")),
    )
    yield Case(
        "delays/host-after-end",
        "A delay after the end of a host thread's own op holds up that thread, not the queues.",
        _THREE,
        delays=(("d", "after_end", long),),
        check=_all(_later("end_ns", "d"), _later("start_ns", "f", exact=False), _free("a", "b", "c")),
    )
    yield Case(
        "delays/several",
        "Delays at all places of one op add up.",
        _THREE,
        delays=(("a", "before_issue", 3), ("a", "before_start", 3), ("a", "after_end", 4)),
        check=_later("start_ns", "b", "f"),
    )
    yield Case(
        "delays/waits-take-theirs",
        "A delay of a wait holds up what stands behind it.",
        "a | kernel | s0 | | A\n1 | record | s0 | | | e\nw | wait | s1 | | | e\nb | kernel | s1 | A | B\n",
        delays=(("w", "before_start", long),),
        check=_all(_later("start_ns", "b"), _free("a")),
    )
