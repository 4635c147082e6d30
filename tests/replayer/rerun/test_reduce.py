"""The reducer on runs that are only a rule: what it leaves, how many runs it takes, and its single steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapedelay.replayer.rerun.protocol import Answer, Pool, Submission
from tapedelay.replayer.rerun.reduce import Kind, Probe, Shrinks, reduce_scenario
from tapedelay.replayer.rerun.scenario import Ending, Input, Scenario
from tapedelay.replayer.rerun.smaller import (
    numbers,
    plainer,
    renumbered,
    size,
    without_inputs,
    without_requests,
)
from tapedelay.replayer.rerun.tokens import Tokens

KIND = ("I3", "held")


def submit(request: int, prompt: int = 8, most: int | None = 4, **more: Any) -> Input:
    return Input("submit", submission=Submission(request, prompt, most, **more))


def scenario(*inputs: Input, **more: Any) -> Scenario:
    return Scenario("rule", None, more.pop("config", {}), more.pop("pools", ()), inputs, **more)


def rule(holds: Any) -> Probe:
    """Return a probe whose runs are as long as the scenario has inputs."""

    def probe(tried: Scenario) -> tuple[set[Kind], int]:
        return ({KIND} if holds(tried) else set()), len(tried.inputs)

    return probe


BIG = scenario(
    submit(3, 40, 9, priority=2, id_rank=7),
    submit(0, 30, 5, flags=("session",)),
    *[Input(k) for _ in range(20) for k in ("step", "output")],
    submit(5, 17, 6, reserve_tokens=9, id_rank=3),
    Input("priority", request=5, value=-9),
    Input("next_chunk", request=0, tokens=12, last=True),
    *[Input(k, decode_only=k == "step") for _ in range(10) for k in ("step", "output")],
    Input("pause", word="keep"),
    Input("abort", requests=(0, 3, 5)),
    *[Input("step") for _ in range(30)],
    prefixes=((3, 0, 0, 16), (5, 3, 0, 8)),
    endings=(Ending(3, 2, "stop"),),
    config={"units": 64, "chunked": True, "name": "x"},
)


def aborted(tried: Scenario, request: int) -> bool:
    return any(i.kind == "abort" and request in i.about() for i in tried.inputs)


def test_one_request_and_its_abort_are_left() -> None:
    done = reduce_scenario(BIG, KIND, rule(lambda s: any(aborted(s, x.request) for x in s.submissions())))
    assert done.minimal
    assert [i.kind for i in done.scenario.inputs] == ["submit", "abort"]
    assert done.scenario.submissions() == (Submission(0, 1, 1),)
    assert done.scenario.prefixes == ()
    assert done.scenario.endings == ()
    assert done.scenario.config == {"units": 64, "chunked": False, "name": "x"}
    assert done.runs < 60


def test_what_is_needed_stays() -> None:
    def holds(tried: Scenario) -> bool:
        prompts = sum(s.prompt_tokens for s in tried.submissions())
        steps = sum(i.kind == "step" for i in tried.inputs)
        return prompts >= 50 and steps >= 7 and bool(tried.prefixes) and bool(tried.config["chunked"])

    done = reduce_scenario(BIG, KIND, rule(holds))
    assert done.minimal
    assert len(done.scenario.submissions()) == 2
    assert sum(s.prompt_tokens for s in done.scenario.submissions()) == 50
    assert [i.kind for i in done.scenario.inputs].count("step") == 7
    assert len(done.scenario.inputs) == 9
    assert [p[:2] for p in done.scenario.prefixes] == [(1, 0)]


def test_units_and_tokens_shrink_together() -> None:
    """A fault under pressure: neither less tokens alone nor less units alone show it."""

    def holds(tried: Scenario) -> bool:
        tokens = sum(s.prompt_tokens for s in tried.submissions())
        units = int(tried.config["units"])
        return len(tried.submissions()) == 2 and 4 * units - 4 < tokens <= 4 * units

    def smaller(config: Mapping[str, Any], key: str, submissions: Sequence[Submission]) -> list[Any]:
        least = max(-(-s.prompt_tokens // 4) for s in submissions)
        now = int(config[key])
        return [{**config, key: n} for n in sorted({now // 2, now - 1, least}) if least <= n < now]

    start = scenario(submit(0, 32), submit(1, 32), config={"units": 16})
    done = reduce_scenario(start, KIND, rule(holds), shrinks=Shrinks(("units",), smaller))
    assert done.minimal
    assert done.scenario.config["units"] <= 2
    assert sum(s.prompt_tokens for s in done.scenario.submissions()) <= 5


def test_a_request_goes_together_with_the_units_that_it_took() -> None:
    """A fault under pressure: with one request less the same pool is not full any more."""

    def holds(tried: Scenario) -> bool:
        units = sum(-(-s.prompt_tokens // 4) for s in tried.submissions())
        return len(tried.submissions()) >= 2 and units == int(tried.config["units"])

    def smaller(config: Mapping[str, Any], key: str, submissions: Sequence[Submission]) -> list[Any]:
        least = max(-(-s.prompt_tokens // 4) for s in submissions)
        now = int(config[key])
        return [{**config, key: n, "longest": 4 * n} for n in sorted({now // 2, least}) if least <= n < now]

    start = scenario(
        *[submit(n, 20 + n) for n in range(7)],
        config={"units": 43, "longest": 200},
        pools=(Pool("kv", 43, 0, 4),),
    )
    assert holds(start)
    done = reduce_scenario(start, KIND, rule(holds), shrinks=Shrinks(("units",), smaller))
    assert done.minimal
    assert len(done.scenario.submissions()) == 2
    assert done.runs < 150


def test_a_step_goes_with_its_output() -> None:
    def holds(tried: Scenario) -> bool:
        kinds = [i.kind for i in tried.inputs]
        return kinds.count("step") == kinds.count("output")

    pairs = [Input(k) for _ in range(5) for k in ("step", "output")]
    done = reduce_scenario(scenario(submit(0), *pairs), KIND, rule(holds))
    assert [i.kind for i in done.scenario.inputs] in (["submit"], [])


def test_a_longer_run_is_not_smaller() -> None:
    def probe(tried: Scenario) -> tuple[set[Kind], int]:
        return {KIND}, 100 - int(tried.config["budget"])

    def smaller(config: Mapping[str, Any], key: str, submissions: Sequence[Submission]) -> list[Any]:
        return [{**config, key: 1}] if config[key] > 1 else []

    start = scenario(submit(0), config={"budget": 16})
    done = reduce_scenario(start, KIND, probe, shrinks=Shrinks(("budget",), smaller))
    assert done.minimal
    assert done.scenario.config == {"budget": 16}


def test_another_kind_does_not_count() -> None:
    def probe(tried: Scenario) -> tuple[set[Kind], int]:
        return ({KIND} if len(tried.inputs) > 60 else {("I3", "other"), ("I1", "held")}), len(tried.inputs)

    done = reduce_scenario(BIG, KIND, probe)
    assert len(done.scenario.inputs) == 61


def test_a_scenario_that_does_not_show_it_comes_back() -> None:
    done = reduce_scenario(BIG, KIND, rule(lambda s: False))
    assert (done.scenario, done.runs, done.minimal) == (BIG, 1, False)


@pytest.mark.parametrize("runs", [0, 1, 5, 20])
def test_the_budget_is_kept_and_what_there_is_shows_the_kind(runs: int) -> None:
    counted = []

    def probe(tried: Scenario) -> tuple[set[Kind], int]:
        counted.append(tried)
        return ({KIND} if aborted(tried, 3) else set()), len(tried.inputs)

    done = reduce_scenario(BIG, KIND, probe, max_runs=runs)
    assert not done.minimal
    assert done.runs == len(counted) <= runs
    assert aborted(done.scenario, 3)
    stopped = reduce_scenario(BIG, KIND, probe, stop=lambda: True)
    assert (stopped.runs, stopped.scenario) == (0, BIG)


def test_each_scenario_runs_once_and_progress_is_told() -> None:
    counted: list[str] = []
    told: list[tuple[int, ...]] = []

    def probe(tried: Scenario) -> tuple[set[Kind], int]:
        counted.append(repr(tried.as_dict()))
        return ({KIND} if aborted(tried, 3) else set()), len(tried.inputs)

    reduce_scenario(BIG, KIND, probe, progress=lambda runs, s: told.append(size(s)))
    assert len(counted) == len(set(counted))
    assert told
    assert told == sorted(told, reverse=True)


# --- single steps ---


def test_without_a_request_nothing_is_about_it() -> None:
    less = without_requests(BIG, {3})
    assert all(3 not in i.about() for i in less.inputs)
    assert {s.request for s in less.submissions()} == {0, 5}
    assert less.endings == ()
    assert next(i for i in less.inputs if i.kind == "abort").requests == (0, 5)
    # R5 had 8 tokens of R3, who had them of R0.
    assert less.prefixes == ((5, 0, 0, 8),)
    assert without_requests(BIG, {0, 3, 5}).prefixes == ()


@given(st.data())
def test_those_that_are_left_keep_their_equal_tokens(data: st.DataObject) -> None:
    many = 5
    prefixes = []
    for request in range(1, many):
        of = data.draw(st.integers(0, request - 1))
        prefixes.append((request, of, 0, data.draw(st.integers(1, 6))))
    gone = data.draw(st.sets(st.integers(0, many - 1), max_size=3))
    before = scenario(*[submit(n) for n in range(many)], prefixes=tuple(prefixes))
    after = without_requests(before, gone)
    old, new = Tokens(before.prefixes), Tokens(after.prefixes)
    left = [n for n in range(many) if n not in gone]
    for a in left:
        for b in left:
            for position in range(8):
                assert (old(a, position) == old(b, position)) == (new(a, position) == new(b, position))
    assert all(p[0] not in gone and p[1] not in gone for p in after.prefixes)
    fresh = renumbered(after)
    assert [s.request for s in fresh.submissions()] == list(range(len(left)))
    assert renumbered(fresh) == fresh


def test_without_the_arrival_a_request_is_gone() -> None:
    less = without_inputs(BIG, {0})
    assert less == without_requests(BIG, {3})
    assert len(without_inputs(BIG, {2, 3}).inputs) == len(BIG.inputs) - 2


def test_every_step_is_smaller() -> None:
    answers = (Answer(0, 1), Answer(1, 1, "stop"))
    odd = BIG.but(
        inputs=(*BIG.inputs, Input("output", step=3, answers=answers), Input("cache_reset", word="w"))
    )
    found = list(plainer(odd))
    assert len(found) > 20
    for tried in found:
        assert size(tried) < size(odd)
    for number in numbers(odd):
        if number.value > number.low:
            assert size(number.put(number.value - 1)) < size(odd)
    assert size(odd, ("units",))[3] == 64


def test_renumbered_leaves_out_strangers() -> None:
    odd = scenario(
        Input("abort", requests=(7, 3)), submit(3, id_rank=9), submit(1, id_rank=2), prefixes=((3, 1, 0, 4),)
    )
    fresh = renumbered(odd)
    assert fresh.inputs[0].requests == (0,)
    assert [(s.request, s.id_rank) for s in fresh.submissions()] == [(0, 1), (1, 0)]
    assert fresh.prefixes == ((1, 0, 0, 4),)
