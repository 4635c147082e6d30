"""A value goes from one process to another without losing a bit, and what cannot is refused."""

from __future__ import annotations

import enum
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapedelay.replayer.engine_runs.values import NotAValue, decode, encode, is_empty

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=4),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):  # one NaN for all
        return struct.pack("<d", a) == struct.pack("<d", b) or (math.isnan(a) and math.isnan(b))
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


@settings(max_examples=60)
@given(VALUES)
def test_it_comes_back(value: Any) -> None:
    data = encode(value)
    back = decode(data)
    assert same(back, value)
    assert encode(back) == data


@pytest.mark.parametrize("kind", ["<f4", ">f8", "<f2", "u1", "<i8", "?", "<c8", "U3", "M8[ns]"])
def test_arrays_come_back_with_type_and_shape(kind: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(kind)
    value = {"a": array, "empty": array[:0], "one": array[0, 0], "b": b"\0\xff"}
    back = decode(encode(value))
    for name in ("a", "empty"):
        assert back[name].dtype == value[name].dtype
        assert back[name].shape == value[name].shape
        assert back[name].tobytes() == value[name].tobytes()
    assert back["one"] == array[0, 0]
    assert back["b"] == b"\0\xff"


def test_nan_bits_of_an_array_are_kept() -> None:
    array = np.frombuffer(struct.pack("<II", 0x7FC00001, 0xFFC00002), "<f4")
    assert decode(encode(array)).tobytes() == array.tobytes()


def test_what_resembles_plain_values_becomes_one() -> None:
    class Word(enum.StrEnum):
        ONE = "one"

    assert decode(encode([Word.ONE, (1, 2), np.float64(0.5), True, Path("x/y")])) == [
        "one", [1, 2], 0.5, True, "x/y",
    ]  # fmt: skip


def test_the_order_of_keys_is_no_difference() -> None:
    assert encode({"a": 1, "b": 2}) == encode({"b": 2, "a": 1})
    assert encode({"a": 1}) != encode({"a": 2})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "the value is of type object"),
        ([1, {"x": {1, 2}}], r"the value\[1\]\['x'\] is of type set"),
        ({(1, 2): 3}, "a key of type tuple"),
        (np.array([object()]), "is no plain array"),
        (print, "is of type builtin_function_or_method"),
    ],
)
def test_what_is_no_value_is_refused(value: Any, said: str) -> None:
    with pytest.raises(NotAValue, match=said):
        encode(value)


def test_what_is_nested_without_end_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotAValue, match="nested too deeply"):
        encode(value)


def test_damage_is_noticed_or_is_another_value() -> None:
    data = encode({"tokens": [1, 2, 3], "logits": np.arange(5, dtype="<f4"), "raw": b"abc"})
    for cut in range(len(data)):
        with pytest.raises(NotAValue, match="damaged"):
            decode(data[:cut])
    for i in range(len(data)):
        try:
            decode(data[:i] + bytes([data[i] ^ 0x41]) + data[i + 1 :])
        except NotAValue:
            continue


def test_what_holds_nothing() -> None:
    nothing: list[Any] = [None, "", b"", [], {}, np.zeros((0, 4))]
    something: list[Any] = [0, False, " ", b"\0", [0], {"a": None}, np.zeros(1), np.float32(0)]
    assert all(map(is_empty, nothing))
    assert not any(map(is_empty, something))
