"""The conformance kit: whether a backend keeps what the protocol promises.

For authors of backends, built in or not::

    from tapedelay.replayer.conformance import run_all
    report = run_all(MyBackend())
    assert report.passed, report.text()

or ``python -m tapedelay.replayer.conformance NAME`` for a backend that is installed. Every case is a small
tape with delays and a known verdict, both ways: the right tape has to be clean and the broken one wrong. Each
run is audited beside that: times keep to every edge, delays take their time, deadlocks are those of the tape.
What a backend says that it cannot do is skipped, and has to be refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from .case import Case, Report, Result, Run
from .runner import run_all, run_case, step_ns

__all__ = ["Case", "Report", "Result", "Run", "cases", "core_cases", "run_all", "run_case", "step_ns"]


def core_cases() -> Iterator[Case]:
    """Yield the cases that probe one promise each."""
    from .edges import edge_cases
    from .ends import end_cases
    from .manners import manner_cases
    from .pins import pin_cases
    from .places import place_cases
    from .values import value_cases

    for family in (manner_cases, edge_cases, place_cases, value_cases, end_cases, pin_cases):
        yield from family()


def cases(*, full: bool = False) -> Iterator[Case]:
    """Yield all cases: the core ones, then the patterns; `full`: every variant of them."""
    from .patterns import pattern_cases

    yield from core_cases()
    yield from pattern_cases(full=full)
