"""A strict rerun: nothing differs, and whatever differs is said, with both sides."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import pytest

from tapedelay.formats.load import load_tape
from tapedelay.replayer.rerun.drive import Limits, run
from tapedelay.replayer.rerun.from_tape import Recording, recording_of
from tapedelay.replayer.rerun.protocol import BlockChange, Decision
from tapedelay.replayer.rerun.scenario import Scenario
from tapedelay.replayer.rerun.serving import Server
from tapedelay.replayer.rerun.strict import FIELDS, Divergence, Recorded, compare, recorded_of

from .searching import RECORDINGS
from .taping import taped
from .toy import FAULTS, ToyDriver

HERE = Path(__file__).parent


@pytest.fixture(scope="module", params=sorted(RECORDINGS))
def recording(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Each recording of the toy, from its tape."""
    return recording_of(load_tape(taped(RECORDINGS[request.param], tmp_path_factory.mktemp("toy"))))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return recording_of(load_tape(taped(RECORDINGS["plain"], tmp_path_factory.mktemp("toy"))))


def diverged(recording: Recording, recorded: list[Recorded] | None = None) -> Divergence | None:
    """Rerun it and compare with what was recorded, or with something else."""
    limits = Limits(stop_at_first=False)
    made = run(recording.scenario, ToyDriver(), limits=limits, drain=False)
    return compare(list(recording.recorded) if recorded is None else recorded, made)


def test_a_recording_is_rerun_exactly(recording: Recording) -> None:
    assert recording.steps > 5
    assert any(isinstance(e, BlockChange) for r in recording.recorded for e in r.events)
    assert sum(bool(r.counts) for r in recording.recorded) > 3
    assert diverged(recording) is None


@pytest.mark.parametrize("do", ["strict", "scenario"])
def test_a_recording_may_be_longer_than_a_perturbed_run(
    plain: Recording, monkeypatch: pytest.MonkeyPatch, do: str
) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    server = Server(lambda call, kind: None, Limits(max_steps=5))
    assert plain.steps > 5
    server.handle({"do": "open", "engine": "toy:ToyDriver"})
    recorded = [r.as_dict() for r in plain.recorded]
    answer = server.handle({"do": do, "scenario": plain.scenario.as_dict(), "recorded": recorded})
    assert answer["violations"] == []
    assert answer["reason"] is None
    assert answer.get("divergence") is None


