"""Reduced cases as files: they read back as they were, run again; bad ones are refused with their line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapedelay.formats.errors import LitmusError
from tapedelay.formats.requests.words import ANSWER_WORDS
from tapedelay.formats.sequence import Sequence, parse, print_sequence, read
from tapedelay.replayer.rerun.case import case_of, drive_of, scenario_of
from tapedelay.replayer.rerun.drive import run
from tapedelay.replayer.rerun.protocol import Answer, Pool, Submission
from tapedelay.replayer.rerun.scenario import Ending, Input, Scenario
from tapedelay.replayer.sequence import judge

from .searching import DRIVER, RECORDINGS
from .toy import FAULTS

SMALL = st.integers(0, 99)
NUMBER = st.none() | SMALL
REQUEST = st.integers(0, 4)
FLAGS = st.lists(st.sampled_from(["session", "blocked", "multi_modal"]), max_size=2, unique=True)
ANSWERS = st.lists(st.builds(Answer, REQUEST, SMALL, st.none() | st.sampled_from(ANSWER_WORDS)), max_size=3)
INPUTS = st.one_of(
    st.builds(Input, st.just("step"), decode_only=st.booleans(), step=NUMBER),
    st.builds(Input, st.just("output"), step=NUMBER, answers=st.none() | ANSWERS.map(tuple)),
    st.builds(Input, st.just("abort"), requests=st.lists(REQUEST, min_size=1, max_size=3).map(tuple)),
    st.builds(Input, st.just("set_schedulable"), request=REQUEST),
    st.builds(
        Input,
        st.just("next_chunk"),
        request=REQUEST,
        tokens=NUMBER,
        value=NUMBER,
        last=st.booleans(),
        arrive_ns=NUMBER,
    ),
    st.builds(Input, st.just("priority"), request=REQUEST, value=st.integers(-9, 9)),
    st.builds(Input, st.sampled_from(["pause", "cache_reset"]), word=st.sampled_from([None, "wait", "a b"])),
    st.just(Input("resume")),
)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Draw a scenario of five requests."""
    submits = [
        Input(
            "submit",
            submission=Submission(
                n,
                draw(SMALL),
                draw(st.none() | st.integers(1, 9)),
                draw(st.none() | st.integers(-5, 5)),
                tuple(draw(FLAGS)),
                draw(NUMBER),
                draw(NUMBER),
                draw(NUMBER),
            ),
        )
        for n in range(5)
    ]
    inputs = [*submits, *draw(st.lists(INPUTS, max_size=8))]
    return Scenario(
        "toy",
        draw(st.none() | st.just("1.0")),
        draw(st.dictionaries(st.sampled_from(["units", "on", "mode"]), st.sampled_from([1, True, "w", 2.5]))),
        (Pool("kv", 9, 1, 4), Pool("state", 3)),
        tuple(draw(st.permutations(inputs))),
        draw(st.sampled_from([(), ((2, 1, 0, 8), (3, 0, 4, 6))])),
        draw(st.sampled_from([(), (Ending(2, 3, "stop"),)])),
    )


@settings(max_examples=40)
@given(scenarios())
def test_a_scenario_reads_back_as_it_was(made: Scenario) -> None:
    text = print_sequence(Sequence.of([], drive=drive_of(made)))
    assert scenario_of(parse(text)) == made
    assert print_sequence(parse(text)) == text


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_clean_run_is_a_case_that_runs_again(name: str, tmp_path: Path) -> None:
    result = run(RECORDINGS[name], DRIVER)
    path = tmp_path / "case.litmus"
    path.write_text(print_sequence(case_of(result)))
    sequence = read(path)
    assert not judge(sequence.commands())
    again = run(scenario_of(sequence), DRIVER)
    assert again.commands == result.commands
    assert print_sequence(case_of(again)) == path.read_text()


def test_a_case_says_what_breaks_where_and_how_it_is_made() -> None:
    inputs = (
        Input("submit", submission=Submission(0, 9, 3)),
        Input("step"),
        Input("output"),
        Input("abort", requests=(0,)),
    )
    config = {"kv_units": 9, "unit_tokens": 4, "token_budget": 4, "max_running": 1}
    with FAULTS["kept-mid-prefill"].planted():
        result = run(Scenario("toy", "1.0", config, (Pool("kv", 99, 1, 4),), inputs), DRIVER)
    assert print_sequence(case_of(result, notes={"engine": "toy 1.0"})) == (
        "# engine: toy 1.0\n"
        "# breaks: I3 (nothing is held when the scheduler is idle): "
        "kv held when idle, owner aborted in prefill\n"
        "# shows: " + result.violations[0].words + "\n"
        "seq\n"
        "engine toy 1.0\n"
        'config {"kv_units": 9, "unit_tokens": 4, "token_budget": 4, "max_running": 1}\n'
        "pool kv units=9 reserved=1 tokens=4\n"
        "> submit R0 prompt=9 max=3\n"
        "arrive R0\n"
        "> step\n"
        "alloc R0 kv1\n"
        "schedule R0\n"
        "launch S0 R0 kv1\n"
        "> output\n"
        "retire S0\n"
        "> abort R0\n"
        "abort R0\n"
        "finish R0\n"
        "> drain\n"
        "idle\n"
        "violates: I3@8\n"
    )


