"""Which requests have units in common, by hashes that stay in the engine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tapedelay.recorder.engines.vllm.prefixes import PrefixBook

Range = tuple[int, int, int, int]


def learn(book: PrefixBook, key: str, number: int, hashes: list[str], units: int) -> list[Range]:
    return list(book.learn(key, hashes, units, lambda _: number))


def chained(content: str) -> list[str]:
    """Return hashes like vLLM's: each covers all that comes before."""
    return [content[: i + 1] for i in range(len(content))]


def test_a_beginning_in_common_is_one_range() -> None:
    book = PrefixBook(16)
    assert learn(book, "a", 0, chained("xyz"), 3) == []
    assert learn(book, "b", 1, chained("xyw"), 3) == [(1, 0, 0, 32)]
    assert learn(book, "c", 2, chained("xywv"), 4) == [(2, 0, 0, 32), (2, 1, 32, 48)]


def test_what_is_not_computed_yet_may_be_dropped_again() -> None:
    book = PrefixBook(1)
    learn(book, "a", 0, chained("xyz"), 3)
    assert learn(book, "s", 1, chained("xyz"), 2) == [(1, 0, 0, 2)]
    book.cut("s", 2)
    assert learn(book, "s", 1, chained("xyq"), 3) == []


def test_what_is_known_is_not_told_again() -> None:
    book = PrefixBook(16)
    learn(book, "a", 0, chained("xyz"), 3)
    assert learn(book, "b", 1, chained("xyz"), 1) == [(1, 0, 0, 16)]
    assert learn(book, "b", 1, chained("xyz"), 3) == [(1, 0, 16, 48)]
    assert learn(book, "b", 1, chained("xyz"), 3) == []
    assert learn(book, "b", 1, chained("xyz"), 9) == []


def test_a_request_that_produces_what_a_later_prompt_had() -> None:
    book = PrefixBook(4)
    learn(book, "first", 0, chained("x"), 1)
    learn(book, "second", 1, chained("xy"), 2)
    assert learn(book, "first", 0, chained("xy"), 2) == [(1, 0, 4, 8)]
    assert learn(book, "third", 2, chained("xy"), 2) == [(2, 0, 0, 8)]


def test_content_that_a_session_replaces_is_looked_at_again() -> None:
    book = PrefixBook(4)
    learn(book, "a", 0, chained("xy"), 2)
    learn(book, "s", 1, chained("xq"), 2)
    book.cut("s", 1)
    assert learn(book, "s", 1, chained("xy"), 2) == [(1, 0, 4, 8)]


def test_an_id_that_comes_again_is_another_request() -> None:
    book = PrefixBook(4)
    learn(book, "a", 0, chained("x"), 1)
    book.forget("a")
    assert learn(book, "a", 1, chained("x"), 1) == [(1, 0, 0, 4)]


def test_what_nobody_can_meet_any_more_is_dropped() -> None:
    book = PrefixBook(4, limit=3)
    learn(book, "a", 0, chained("pqrs"), 4)
    assert book.full
    book.prune(lambda h: h in ("p", "pq"))
    assert not book.full
    assert learn(book, "b", 1, chained("pqrs"), 4) == [(1, 0, 0, 8)]


@given(st.lists(st.text("ab", min_size=1, max_size=6), min_size=1, max_size=8), st.data())
def test_two_units_are_equal_exactly_if_their_rows_lead_to_one_request(
    contents: list[str], data: st.DataObject
) -> None:
    book = PrefixBook(1)
    rows: list[tuple[int, int, int, int]] = []
    for _ in range(2 * len(contents)):
        number = data.draw(st.integers(0, len(contents) - 1))
        upto = data.draw(st.integers(1, 6))
        rows += learn(book, str(number), number, chained(contents[number]), upto)
    for number, content in enumerate(contents):
        rows += learn(book, str(number), number, chained(content), len(content))

    def first(number: int, unit: int) -> int:
        for later, earlier, begin, end in rows:
            if later == number and begin <= unit < end:
                assert earlier < later
                return first(earlier, unit)
        return number

    for a, one in enumerate(contents):
        for b, other in enumerate(contents):
            for unit in range(min(len(one), len(other))):
                same = one[: unit + 1] == other[: unit + 1]
                assert (first(a, unit) == first(b, unit)) == same
