"""Each fault planted into the toy is found from a clean recording, and reduced; without it all is clean."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pytest

from tapedelay.formats.sequence import parse, print_sequence
from tapedelay.replayer.rerun.case import case_of, run_to_show, scenario_of
from tapedelay.replayer.rerun.drive import Run, run
from tapedelay.replayer.rerun.perturb import run_recipe
from tapedelay.replayer.rerun.protocol import Decision
from tapedelay.replayer.rerun.recipe import ACTIONS, Recipe
from tapedelay.replayer.rerun.smaller import numbers, without_inputs
from tapedelay.replayer.rerun.violation import RAISED
from tapedelay.replayer.sequence import judge

from .searching import DRIVER, RECORDINGS, probe, reduced, search
from .toy import FAULTS


@dataclass(frozen=True)
class Hunt:
    """Where a fault shows: in which recording, by what, and with less of what."""

    recording: str
    only: Collection[str]
    less: Collection[str] = ()
    requests: int = 2
    most: int = 200


HUNTS = {
    "kept-mid-prefill": Hunt("plain", ["abort"], requests=1),
    "kept-in-chunk": Hunt("session", ["abort"], requests=1),
    "kept-reserved": Hunt("blocked", ["abort"], requests=1),
    "freed-twice": Hunt("plain", ["abort"], ["kv_units"]),
    "slot-kept": Hunt("slots", ["abort"], ["kv_units"]),
    "dead-in-queue": Hunt("plain", ["abort"], ["kv_units"]),
    "preempted-blocks": Hunt("long", ["abort"], ["kv_units"]),
    "late-shown": Hunt("async", ["abort"], requests=1),
    "count-kept": Hunt("plain", ["abort_batch"]),
    "freed-in-flight": Hunt("plain", ["abort"], requests=1),
    "preempted-in-flight": Hunt("async", ["abort"], ["kv_units"]),
    "stale-taken": Hunt("session", ["abort"], requests=1),
    "pending-twice": Hunt("plain", ["abort"], requests=1),
    "shared-freed": Hunt("async", ["abort"]),
    "free-count": Hunt("plain", ["abort"], requests=1),
    "reset-frees-all": Hunt("plain", ["cache_reset"], requests=1),
    "resume-lost": Hunt("plain", ["pause"], requests=1),
    "priority-lost": Hunt("async", ["priority_first"], ["kv_units"]),
    "schedulable-lost": Hunt("blocked", ["schedulable"], requests=1),
    "token-again": Hunt("plain", ["cache_reset"], requests=1),
    "remembered-early": Hunt("async", ["abort"]),
    "counted-twice": Hunt("blocked", ["abort"], requests=1),
    "raises": Hunt("async", ["abort"], requests=1),
}
"""What ends or hangs the process is tried in a process of its own, see `test_workers`."""


def found(hunt: Hunt) -> tuple[int, Recipe, Run]:
    """Return the first run that shows something, and the how-manieth it is."""
    runs = search(RECORDINGS[hunt.recording], hunt.only, hunt.most, hunt.less)
    for number, (recipe, result) in enumerate(runs, 1):
        if result.violations:
            return number, recipe, result
    raise AssertionError(f"not found in {hunt.most} runs")


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_is_clean(name: str) -> None:
    base = RECORDINGS[name]
    result = run(base, DRIVER)
    assert result.drained
    assert not result.violations
    kinds = {e.kind for _, e in result.events if isinstance(e, Decision)}
    assert kinds == {"prefill", "decode", "finish"}
    assert "abort" not in {i.kind for i in base.inputs}


@pytest.mark.parametrize("name", RECORDINGS)
def test_without_a_fault_every_perturbed_run_is_clean(name: str) -> None:
    base = RECORDINGS[name]
    actions = [
        "abort",
        "abort_batch",
        "decode_only",
        "delay",
        "chunk",
        "pause",
        "cache_reset",
        "priority_first",
    ]
    runs = [result for _, result in search(base, actions, 25, DRIVER.shrinks)]
    assert len(runs) == 25
    assert [v.words for r in runs for v in r.violations] == []
    assert all(r.drained for r in runs)


@pytest.mark.soak
@pytest.mark.parametrize("name", RECORDINGS)
def test_without_a_fault_a_long_campaign_is_clean(name: str) -> None:
    actions = {a for a in ACTIONS if a != "abort_any"}
    for recipe, result in search(RECORDINGS[name], actions, 20_000, DRIVER.shrinks):
        assert result.drained, recipe.text()
        assert not result.violations, recipe.text()


def test_every_fault_is_hunted() -> None:
    assert {*HUNTS, "hangs", "crashes"} == set(FAULTS)


@pytest.mark.parametrize("name", HUNTS)
def test_a_fault_is_found_and_reduced(name: str) -> None:
    fault, hunt = FAULTS[name], HUNTS[name]
    with fault.planted():
        _, recipe, result = found(hunt)
        violation = result.violations[0]
        expected = fault.breaks - {"raises"} or {RAISED}
        assert violation.invariant in expected, violation
        small = reduced(result.made(), violation.kind)
        assert small.minimal
        assert len(small.scenario.submissions()) <= hunt.requests, small
        assert len(small.scenario.inputs) <= 10
        case = case_of(run_to_show(small.scenario, DRIVER), notes={"fault": name})
        text = print_sequence(case)
        assert f"# breaks: {violation.invariant} (" in text
        assert violation.what in text
        again = run_to_show(scenario_of(parse(text)), DRIVER)
        assert violation.kind in {v.kind for v in again.violations}
        assert print_sequence(case_of(again, notes={"fault": name})) == text
        assert [v.claim() for v in judge(case.commands())] == list(case.stated() or ())
    clean = run(scenario_of(parse(text)), DRIVER)
    assert clean.drained
    assert not clean.violations
    assert not run_recipe(RECORDINGS[hunt.recording], recipe, DRIVER)[0].violations


@pytest.mark.parametrize("name", ["kept-mid-prefill", "preempted-blocks"])
def test_a_reduction_is_deterministic_and_nothing_more_can_be_left_out(name: str) -> None:
    with FAULTS[name].planted():
        _, _, result = found(HUNTS[name])
        kind = result.violations[0].kind
        one, two = (reduced(result.made(), kind) for _ in range(2))
        assert one == two
        for n in range(len(one.scenario.inputs)):
            assert kind not in probe(without_inputs(one.scenario, {n}))[0]
        for number in numbers(one.scenario):
            if number.value > number.low:
                less = number.put(number.value - 1)
                assert kind not in probe(less)[0] or probe(less)[1] >= probe(one.scenario)[1]
        assert reduced(one.scenario, kind).scenario == one.scenario