def test_what_only_the_state_shows_is_said_and_not_claimed() -> None:
    with FAULTS["count-kept"].planted():
        inputs = [Input("submit", submission=Submission(n, 3, 1)) for n in range(2)]
        base = RECORDINGS["plain"].but(inputs=(*inputs, Input("abort", requests=(0, 1))))
        case = case_of(run(base, DRIVER))
    assert case.stated() is None
    assert case.notes["breaks"].startswith("I7 (a counter is never negative)")


HEAD = "seq\nengine toy 1.0\nconfig {}\npool kv units=9\n"
BAD = {
    "arrive R0\n": "does not say how it was made",
    HEAD + "> submit R0\n": "submit without prompt=",
    HEAD + "> submit R0 prompt=-1\n": "prompt -1",
    HEAD + "> submit R0 prompt=x\n": "whole number",
    HEAD + "> submit R0 prompt=3 more=4\n": "more=",
    HEAD + "> submit R0 prompt=3 max=0\n": "max 0",
    HEAD + "> submit R0 prompt=3\n> submit R0 prompt=3\n": "submitted twice",
    HEAD + "> submit R0 prompt=3 ends=2/never\n": "ends=",
    HEAD + "> submit R0 prompt=3 ends=stop\n": "ends=",
    HEAD + "> submit prompt=3\n": "request",
    HEAD + "> submit R99999999999 prompt=3\n": "request",
    HEAD + "> abort\n": "request",
    HEAD + "> abort X0\n": "request",
    HEAD + "> step now\n": "after step",
    HEAD + "> output R0\n": "answer",
    HEAD + "> output R0/1/never\n": "answer",
    HEAD + "> output R0/1 tokens=1\n": "tokens=",
    HEAD + "> chunk R0 tokens=-4\n": "tokens -4",
    HEAD + "> chunk R0 first\n": "after chunk",
    HEAD + "> priority R0\n": "priority",
    HEAD + "> priority R0 high\n": "priority",
    HEAD + "> priority R0 1 2\n": "after priority",
    HEAD + "> schedulable R0 R1\n": "after schedulable",
    HEAD + "> pause wait keep\n": "after pause",
    HEAD + "> resume R0=1\n": "R0=1",
    HEAD + "> submit R0 prompt=16777217\n": "tokens up to here",
    HEAD + "> submit R0 prompt=3 reserve=1000000000\n": "tokens up to here",
    HEAD.replace("units=9", "units=1000000000") + "> submit R0 prompt=3\n": "1,000,000,000 units",
    HEAD + "> submit R0 prompt=3\n> chunk R0 tokens=1000000000000\n": "tokens up to here",
    HEAD + "> submit R0 prompt=3\n> step\n> output R0/999999999\n": "tokens up to here",
    HEAD + "> drain now\n": "arguments of drain",
    HEAD + "> drain\n> step\n": "after `> drain`",
    HEAD + "prefix 1 of 0 from 0 to 4\n> submit R0 prompt=3\n": "never submitted",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_case_is_refused(text: str) -> None:
    text = text if text.startswith("seq") else f"seq\n{text}"
    with pytest.raises(LitmusError) as caught:
        scenario_of(parse(text, name="bad.litmus"))
    assert BAD[text.removeprefix("seq\n") if text not in BAD else text] in caught.value.text()
    assert "bad.litmus" in caught.value.text()
    assert caught.value.exit_code == 3


def test_a_case_of_some_requests_keeps_what_they_have_in_common_through_others() -> None:
    inputs = tuple(Input("submit", submission=Submission(r, 8, 1)) for r in (2, 5))
    prefixes = ((2, 1, 0, 8), (5, 1, 0, 4), (7, 5, 0, 8))
    whole = Scenario("toy", None, {}, (), inputs, prefixes)
    drive = drive_of(whole)
    assert drive.prefixes == ((5, 2, 0, 4),)
    again = scenario_of(Sequence.of([], drive=drive))
    tokens = again.tokens()
    assert [tokens(5, p) == tokens(2, p) for p in range(8)] == [True] * 4 + [False] * 4
