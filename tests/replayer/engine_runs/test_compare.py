"""Where two values differ, to the last bit, and what a function of the user may say instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapedelay.formats.errors import UsageError
from tapedelay.replayer.engine_runs.compare import difference

BOTH = "on synchronous devices, {} under the plan"


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ([1, 2, 3], [1, 9, 3], "[1]: 2 on synchronous devices, 9 under the plan"),
        ([1, 2], [1, 2, 3], "length: 2 on synchronous devices, 3 under the plan"),
        ({"t": [1]}, {"t": [2]}, "['t'][0]: 1 on synchronous devices, 2 under the plan"),
        ({"a": 1}, {"b": 1}, "keys: ['a'] on synchronous devices, ['b'] under the plan"),
        (1, 1.0, "value: 1 (int) on synchronous devices, 1.0 (float) under the plan"),
        (0.0, -0.0, "value: 0.0 on synchronous devices, -0.0 under the plan"),
        (0.1, 0.1 + 2**-56, "value: 0.1 on synchronous devices, 0.10000000000000002 under the plan"),
        (b"abcd", b"abXd", "from byte 2 on: b'abcd' on synchronous devices, b'abXd' under the plan"),
        ("same", "same and more", "from character 4 on: 'same' on"),
    ],
)
def test_the_first_difference_is_named(a: Any, b: Any, said: str) -> None:
    assert said in difference(a, b)
    assert difference(a, a) == difference(b, b) == ""


def test_arrays_say_how_much_differs() -> None:
    a = np.arange(12, dtype="<f4").reshape(3, 4)
    b = a.copy()
    b[1, 2] += 0.5
    b[2, 3] -= 2
    said = difference({"logits": a}, {"logits": b})
    assert said.startswith("['logits'][1, 2]: ")
    assert "2 of 12 elements differ, by 2 at most" in said
    assert "float64" in difference(a, a.astype("f8"))
    assert "(4, 3)" in difference(a, a.reshape(4, 3))
    nan = np.array([np.nan, 1], "<f4")
    assert difference(nan, nan.copy()) == ""
    assert difference(np.array([0.0]), np.array([-0.0])) != ""
    assert "1 of 1 elements" in difference(np.array(["a"]), np.array(["b"]))


def test_nan_is_itself() -> None:
    assert difference([float("nan")], [float("nan")]) == ""


def test_a_function_of_the_user_decides() -> None:
    def close(a: float, b: float) -> Any:
        return bool(abs(a - b) < 0.1)

    assert difference(1.0, 1.01, close) == ""
    assert difference(1.0, 2.0, close).startswith("value: 1.0 on")
    assert difference(1.0, 1.0, lambda a, b: False) != ""
    assert difference(1, 2, lambda a, b: None) == ""
    assert difference(1, 2, lambda a, b: "they are two") == "they are two"
    assert difference(1, 2, lambda a, b: "") == ""
    arrays = (np.array([1.0]), np.array([2.0]))
    near: Any = lambda a, b: (abs(a - b) < 3).all()  # noqa: E731
    far: Any = lambda a, b: (abs(a - b) < 0.3).all()  # noqa: E731
    assert difference(*arrays, near) == ""
    assert difference(*arrays, far) != ""


def test_a_function_that_fails_is_the_callers_error() -> None:
    with pytest.raises(UsageError, match="the comparison failed: ZeroDivisionError"):
        difference(1, 2, lambda a, b: bool(1 / 0))
    with pytest.raises(UsageError, match="the comparison failed: ValueError"):
        difference(1, 2, lambda a, b: np.array([1, 2]))  # type: ignore[arg-type, return-value]


def test_where_the_values_come_from_can_be_said() -> None:
    assert difference([1], [2], runs=("before", "after")) == "[0]: 1 before, 2 after"
    told = difference([1], [2], lambda a, b: False, ("before", "after"))
    assert told == "[0]: 1 before, 2 after"
