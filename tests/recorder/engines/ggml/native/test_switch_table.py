"""The plugin's table of switches is that of `formats.switches`, and takes values in the same way."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tapedelay.formats.switches import SWITCHES, word_of

HERE = Path(__file__).parent
NATIVE = Path(__file__).parents[5] / "recorder/engines/ggml/native"

VALUES = (
    "",
    "0",
    "1",
    "2",
    "3",
    "4",
    "-0",
    "-1",
    "+1",
    "01",
    "10",
    "1x",
    " 1",
    "\t0",
    "x",
    "on",
    "off",
    "ON",
    "true",
    "True",
    "tRUE",
    "truer",
    "t",
    "y",
    "yes",
    "no",
    "false",
    "GROUP",
    "PARALLEL",
    "group",
    "/home/somebody/secret",
    "1" * 500,
    "0" * 63 + "1",
    "0" * 64 + "1",
    " " * 70 + "1",
    "é",
    "1=off",
    "other",
    "99999999999999999999",
    "-99999999999999999999",
)


@pytest.fixture(scope="module")
def driver(compiled: Callable[..., Path]) -> Path:
    flags = ["-std=c++17", "-fsanitize=undefined", "-fno-exceptions", "-fno-rtti", f"-I{NATIVE}"]
    return compiled("switch_cases", *flags, HERE / "switch_cases.cpp", NATIVE / "switches.cpp")


def words(driver: Path, pairs: list[tuple[str, str]]) -> list[str]:
    arguments = [part for pair in pairs for part in pair]
    run = subprocess.run([driver, *arguments], capture_output=True, text=True, check=True)
    assert run.stderr == ""
    return run.stdout.split("\n")[:-1]


def test_the_names_are_those_of_the_table(driver: Path) -> None:
    assert words(driver, []) == [s.name for s in SWITCHES]


def test_each_value_gets_the_same_word(driver: Path) -> None:
    pairs = [(s.name, v) for s in SWITCHES for v in VALUES]
    assert words(driver, pairs) == [word_of(*pair) for pair in pairs]
    assert {w for s in SWITCHES for w in s.states} == set(words(driver, pairs))


def test_random_values_get_the_same_word(driver: Path) -> None:
    draw = random.Random(1)
    pairs = [
        (draw.choice(SWITCHES).name, "".join(draw.choices(" +-0123\tyesontruf", k=draw.randrange(5))))
        for _ in range(2_000)
    ]
    assert words(driver, pairs) == [word_of(*pair) for pair in pairs]
