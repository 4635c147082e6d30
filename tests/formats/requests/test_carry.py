"""What is written of a step and its output gives it back, whatever happened."""

from __future__ import annotations

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from tapedelay.formats.requests.carry import Answered, Carry, Scheduled

EXAMPLES = 3000 if os.environ.get("TAPEDELAY_SOAK") else 150
REQUESTS = st.integers(0, 5)
TOKENS = st.integers(0, 4)
WORDS = st.sampled_from([None, None, None, "stop", "length"])
STEP = st.lists(st.tuples(REQUESTS, TOKENS, st.integers(0, 9), st.booleans()), unique_by=lambda s: s[0])
OUTPUT = st.lists(st.tuples(REQUESTS, TOKENS, WORDS), unique_by=lambda s: s[0])
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), STEP),
        st.tuples(st.just("again"), st.booleans()),  # the usual: everybody decodes one token more
        st.tuples(st.just("output"), OUTPUT),
        st.tuples(st.just("expected"), st.none()),
        st.tuples(st.sampled_from(["left", "over"]), REQUESTS),
        st.tuples(st.just("chunk"), st.tuples(REQUESTS, TOKENS)),
        st.tuples(st.just("submitted"), st.tuples(REQUESTS, TOKENS)),
    ),
    max_size=40,
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(EVENTS)
def test_decoding_gives_back_what_was_encoded(events: list[tuple[str, object]]) -> None:
    there, back = Carry(), Carry()
    steps: dict[int, list[tuple[int, int, int, bool]]] = {}
    last: list[tuple[int, int, int, bool]] = []
    number = 0
    for kind, what in events:
        if kind in ("step", "again"):
            rows = (
                [(r, 1, at + tokens, False) for r, tokens, at, _ in last] if kind == "again" else list(what)  # type: ignore[call-overload]
            )
            told = there.encode(number, rows)
            assert back.decode(number, told) == [Scheduled(*r) for r in rows]
            steps[number], last = rows, rows
            number += 1
        elif kind in ("output", "expected"):
            step = min(steps, default=-1)
            scheduled = [r for r, *_ in steps.pop(step, ())]
            answers = list(what) if kind == "output" else [(r, 1, None) for r in scheduled]  # type: ignore[call-overload]
            told_answers = there.encode_answers(step, answers)
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
    rows = c.encode(0, [(0, 5, 0, True), (1, 3, 0, True)])
    assert [tuple(r) for r in rows] == [("prefill", 0, 5, 0), ("prefill", 1, 3, 0)]
    assert c.encode_answers(0, [(0, 1, None), (1, 1, None)]) == []
    assert [r.kind for r in c.encode(1, [(0, 1, 5, False), (1, 1, 3, False)])] == ["decode", "decode"]
    for step in range(2, 10):
        assert c.encode_answers(step - 1, [(0, 1, None), (1, 1, None)]) == []
        assert c.encode(step, [(0, 1, 4 + step, False), (1, 1, 2 + step, False)]) == []


def test_a_prefill_in_chunks_gives_no_token_before_its_end() -> None:
    c = carry(10)
    c.encode(0, [(0, 6, 0, True)])
    assert c.encode_answers(0, []) == []
    c.encode(1, [(0, 4, 6, True)])
    assert c.encode_answers(1, []) == [Answered(0, 0)], "a token was due"


def test_who_left_needs_no_row_and_who_is_left_out_does() -> None:
    for tell, kinds in (("left", []), ("over", []), ("", ["skip"])):
        c = carry(1, 1)
        c.encode(0, [(0, 1, 1, False), (1, 1, 1, False)])
        if tell:
            getattr(c, tell)(0)
        assert [r.kind for r in c.encode(1, [(1, 1, 2, False)])] == kinds


def test_another_order_is_told_whole() -> None:
    c = carry(1, 1, 1)
    c.encode(0, [(0, 1, 1, False), (1, 1, 1, False)])
    rows = c.encode(1, [(1, 1, 2, False), (0, 1, 2, False), (2, 1, 0, True)])
    assert [(r.kind, r.request) for r in rows] == [("prefill", 2), ("order", 1), ("order", 0), ("order", 2)]


def test_answers_of_steps_in_flight_are_foreseen_one_after_the_other() -> None:
    """Two steps in flight: the second was scheduled before the first token was known."""
    c = carry(4)
    c.encode(0, [(0, 4, 0, True)])
    c.encode(1, [(0, 1, 4, False)])
    c.encode(2, [(0, 1, 5, False)])
    for step in range(3):
        assert c.encode_answers(step, [(0, 1, None)]) == []


def test_memory_does_not_grow_with_requests() -> None:
    c = Carry()
    for r in range(5000):
        c.submitted(r, 1)
        c.encode(r, [(r, 1, 0, True)])
        c.encode_answers(r, [(r, 1, "stop")])
        c.over(r)
    assert all(len(v) < 10 for v in vars(c).values() if hasattr(v, "__len__"))
    for step in range(20_000):
        c.encode(step, [(0, 1, step, False)])
    assert len(c._flying) <= 4096
