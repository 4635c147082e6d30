"""What is written of a step and its output gives it back, whatever happened."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapedelay.formats.requests.carry import Answered, Carry, Row, Scheduled, Step

Rows = list[tuple[int, int, int, bool]]
pytestmark = pytest.mark.counted
EXAMPLES = 3000 if os.environ.get("TAPEDELAY_SOAK") else 150
REQUESTS = st.integers(0, 5)
TOKENS = st.integers(0, 4)
WORDS = st.sampled_from([None, None, None, "stop", "length"])
STEP = st.lists(st.tuples(REQUESTS, TOKENS, st.integers(0, 9), st.booleans()), unique_by=lambda s: s[0])
OUTPUT = st.lists(st.tuples(REQUESTS, TOKENS, WORDS), unique_by=lambda s: s[0])
ROUND = st.sampled_from([("again", True), ("expected", None), ("expected", None), ("again", False)])
"""The usual: everybody decodes one token more."""
EVENTS = st.lists(
    st.one_of(
        ROUND,
        ROUND,
        st.tuples(st.just("step"), STEP),
        st.tuples(st.just("output"), OUTPUT),
        st.tuples(st.sampled_from(["left", "over"]), REQUESTS),
        st.tuples(st.just("chunk"), st.tuples(REQUESTS, TOKENS)),
        st.tuples(st.just("submitted"), st.tuples(REQUESTS, TOKENS)),
    ),
    max_size=40,
)


def encode(carry: Carry, step: int, rows: Rows) -> list[Row]:
    return carry.encode(step, Step.of(rows))


def encode_answers(carry: Carry, step: int, rows: list[tuple[int, int, str | None]]) -> list[Answered]:
    words = {r: word for r, _, word in rows if word is not None}
    return carry.encode_answers(step, [r for r, *_ in rows], [n for _, n, _ in rows], words)


@settings(max_examples=EXAMPLES)
@given(st.lists(TOKENS, max_size=7), EVENTS)
def test_decoding_gives_back_what_was_encoded(prompts: list[int], events: list[tuple[str, object]]) -> None:
    there, back = carry(*prompts), carry(*prompts)
    steps: dict[int, Rows] = {}
    last: Rows = []
    after: list[int] = []
    number = 0
    for kind, what in events:
        if kind in ("step", "again"):
            rows = (
                [(r, 1, at + tokens, False) for r, tokens, at, _ in last] if kind == "again" else list(what)  # type: ignore[call-overload]
            )
            step_told = Step.of(rows)
            if kind == "again" and what:  # as hooks do: the very list of the step before
                step_told = step_told._replace(computed_tokens=after)
            after = [at + tokens for _, tokens, at, _ in rows]
            told = there.encode(number, step_told, after if what else None)
            assert back.decode(number, told) == [Scheduled(*r) for r in rows]
            steps[number], last = rows, rows
            number += 1
        elif kind in ("output", "expected"):
            step = min(steps, default=-1)
            scheduled = [r for r, *_ in steps.pop(step, ())]
            answers = list(what) if kind == "output" else [(r, 1, None) for r in scheduled]  # type: ignore[call-overload]
            told_answers = encode_answers(there, step, answers)
            by = {r: Answered(r, tokens, word) for r, tokens, word in answers}
            wanted = [by.pop(r, Answered(r, 0)) for r in scheduled] + list(by.values())
            assert back.decode_answers(step, told_answers) == wanted
        else:
            for c in (there, back):
                getattr(c, kind)(*(what if isinstance(what, tuple) else (what,)))
        assert there.oldest_in_flight() == back.oldest_in_flight()


def carry(*prompts: int) -> Carry:
    c = Carry()
    for request, tokens in enumerate(prompts):
        c.submitted(request, tokens)
    return c


def test_decoding_goes_on_without_rows() -> None:
    c = carry(5, 3)
    rows = encode(c, 0, [(0, 5, 0, True), (1, 3, 0, True)])
    assert [tuple(r) for r in rows] == [("prefill", 0, 5, 0), ("prefill", 1, 3, 0)]
    assert encode_answers(c, 0, [(0, 1, None), (1, 1, None)]) == []
    assert [r.kind for r in encode(c, 1, [(0, 1, 5, False), (1, 1, 3, False)])] == ["decode", "decode"]
    for step in range(2, 10):
        assert encode_answers(c, step - 1, [(0, 1, None), (1, 1, None)]) == []
        assert encode(c, step, [(0, 1, 4 + step, False), (1, 1, 2 + step, False)]) == []


def test_a_prefill_in_chunks_gives_no_token_before_its_end() -> None:
    c = carry(10)
    encode(c, 0, [(0, 6, 0, True)])
    assert encode_answers(c, 0, []) == []
    encode(c, 1, [(0, 4, 6, True)])
    assert encode_answers(c, 1, []) == [Answered(0, 0)], "a token was due"


def test_lengths_are_those_of_the_requests_that_answer() -> None:
    c = carry(1, 1, 9)
    encode(c, 0, [(0, 1, 0, True), (1, 1, 0, True)])
    assert encode_answers(c, 0, [(0, 1, None), (1, 1, None)]) == []
    encode(c, 1, [(0, 1, 1, False), (2, 2, 0, True)])
    assert encode_answers(c, 1, [(0, 1, None), (2, 0, None)]) == [], "the second has a longer prompt"
    c.chunk(0, 4)  # of a session: 3 tokens were known, now 7
    encode(c, 2, [(0, 4, 2, True), (2, 2, 2, True)])
    assert encode_answers(c, 2, [(0, 0, None), (2, 0, None)]) == []
    encode(c, 3, [(0, 1, 6, True), (2, 5, 4, True)])
    assert encode_answers(c, 3, [(0, 1, None), (2, 1, None)]) == []


def test_who_left_needs_no_row_and_who_is_left_out_does() -> None:
    for tell, kinds in (("left", []), ("over", []), ("", ["skip"])):
        c = carry(1, 1)
        encode(c, 0, [(0, 1, 1, False), (1, 1, 1, False)])
        if tell:
            getattr(c, tell)(0)
        assert [r.kind for r in encode(c, 1, [(1, 1, 2, False)])] == kinds


def test_another_order_is_told_whole() -> None:
    c = carry(1, 1, 1)
    encode(c, 0, [(0, 1, 1, False), (1, 1, 1, False)])
    rows = encode(c, 1, [(1, 1, 2, False), (0, 1, 2, False), (2, 1, 0, True)])
    assert [(r.kind, r.request) for r in rows] == [("prefill", 2), ("order", 1), ("order", 0), ("order", 2)]


def test_answers_of_steps_in_flight_are_foreseen_one_after_the_other() -> None:
    """Two steps in flight: the second was scheduled before the first token was known."""
    c = carry(4)
    encode(c, 0, [(0, 4, 0, True)])
    encode(c, 1, [(0, 1, 4, False)])
    encode(c, 2, [(0, 1, 5, False)])
    for step in range(3):
        assert encode_answers(c, step, [(0, 1, None)]) == []


@pytest.mark.parametrize("again", [(0, 1, 1, False), (1, 1, 1, False), (2, 1, 0, True)])
def test_a_request_that_stands_twice_in_a_step_is_refused(again: tuple[int, int, int, bool]) -> None:
    c = carry(1, 1, 1)
    encode(c, 0, [(0, 1, 0, False), (1, 1, 0, False)])
    with pytest.raises(ValueError, match="twice"):
        encode(c, 1, [again, (0, 1, 1, False), again])


def test_memory_does_not_grow_with_requests() -> None:
    c = Carry()
    for r in range(5000):
        c.submitted(r, 1)
        encode(c, r, [(r, 1, 0, True)])
        encode_answers(c, r, [(r, 1, "stop")])
        c.over(r)
    assert all(len(v) < 10 for v in vars(c).values() if hasattr(v, "__len__"))
    for step in range(20_000):
        encode(c, step, [(0, 1, step, False)])
    assert len(c._flying) <= 4096
