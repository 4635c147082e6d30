"""Reduces a scenario to one that shows the same kind of violation with as little as possible. Deterministic.

A reduction removes, one after another: inputs after the last that matters; requests; inputs; a request
together with the units that it would have taken, so that the others are as short of them as before; what is
not plain; units and slots of the configuration; tokens. It begins again until a whole round changes nothing;
the long part, of small numbers, begins when no request can go any more.
Every scenario that it accepts is smaller by `smaller.size`, and the run of no plainer one longer, so that it
ends.

The result is *1-minimal* unless the budget of runs was used up: no single request, no single input, and no
step with its output can be left out; nothing single can be made plainer; and, as long as the run grows no
longer by it, no number can be made smaller by one and the configuration not smaller by a step of the driver.
Several changes at once may still give a smaller one.

Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .protocol import Submission
from .scenario import Scenario
from .smaller import numbers, plainer, renumbered, size, without_inputs, without_requests

__all__ = ["MAX_RUNS", "Kind", "Probe", "Reduced", "Shrinks", "reduce_scenario"]

MAX_RUNS = 2000
"""Runs that a reduction takes at most."""

_EXCHANGED_MOST = 12
"""Units that may go with a request."""

Kind = tuple[str, str]
"""What makes two violations the same (`Violation.kind`)."""

Probe = Callable[[Scenario], tuple[Collection[Kind], int]]
"""Runs a scenario; returns the kinds that it shows, none where the engine cannot run it, and how many
commands the run had."""


@dataclass(frozen=True)
class Shrinks:
    """How a configuration can be made smaller, as a `Driver` says it.

    Attributes
    ----------
    keys : tuple of str
        Keys that count units or slots (`Driver.shrinks`).
    smaller : callable
        `Driver.smaller`.
    """

    keys: tuple[str, ...]
    smaller: Callable[[Mapping[str, Any], str, Sequence[Submission]], list[Mapping[str, Any]]]


@dataclass(frozen=True)
class Reduced:
    """What a reduction gives.

    Attributes
    ----------
    scenario : Scenario
        The smallest that was found.
    kind : tuple of (str, str)
        What it shows.
    runs : int
        How often the scheduler ran for it.
    minimal : bool
        Whether it is 1-minimal; False: the budget was used up before.
    """

    scenario: Scenario
    kind: Kind
    runs: int
    minimal: bool


class _UsedUp(Exception):
    """No runs are left."""


def reduce_scenario(
    scenario: Scenario,
    kind: Kind,
    probe: Probe,
    *,
    shrinks: Shrinks | None = None,
    max_runs: int = MAX_RUNS,
    stop: Callable[[], bool] | None = None,
    progress: Callable[[int, Scenario], None] | None = None,
) -> Reduced:
    """Reduce a scenario.

    Parameters
    ----------
    scenario : Scenario
        Shows a violation of this kind.
    kind : tuple of (str, str)
        The kind that has to stay.
    probe : callable
        Runs a scenario, see `Probe`.
    shrinks : Shrinks, optional
        How the configuration can be made smaller; without it stays as it is, but for features that are on.
    max_runs : int
        Runs at most.
    stop : callable, optional
        Asked before each run; True ends the reduction with what there is.
    progress : callable, optional
        Is given the number of runs and each smaller scenario.

    Returns
    -------
    Reduced
        Its scenario was run and showed the kind; where not even `scenario` shows it, that one, not minimal.
    """
    search = _Search(scenario, kind, probe, shrinks, max_runs, stop, progress)
    try:
        minimal = search.begin()
        if minimal:
            search.run()
    except _UsedUp:
        minimal = False
    return Reduced(search.best, kind, search.runs, minimal)


class _Search:
    """The smallest scenario so far, and what was tried."""

    def __init__(
        self,
        scenario: Scenario,
        kind: Kind,
        probe: Probe,
        shrinks: Shrinks | None,
        max_runs: int,
        stop: Callable[[], bool] | None,
        progress: Callable[[int, Scenario], None] | None,
    ) -> None:
        self.best = scenario
        self.kind = kind
        self.runs = 0
        self._probe = probe
        self._shrinks = shrinks
        self._keys = () if shrinks is None else shrinks.keys
        self._max_runs = max_runs
        self._stop = stop
        self._progress = progress
        self._known: dict[str, int | None] = {}
        self._length = 0

    def run(self) -> None:
        """Make it smaller until a whole round changes nothing."""
        before = None
        while self.best != before:
            before = self.best
            self._fewest()
            self._plain()
            self._config()
            self._numbers()
            self._both()
            self._renumber()

    def _fewest(self) -> None:
        """Leave out requests and inputs until none can go."""
        before = None
        while self.best != before:
            before = self.best
            self._tail()
            self._requests()
            self._inputs()
            self._exchange()

    def begin(self) -> bool:
        """Run the scenario itself; return whether it shows the kind."""
        length = self._shows(self.best)
        self._length = length or 0
        return length is not None

    def accept(self, scenario: Scenario) -> bool:
        """Take a scenario that is smaller and shows the kind."""
        ours, theirs = size(self.best, self._keys), size(scenario, self._keys)
        if theirs >= ours:
            return False
        length = self._shows(scenario)
        if length is None or (*theirs[:3], length, *theirs[3:]) >= (*ours[:3], self._length, *ours[3:]):
            return False
        self._take(scenario, length)
        return True

    def _shows(self, scenario: Scenario) -> int | None:
        """Return the length of the run if it shows the kind; each scenario is run once."""
        key = json.dumps(scenario.as_dict(), sort_keys=True, default=str)
        if key not in self._known:
            if self.runs >= self._max_runs or (self._stop is not None and self._stop()):
                raise _UsedUp
            self.runs += 1
            kinds, length = self._probe(scenario)
            self._known[key] = length if self.kind in kinds else None
        return self._known[key]

    def _take(self, scenario: Scenario, length: int) -> None:
        self.best, self._length = scenario, length
        if self._progress is not None:
            self._progress(self.runs, scenario)

    # --- passes ---

    def _tail(self) -> None:
        """Leave out inputs at the end: as many as possible, by bisection."""
        low, high = 0, len(self.best.inputs)  # so many inputs are too few, are enough
        while high - low > 1:
            middle = (low + high) // 2
            if self.accept(self._head(middle)):
                high = middle
            else:
                low = middle

    def _head(self, count: int) -> Scenario:
        return without_inputs(self.best, range(count, len(self.best.inputs)))

    def _requests(self) -> None:
        numbers = [s.request for s in self.best.submissions()]
        self._fewer(numbers, lambda gone: without_requests(self.best, set(gone)))

    def _inputs(self) -> None:
        """Leave out inputs, in blocks at first; then steps with their output."""
        self._fewer_inputs()
        n = 0
        while n < len(self.best.inputs):
            if self.best.inputs[n].kind == "step":
                outputs = (
                    m for m in range(n + 1, len(self.best.inputs)) if self.best.inputs[m].kind == "output"
                )
                m = next(outputs, None)
                if m is not None and self.accept(without_inputs(self.best, {n, m})):
                    continue
            n += 1

    def _fewer_inputs(self) -> None:
        # Indices move when inputs go: blocks are counted from the end of what is there now.
        width = len(self.best.inputs) // 2
        while width >= 1:
            end = len(self.best.inputs)
            while end > 0:
                begin = max(0, end - width)
                self.accept(without_inputs(self.best, range(begin, end)))
                end = min(begin, len(self.best.inputs))
            width //= 2

    def _fewer(self, items: list[int], without: Callable[[list[int]], Scenario]) -> None:
        """Leave out items in blocks, the last ones first, each half as long as those before."""
        width = max(len(items) // 2, 1)
        while items:
            end = len(items)
            while end > 0:
                begin = max(0, end - width)
                if self.accept(without(items[begin:end])):
                    del items[begin:end]
                end = begin
            if width == 1:
                return
            width //= 2

    def _exchange(self) -> None:
        """Leave out a request together with what it would have taken of something that was scarce."""
        self._first(
            lambda: (
                less.but(config=config)
                for key in self._keys
                for request in reversed([s.request for s in self.best.submissions()])
                for less in [without_requests(self.best, {request})]
                for config in self._lessened(less, key, request)
            )
        )

    def _lessened(self, less: Scenario, key: str, gone: int) -> Iterator[Mapping[str, Any]]:
        """Yield configurations with less of a key: by as much as a request needs, then by less and less."""
        now = self.best.config.get(key)
        if self._shrinks is None or not isinstance(now, int):
            return
        needed = next(s for s in self.best.demands() if s.request == gone)
        tokens = needed.prompt_tokens + (needed.max_tokens or 0)
        units = max((-(-tokens // (p.tokens_per_unit or 1)) for p in less.pools), default=1)
        known = self._shrinks.smaller(less.config, key, less.demands())
        for value in range(now - min(units, _EXCHANGED_MOST), now):
            # what else hangs on the key is as in the next smaller one that the driver knows
            below = [c for c in known if int(c[key]) <= value]
            if below:
                yield {**max(below, key=lambda c: int(c[key])), key: value}

    def _plain(self) -> None:
        self._first(lambda: plainer(self.best))

    def _config(self) -> None:
        self._first(lambda: (self.best.but(config=c) for c in self._configs(self.best)))

    def _numbers(self) -> None:
        """Make each number as small as possible, by bisection, and at last by one."""
        n = 0
        while n < len(every := list(numbers(self.best))):
            number = every[n]
            low, high = number.low, number.value
            if high > low and not self.accept(number.put(low)):
                while high - low > 1:  # `low` is too small, `high` is not
                    middle = (low + high) // 2
                    if self.accept(list(numbers(self.best))[n].put(middle)):
                        high = middle
                    else:
                        low = middle
            elif high < low:  # a negative priority
                self.accept(number.put(low))
            n += 1

    def _both(self) -> None:
        """Make a number and the configuration smaller at once: smaller requests fill a smaller pool."""

        def candidates() -> Iterable[Scenario]:
            for number in numbers(self.best):
                for value in sorted({number.low, (number.low + number.value) // 2, number.value - 1}):
                    if number.low <= value < number.value:
                        fewer = number.put(value)
                        yield from (fewer.but(config=c) for c in self._configs(fewer))

        self._first(candidates)

    def _renumber(self) -> None:
        fresh = renumbered(self.best)
        if fresh == self.best or size(fresh, self._keys) > size(self.best, self._keys):
            return
        length = self._shows(fresh)
        if length is not None and length <= self._length:
            self._take(fresh, length)

    def _first(self, candidates: Callable[[], Iterable[Scenario]]) -> None:
        """Accept the first candidate that works, and begin again, until none does."""
        while any(self.accept(c) for c in candidates()):
            pass

    def _configs(self, scenario: Scenario) -> list[Mapping[str, Any]]:
        if self._shrinks is None:
            return []
        found = []
        for key in self._shrinks.keys:
            found += self._shrinks.smaller(scenario.config, key, scenario.demands())
        return found
