"""Reruns recorded schedulers of transformers, in the Python that has it; prints one JSON object.

``transformers_reruns.py FILE``: JSON with ``runs`` (name -> ``scenario``, ``recorded``), ``sweep`` (names),
``every``. Strict reruns of all; then in some a request, or all that run, cancelled at every so many steps, on
the scheduler as it is and with the repair below; then with each planted fault until it is found.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from exact import strict  # type: ignore[import-not-found]

from tapedelay.recorder.engines.transformers import watch
from tapedelay.replayer.rerun.case import case_of
from tapedelay.replayer.rerun.conformance import Subject, run_all
from tapedelay.replayer.rerun.drive import Moment, Run, run
from tapedelay.replayer.rerun.reduce import Shrinks, reduce_scenario
from tapedelay.replayer.rerun.scenario import Input, Scenario
from tapedelay.replayer.rerun.transformers import TransformersDriver

DRIVER = TransformersDriver()
Kind = tuple[str, str]
TRIED_MAX = 3000


@contextmanager
def repaired() -> Iterator[None]:
    """Repair what 5.19.0 forgets when it cancels a request.

    Its state is not ended, so that a batch in flight still updates it; and new requests stay blocked when
    those are cancelled whose end would have let them in again.
    """
    scheduler = watch.module("scheduler").Scheduler
    finished = watch.module("requests").RequestStatus.FINISHED
    original = scheduler.clear_cancelled_requests

    def clear_cancelled_requests(self: Any) -> Any:
        active = self._requests_to_cancel & self.active_requests.keys()
        gone = original(self)
        for state in gone:
            state._status = finished
        if active:
            self.block_new_requests = False
        return gone

    scheduler.clear_cancelled_requests = clear_cancelled_requests
    try:
        yield
    finally:
        scheduler.clear_cancelled_requests = original


class Cancel:
    """Cancels, before one step, a request or all that run."""

    def __init__(self, step: int, pick: int | None) -> None:
        self.left, self.pick = step, pick

    def __call__(self, moment: Moment) -> Sequence[Input]:
        if moment.coming is None or moment.coming.kind != "step":
            return ()
        self.left -= 1
        if self.left != -1:
            return ()
        live = sorted(moment.state.requests)
        running = [r for r in live if moment.state.requests[r].queue == "running"]
        chosen = running if self.pick is None else live and [live[self.pick % len(live)]]
        return [Input("abort", requests=tuple(chosen))] if chosen else ()


def bare(scenario: Scenario) -> Scenario:
    """Return a scenario whose outputs have the answers that a model gives as a rule."""
    return scenario.but(inputs=tuple(replace(i, answers=None, step=None) for i in scenario.inputs))


def overlapped(scenario: Scenario) -> Scenario:
    """Return a scenario as the asynchronous loop has it: each output comes after the next step."""
    inputs = tuple(i for i in scenario.inputs if i.kind != "output")  # `drive` gives them where they are due
    return scenario.but(inputs=inputs, config={**scenario.config, "use_async_batching": True})


def cancelled(scenario: Scenario, steps: int, every: int) -> Iterator[Run]:
    """Yield a run for each step before which one request, and then all that run, are cancelled."""
    for step in range(0, steps, every):
        for pick in (step, None):
            yield run(scenario, DRIVER, hook=Cancel(step, pick))


def kinds(runs: Iterator[Run]) -> tuple[dict[Kind, Run], int, int]:
    """Return the first run of each kind of violation, how many runs, and how many ended without one."""
    found: dict[Kind, Run] = {}
    count = undrained = 0
    for one in runs:
        count += 1
        undrained += not one.violations and not one.drained
        for violation in one.violations:
            found.setdefault(violation.kind, one)
    return found, count, undrained


def reduced(kind: Kind, one: Run) -> tuple[int, str]:
    """Return how many requests a case has when it is reduced, and its text."""
    from tapedelay.formats.sequence import print_sequence

    tried_count = 0

    def probe(tried: Scenario) -> tuple[set[Kind], int]:
        nonlocal tried_count
        tried_count += 1
        made = run(tried, DRIVER)
        return {v.kind for v in made.violations}, len(made.commands)

    small = reduce_scenario(
        one.made(),
        kind,
        probe,
        shrinks=Shrinks(DRIVER.shrinks, DRIVER.smaller),
        stop=lambda: tried_count > TRIED_MAX,
    )
    return len(small.scenario.submissions()), print_sequence(case_of(run(small.scenario, DRIVER)))


def swept(scenario: Scenario, steps: int, every: int) -> dict[str, Any]:
    """Cancel at every step; reduce what is found."""
    found, count, undrained = kinds(cancelled(scenario, steps, every))
    cases = {}
    for kind, one in found.items():
        requests, text = reduced(kind, one)
        cases[" ".join(kind)] = {"requests": requests, "case": text}
    return {"found": cases, "runs": count, "undrained": undrained}


def planted(scenario: Scenario, steps: int) -> dict[str, Any]:
    """Cancel with each fault planted until a run shows it."""
    told = {}
    for name, fault in DRIVER.faults().items():
        start = time.monotonic()
        with repaired(), fault():
            for count, one in enumerate(cancelled(scenario, steps, 1), 1):
                if one.violations:
                    seconds = time.monotonic() - start
                    requests, text = reduced(one.violations[0].kind, one)
                    told[name] = {"runs": count, "seconds": seconds, "requests": requests, "case": text}
                    break
    return told


def main() -> None:
    """Do all that."""
    given = json.loads(Path(sys.argv[1]).read_text())
    told: dict[str, Any] = {"version": DRIVER.version(), "strict": strict(given["runs"], DRIVER)}
    for name in given["sweep"]:
        entry = given["runs"][name]
        scenario = bare(Scenario.from_dict(entry["scenario"]))
        steps = told["strict"][name]["steps"]
        for word, mode in (("sync", scenario), ("async", overlapped(scenario))):
            for repair in (False, True):
                with repaired() if repair else nullcontext():
                    key = f"{name} {word}{' repaired' * repair}"
                    told.setdefault("cancelled", {})[key] = swept(mode, steps, given["every"])
        told["planted"] = planted(scenario, steps)
    config = dict(given["runs"]["fifo"]["scenario"]["config"])
    kit = Subject(DRIVER, {**config, "num_sectors": 16}, tight={**config, "num_sectors": 4})
    told["kit"] = [r.why for r in run_all(kit).of("failed")]
    print(json.dumps(told))


if __name__ == "__main__":
    main()
