"""Reruns recorded schedulers of vLLM, in the Python that has it; prints one JSON object.

``vllm_reruns.py FILE WORK...``: FILE is JSON with ``runs`` (name -> ``scenario``, ``recorded``) and
``planted`` (fault -> name of a run). WORK: ``strict`` reruns every run exactly, ``planted`` perturbs runs
with each fault until it shows and reduces that, ``kit`` runs the conformance kit, ``cases`` the cases of the
folder ``vllm_cases``, on the scheduler as it is and with the repairs below, ``groups`` asks a scheduler with
two KV groups what fits.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from exact import strict  # type: ignore[import-not-found]

from tapedelay.formats.sequence import print_sequence, read
from tapedelay.replayer.rerun.case import case_of, scenario_of
from tapedelay.replayer.rerun.conformance import Subject, run_all
from tapedelay.replayer.rerun.drive import Run, run
from tapedelay.replayer.rerun.perturb import bare, run_recipe
from tapedelay.replayer.rerun.plan import aimed, facts_of, random_recipes, variants
from tapedelay.replayer.rerun.protocol import Submission, Unsupported
from tapedelay.replayer.rerun.recipe import Recipe
from tapedelay.replayer.rerun.reduce import Shrinks, reduce_scenario
from tapedelay.replayer.rerun.scenario import Scenario
from tapedelay.replayer.rerun.vllm import VllmDriver

DRIVER = VllmDriver()
CASES = Path(__file__).parent.parent / "vllm_cases"
MOST_S = 120.0
REDUCE_S = 40.0
Kind = tuple[str, str]


def shown(base: Scenario, fault: str) -> tuple[Run, int] | None:
    """Return the first run that a fault makes show what the same run does not show without it."""
    start, count = time.monotonic(), 0
    search = _search(base)
    recipe = next(search)
    while time.monotonic() - start < MOST_S:
        with DRIVER.faults()[fault]():
            one, hook = run_recipe(base, recipe, DRIVER)
        count += 1
        if one.violations:
            honest, _ = run_recipe(base, recipe, DRIVER)
            if not {v.kind for v in one.violations} & {v.kind for v in honest.violations}:
                return one, count
        recipe = search.send([(phase, place, n) for (phase, place), n in hook.moments.items()])
    return None


def _search(base: Scenario) -> Generator[Recipe, list[tuple[str, str, int]], None]:
    """Yield recipes: each variant and what is new to aim at in it, then random ones."""
    facts = facts_of(base, DRIVER)
    tried = set()
    for variant in variants(facts):
        moments = yield variant
        for recipe in aimed(variant, moments, facts, 0):
            (aim,) = recipe.aims
            key = aim.action, aim.phase, aim.place, aim.word
            if key not in tried:
                tried.add(key)
                yield recipe
    yield from random_recipes(facts, 0)


def planted(runs: Mapping[str, Any], faults: Mapping[str, str]) -> dict[str, Any]:
    """Find each fault, and reduce what shows it."""
    told = {}
    for fault, name in faults.items():
        start = time.monotonic()
        found = shown(bare(Scenario.from_dict(runs[name]["scenario"])), fault)
        if found is None:
            continue
        one, count = found
        seconds = time.monotonic() - start
        with DRIVER.faults()[fault]():
            small, text = reduced(one)
        told[fault] = {
            "runs": count,
            "seconds": seconds,
            "kind": list(one.violations[0].kind),
            "requests": len(small.submissions()),
            "inputs": len(small.inputs),
            "case": text,
            "without": [list(v.kind) for v in run(small, DRIVER).violations],
        }
    return told


def reduced(one: Run) -> tuple[Scenario, str]:
    """Return the smallest scenario with the same kind of violation, and its text."""
    until = time.monotonic() + REDUCE_S

    def probe(tried: Scenario) -> tuple[set[Kind], int]:
        try:
            made = run(tried, DRIVER)
        except Unsupported:  # a configuration that vLLM does not take
            return set(), 0
        return {v.kind for v in made.violations}, len(made.commands)

    small = reduce_scenario(
        one.made(),
        one.violations[0].kind,
        probe,
        shrinks=Shrinks(DRIVER.shrinks, DRIVER.smaller),
        stop=lambda: time.monotonic() > until,
    )
    return small.scenario, print_sequence(case_of(run(small.scenario, DRIVER)))


@contextmanager
def session_kept() -> Iterator[None]:
    """Repair 0.32.0: a preempted session whose turn ends is put back where its end has taken it from."""
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler.update_from_output

    def update_from_output(self: Any, *args: Any) -> Any:
        told = original(self, *args)
        queued = {r.request_id for q in (self.running, self.waiting, self.kv_holding_waiting) for r in q}
        for request in self.requests.values():
            if request.request_id not in queued:
                self._enqueue_waiting_request(request)
        return told

    Scheduler.update_from_output = update_from_output
    try:
        yield
    finally:
        Scheduler.update_from_output = original


@contextmanager
def history_kept() -> Iterator[None]:
    """Repair 0.32.0, besides: a preempted session keeps what it has said when its next chunk comes."""
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler._update_request_as_session

    def update_request_as_session(self: Any, session: Any, update: Any) -> None:
        computed = session.num_computed_tokens
        session.num_computed_tokens = max(computed, session.num_tokens - 1)
        original(self, session, update)
        session.num_computed_tokens = computed

    Scheduler._update_request_as_session = update_request_as_session
    try:
        with session_kept():
            yield
    finally:
        Scheduler._update_request_as_session = original


@contextmanager
def holders_preempted() -> Iterator[None]:
    """Repair 0.32.0: where only waiting requests hold blocks, the last of them gives its blocks back."""
    from vllm.v1.core.sched.scheduler import Scheduler

    original = Scheduler.schedule

    def schedule(self: Any, *args: Any) -> Any:
        from vllm.v1.request import RequestStatus

        output = original(self, *args)
        waiting = [r for r in self.kv_holding_waiting if r.status == RequestStatus.WAITING]
        if not output.num_scheduled_tokens and not self.running and len(waiting) > 1:
            last = waiting[-1]
            self.kv_holding_waiting.remove_request(last)
            self._free_request_blocks(last)
            last.num_computed_tokens = 0
            self.waiting.add_request(last)
        return output

    Scheduler.schedule = schedule
    try:
        yield
    finally:
        Scheduler.schedule = original


REPAIRS = {
    "session-lost": session_kept,
    "session-history": history_kept,
    "sessions-deadlock": holders_preempted,
}
"""By the name of the case."""


def cases() -> dict[str, Any]:
    """Rerun each case, as the scheduler is and repaired."""
    told = {}
    for file in sorted(CASES.glob("*.litmus")):
        scenario = scenario_of(read(file))
        entry = {}
        for word, repair in (("as it is", nullcontext), ("repaired", REPAIRS[file.stem])):
            with repair():
                made = run(scenario, DRIVER)
            entry[word] = {"kinds": [list(v.kind) for v in made.violations], "drained": made.drained}
        told[file.stem] = entry
    return told


def kit() -> list[str]:
    """Return what the conformance kit finds wrong with the adapter."""
    told = []
    for kind in ("sync", "async"):
        config = {
            "scheduler": kind,
            "block_size": 4,
            "num_blocks": 129,
            "max_model_len": 256,
            "max_num_batched_tokens": 16,
        }
        report = run_all(Subject(DRIVER, config, tight={**config, "num_blocks": 11}, session=("resumable",)))
        told += [f"{kind}: {r.why}" for r in report.of("failed")]
    return told


def groups() -> list[bool]:
    """Return whether 40 tokens in units of 16 fit: with 3 free blocks in one group; with 5 and 6 in two."""
    told = []
    for count, blocks in ((1, 4), (2, 6), (2, 7)):
        config = {"num_blocks": blocks, "groups": count, "max_num_batched_tokens": 64, "max_model_len": 64}
        engine = DRIVER.build(config, lambda request, position: 9 + position)
        engine.submit(Submission(0, 40, 1))
        told.append(engine.fits(0))
        engine.close()
    return told


def main() -> None:
    """Do the work."""
    given = json.loads(Path(sys.argv[1]).read_text())
    told: dict[str, Any] = {"version": DRIVER.version()}
    does: dict[str, Callable[[], Any]] = {
        "strict": lambda: strict(given["runs"], DRIVER),
        "planted": lambda: planted(given["runs"], given["planted"]),
        "cases": cases,
        "kit": kit,
        "groups": groups,
    }
    for work in sys.argv[2:]:
        told[work] = does[work]()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