def test_after_a_divergence_nothing_is_judged(plain: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded answers to steps that the scheduler no longer makes are no fault of its."""
    monkeypatch.syspath_prepend(str(HERE))
    server = Server(lambda call, kind: None)
    server.handle({"do": "open", "engine": "toy:ToyDriver"})
    recorded = [r.as_dict() for r in plain.recorded]
    message = {"do": "strict", "scenario": plain.scenario.as_dict(), "recorded": recorded}
    with importlib.import_module("toy").FAULTS["free-count"].planted():
        uncompared = server.handle({**message, "recorded": []})
        recorded[0]["shown"] = [(0, 1)]
        after = server.handle(message)
    assert uncompared["violations"][0]["call"] > 0
    assert (after["divergence"]["index"], after["violations"]) == (0, [])


def test_a_scenario_and_its_recording_survive_json(recording: Recording) -> None:
    assert Scenario.from_dict(recording.scenario.as_dict()) == recording.scenario
    assert recorded_of([r.as_dict() for r in recording.recorded]) == list(recording.recorded)


@pytest.mark.parametrize("what", FIELDS)
def test_every_change_of_a_recording_diverges(plain: Recording, what: str) -> None:
    """One number of one event is another one: that input and that field are named."""
    for index, was in enumerate(plain.recorded):
        changed = _changed(was, what)
        if changed is None:
            continue
        recorded = list(plain.recorded)
        recorded[index] = changed
        found = diverged(plain, recorded)
        assert found is not None
        assert found.index == index
        assert what in {d.name for d in found.differences}
        assert what not in found.equal
        return
    pytest.fail(f"no input has {what}")


def _changed(was: Recorded, what: str) -> Recorded | None:
    if what in ("free", "used"):
        more = (1, 0) if what == "free" else (0, 1)
        counts = {p: (f + more[0], u + more[1]) for p, (f, u) in was.counts.items()}
        return replace(was, counts=counts) if counts else None
    if what == "ended":
        return replace(was, ended=tuple((r, "error") for r, _ in was.ended)) if was.ended else None
    if what == "shown":
        return replace(was, shown=tuple((r, n + 1) for r, n in was.shown)) if was.shown else None
    events = list(was.events)
    if what == "order":
        decided = [e for e in events if isinstance(e, Decision) and e.kind == "finish"]
        others = [e for e in events if e not in decided]
        return replace(was, events=(*others, *decided)) if decided and others else None
    for n, event in enumerate(events):
        if isinstance(event, BlockChange) and what == "blocks":
            events[n] = replace(event, units=(event.units[0] + 1, *event.units[1:]))
        elif isinstance(event, Decision) and event.kind in ("prefill", "decode") and what == "scheduled":
            events[n] = replace(event, tokens=(event.tokens or 0) + 1)
        elif isinstance(event, Decision) and event.kind == "finish" and what == "decided":
            del events[n]
        else:
            continue
        return replace(was, events=tuple(events))
    return None


def test_the_order_of_decisions_and_units_counts_unless_an_adapter_cannot_see_it(plain: Recording) -> None:
    index = next(n for n, r in enumerate(plain.recorded) if _changed(r, "order") is not None)
    recorded = list(plain.recorded)
    changed = _changed(recorded[index], "order")
    assert changed is not None
    recorded[index] = changed
    found = diverged(plain, recorded)
    assert found is not None
    assert (found.index, [d.name for d in found.differences]) == (index, ["order"])
    made = run(plain.scenario, ToyDriver(), limits=Limits(stop_at_first=False), drain=False)
    assert compare(recorded, made, ordered=False) is None


def test_an_adapter_that_cannot_see_why_requests_end_is_not_asked(plain: Recording) -> None:
    made = run(plain.scenario, ToyDriver(), limits=Limits(stop_at_first=False), drain=False)
    for n, call in enumerate(made.calls):
        made.calls[n] = replace(call, reaction=replace(call.reaction, ended=None))
    recorded = [replace(r, ended=((0, "error"),)) for r in plain.recorded]
    assert compare(recorded, made) is None


def test_a_count_that_was_not_recorded_to_change_may_not_change(plain: Recording) -> None:
    changes = [n for n, r in enumerate(plain.recorded) if r.counts]
    assert len(changes) > 3
    for index in changes[1:]:
        recorded = list(plain.recorded)
        recorded[index] = replace(recorded[index], counts={})
        found = diverged(plain, recorded)
        assert found is not None
        assert (found.index, [d.name for d in found.differences]) == (index, ["free", "used"])


@pytest.mark.parametrize("change", [{"units": 34}, {"units": 32}, {"reserved": 0}, {"name": "other"}])
def test_pools_are_the_recorded_ones(plain: Recording, change: dict[str, object]) -> None:
    (pool,) = plain.scenario.pools
    other = replace(plain, scenario=plain.scenario.but(pools=(replace(pool, **change),)))  # type: ignore[arg-type]
    found = diverged(other)
    assert found is not None
    assert [d.name for d in found.differences] == ["pools"]


def test_equal_rows_are_folded(plain: Recording) -> None:
    index, was = next((n, r) for n, r in enumerate(plain.recorded) if len(r.events) > 3)
    recorded = list(plain.recorded)
    last = next(e for e in reversed(was.events) if isinstance(e, BlockChange))
    more = BlockChange(last.action, last.pool, (31,), last.request)
    recorded[index] = replace(was, events=(*was.events, more))
    found = diverged(plain, recorded)
    assert found is not None
    (difference,) = found.differences
    assert difference.name == "blocks"
    assert difference.equal_before == sum(len(e.units) for e in was.events if isinstance(e, BlockChange))
    assert difference.recorded == (f"{last.action} {last.pool}31 R{last.request}",)
    assert difference.rerun == ()
    assert "scheduled" in found.equal


@pytest.mark.parametrize("name", ["kept-mid-prefill", "free-count"])
def test_a_scheduler_that_changed_diverges_or_is_found(plain: Recording, name: str) -> None:
    """A fault on the recorded path: strict does not call that run equal and clean."""
    with FAULTS[name].planted():
        made = run(plain.scenario, ToyDriver(), limits=Limits(stop_at_first=False), drain=False)
        found = compare(list(plain.recorded), made)
    without = run(plain.scenario, ToyDriver(), limits=Limits(stop_at_first=False), drain=False)
    assert not without.violations
    # kept-mid-prefill needs an abort, which a clean recording has not
    assert (found is not None or bool(made.violations)) == (name != "kept-mid-prefill")


def test_an_input_that_the_engine_no_longer_has_diverges(plain: Recording) -> None:
    inputs = list(plain.scenario.inputs)
    del inputs[3]
    fewer = replace(plain, scenario=plain.scenario.but(inputs=tuple(inputs)))
    found = diverged(fewer)
    assert found is not None
    assert found.index == 3
    assert found.words or found.differences
