"""Synthetic tokens: the same everywhere, equal exactly where a prefix says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapedelay.formats.errors import UsageError
from tapedelay.replayer.rerun.budget import budget_of
from tapedelay.replayer.rerun.plan import Facts, random_recipes
from tapedelay.replayer.rerun.recipe import Recipe
from tapedelay.replayer.rerun.tokens import FIRST, LAST, Tokens


@given(st.integers(0, 10_000), st.integers(0, 1_000_000))
def test_a_token_fits_and_ends_nothing(request: int, position: int) -> None:
    assert FIRST <= Tokens()(request, position) <= LAST


def test_tokens_are_the_same_in_every_version() -> None:
    """A case that was written before must run alike: these numbers never change."""
    tokens = Tokens([(2, 1, 0, 4), (1, 0, 0, 2)])
    assert [tokens(0, p) for p in range(3)] == PINNED
    assert tokens(2, 1) == tokens(1, 1) == tokens(0, 1)
    assert tokens(2, 3) == tokens(1, 3) != tokens(0, 3)
    assert tokens(2, 4) != tokens(1, 4)


def test_tokens_differ_elsewhere() -> None:
    tokens = Tokens()
    seen = {tokens(r, p) for r in range(200) for p in range(200)}
    assert len(seen) > 39_990


def test_a_prefix_of_itself_or_of_a_later_request_is_none() -> None:
    tokens = Tokens([(1, 1, 0, 9), (1, 2, 0, 9)])
    assert tokens(1, 3) == Tokens()(1, 3)


@pytest.mark.parametrize(
    ("text", "seconds", "runs"),
    [("60s", 60, None), ("5m", 300, None), ("1h", 3600, None), ("0.5s", 0.5, None), ("500 runs", None, 500),
     ("7", None, 7), ("1 run", None, 1)],
)  # fmt: skip
def test_budgets(text: str, seconds: float | None, runs: int | None) -> None:
    budget = budget_of(text)
    assert (budget.seconds, budget.runs) == (seconds, runs)
    assert budget_of(budget.text()) == budget


@pytest.mark.parametrize("text", ["", "s", "-1s", "0", "1.5", "1d", "1e9s", "99999999999"])
def test_no_budgets(text: str) -> None:
    with pytest.raises(UsageError):
        budget_of(text)


FACTS = Facts((0, 1, 2), (1,), frozenset({"abort", "pause", "next_chunk", "decode_only"}), (("units", 3),), 2)


@given(st.integers(0, 2**40))
def test_a_seed_gives_the_same_recipes(seed: int) -> None:
    one, other = (random_recipes(FACTS, seed) for _ in range(2))
    for _ in range(5):
        recipe = next(one)
        assert recipe == next(other)
        assert Recipe.from_dict(recipe.as_dict()) == recipe
        assert {a.action for a in recipe.aims} <= {
            "abort", "abort_batch", "abort_all", "abort_any", "pause", "chunk", "chunk_last", "decode_only",
        }  # fmt: skip


PINNED = [493735343, 15173298, 361663108]
