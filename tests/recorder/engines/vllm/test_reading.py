"""What is read of vLLM's steps and outputs is the same however little of it is looked at."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapedelay.recorder.engines.vllm.reading import Scheduled, StepReader, answered_in, filled_in

KEYS = "abc"
Requests = dict[str, SimpleNamespace]


def request(prompt: int) -> SimpleNamespace:
    return SimpleNamespace(num_prompt_tokens=prompt, num_computed_tokens=0)


def scheduled(requests: Requests, rows: list[tuple[str, int]]) -> SimpleNamespace:
    """Make a step as vLLM's scheduler does: what was computed before it is told, then it counts."""
    cached = SimpleNamespace(
        req_ids=[key for key, _ in rows],
        num_computed_tokens=[requests[key].num_computed_tokens for key, _ in rows],
    )
    for key, n in rows:
        requests[key].num_computed_tokens += n
    return SimpleNamespace(num_scheduled_tokens=dict(rows), scheduled_cached_reqs=cached)


def by_row(requests: Requests, rows: list[tuple[str, int]]) -> Scheduled:
    """Read the same request by request, after the step."""
    after = [requests[key].num_computed_tokens for key, _ in rows]
    return Scheduled(
        [key for key, _ in rows],
        [n for _, n in rows],
        [at - n for at, (_, n) in zip(after, rows, strict=True)],
        [n != 1 or at <= requests[key].num_prompt_tokens for at, (key, n) in zip(after, rows, strict=True)],
        after,
    )


DECODES = st.tuples(st.just("decode"), st.just(list(KEYS)))
RARE = st.one_of(
    st.tuples(st.just("step"), st.lists(st.tuples(st.sampled_from(KEYS), st.integers(1, 3)))),
    st.tuples(st.just("decode"), st.permutations(KEYS)),
    st.tuples(st.sampled_from(["preempt", "cached", "chunk", "new"]), st.sampled_from(KEYS)),
)
EVENTS = st.lists(st.one_of(DECODES, DECODES, DECODES, RARE), min_size=10, max_size=30)


@given(EVENTS, st.integers(1, 4))
def test_a_step_is_read_as_its_requests_say(events: list[tuple[str, object]], prompt: int) -> None:
    requests = {key: request(prompt) for key in KEYS}
    reader = StepReader(requests)
    for kind, what in events:
        if kind in ("step", "decode"):
            rows = list(dict(what).items()) if kind == "step" else [(key, 1) for key in what]  # type: ignore[call-overload, attr-defined]
            output = scheduled(requests, rows)
            assert reader.read(output) == by_row(requests, rows)
            continue
        key = str(what)
        one = requests[key]
        if kind == "preempt":
            one.num_computed_tokens = 0
        elif kind == "cached":  # resumed with what lies in the cache
            one.num_computed_tokens = max(0, one.num_computed_tokens - 1)
        elif kind == "chunk":
            one.num_prompt_tokens = one.num_computed_tokens + 2
            reader.changed()
        else:
            requests[key] = request(prompt + 3)
            requests[key].num_computed_tokens = one.num_computed_tokens  # the whole of it is cached
            reader.changed()


def test_a_step_that_goes_on_like_the_last_one_is_read_without_its_requests() -> None:
    requests = {key: request(2) for key in KEYS}
    reader = StepReader(requests)
    for n in (2, 1):
        reader.read(scheduled(requests, [(key, n) for key in KEYS]))
    output = scheduled(requests, [(key, 1) for key in KEYS])
    requests.clear()
    assert reader.read(output) == Scheduled(list(KEYS), [1] * 3, [3] * 3, [False] * 3, [4] * 3)


def answered(
    given_tokens: dict[str, list[int]], shown: dict[str, list[int]], reasons: dict[str, str]
) -> tuple[list[str], list[int], dict[str, str], list[tuple[str, int]]]:
    outputs = [
        SimpleNamespace(
            request_id=key,
            new_token_ids=tokens,
            finish_reason=SimpleNamespace(name=reasons[key].upper()) if key in reasons else None,
        )
        for key, tokens in shown.items()
    ]
    model = SimpleNamespace(
        req_id_to_index={key: i for i, key in enumerate(given_tokens)},
        sampled_token_ids=list(given_tokens.values()),
    )
    step = SimpleNamespace(num_scheduled_tokens=dict.fromkeys(KEYS, 1))
    return tuple(answered_in(step, model, {0: SimpleNamespace(outputs=outputs)}))  # type: ignore[return-value]


@pytest.mark.parametrize("order", ["abc", "cab"])
def test_an_output_says_what_each_got_and_where_another_number_was_shown(order: str) -> None:
    one = {key: [7] for key in order}
    assert answered(one, {key: one[key] for key in KEYS}, {}) == (list(KEYS), [1, 1, 1], {}, [])
    equal_lists = {key: [7] for key in KEYS}
    assert answered(one, equal_lists, {"b": "stop"}) == (list(KEYS), [1, 1, 1], {"b": "stop"}, [])
    two = {**one, "b": [7, 8]}
    assert answered(two, {**one, "b": [7]}, {})[1:] == ([1, 2, 1], {}, [("b", 1)]), "one was dropped"
    assert answered(one, {"a": [7], "c": [7]}, {})[3] == [("b", 0)], "nothing was shown of it"
    gone = answered({"a": [7], "c": [7]}, {"a": [7], "c": [7]}, {})
    assert gone[1:] == ([1, 0, 1], {}, []), "the model had no row for it"
    assert answered({}, {}, {})[1:] == ([0, 0, 0], {}, []), "it did not run"


class Row(list[int]):
    """As an array's: rows of several tokens are not compared."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array is ambiguous")

    __hash__ = None


def test_tokens_are_counted_and_not_compared() -> None:
    assert answered({key: Row([7, 8]) for key in KEYS}, {key: Row([7, 8]) for key in KEYS}, {})[1:] == (
        [2, 2, 2],
        {},
        [],
    )


def test_blocks_that_became_full_are_read_however_they_are_given() -> None:
    named = {"request": "r", "blocks": [], "num_cached_blocks": 1, "num_full_blocks": 3, "block_size": 16}
    assert filled_in((), named | {"block_mask": None}) == ("r", 48)
    assert filled_in(tuple(named.values()), {}) == ("r", 48)
    with pytest.raises(KeyError):
        filled_in((), {"req": "r"})


def test_who_ends_without_being_scheduled_stands_behind_the_others() -> None:
    one = {key: [7] for key in KEYS}
    shown: dict[str, list[int]] = {**one, "z": []}
    assert answered(one, shown, {"z": "error"}) == ([*KEYS, "z"], [1, 1, 1, 0], {"z": "error"}, [])
