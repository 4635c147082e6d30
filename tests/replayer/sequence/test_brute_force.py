"""`Judge` against a second implementation that shares nothing with it, on random sequences."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from tapedelay.formats.sequence import INVARIANTS, Command, parse, print_sequence, read
from tapedelay.formats.sequence.model import Sequence
from tapedelay.replayer.sequence import Judge, judge

from .brute_force import broken
from .random_sequences import commands, random_commands

pytestmark = pytest.mark.counted
SOAK = bool(os.environ.get("TAPEDELAY_SOAK"))
COUNT = 30_000 if SOAK else 1_500
CORPUS = Path(__file__).parents[2] / "corpus"


def judged(sequence: list[Command]) -> list[tuple[int, str]]:
    """Return what `Judge` finds, in the shape of the brute force."""
    found = [(v.at, v.invariant) for v in judge(sequence)]
    assert len(set(found)) == len(found), "an invariant is reported twice for one command"
    return found


@settings(
    max_examples=1_000 if SOAK else 150,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(commands())
def test_they_agree(sequence: list[Command]) -> None:
    assert judged(sequence) == broken(sequence)
    made = Sequence.of(sequence, [v.claim() for v in judge(sequence)])
    assert parse(print_sequence(made)) == made


def test_they_agree_on_many() -> None:
    """On thousands from seeds; each invariant is broken often, and often nothing is."""
    seen: Counter[str] = Counter()
    for seed in range(COUNT):
        sequence = random_commands(seed)
        found = judged(sequence)
        assert found == broken(sequence), (seed, sequence)
        seen.update({invariant for _, invariant in found} or {"clean"})
    least = COUNT // 200
    assert {name: seen[name] for name in (*INVARIANTS, "clean") if seen[name] < least} == {}


@pytest.mark.parametrize("folder", ["seq", "seq-own"])
def test_they_agree_on_the_corpus(folder: str) -> None:
    for file in sorted((CORPUS / folder).glob("*.litmus")):
        for variant in ("buggy", "fixed"):
            sequence = read(file).commands(variant)
            assert judged(sequence) == broken(sequence), (file.name, variant)


def _free_for_all(judge: Judge, args: tuple[str, ...]) -> None:
    for unit in args[1:]:
        judge._owners.pop(unit, None)


def _retire_all(judge: Judge, args: tuple[str, ...]) -> None:
    judge._steps.clear()
    judge._uses.clear()


def _alloc_keeps_content(judge: Judge, args: tuple[str, ...]) -> None:
    filled = set(judge._filled)
    Judge._alloc(judge, args)
    judge._filled |= filled


def _launch_is_no_progress(judge: Judge, args: tuple[str, ...]) -> None:
    passes = judge._passes
    Judge._launch(judge, args)
    judge._passes = passes


def _arrive_forgets_nothing(judge: Judge, args: tuple[str, ...]) -> None:
    judge._live[args[0]] = None


def _get_leaves_it(judge: Judge, args: tuple[str, ...]) -> None:
    mail = dict(judge._mail)
    Judge._get(judge, args)
    judge._mail = mail


def _give_whatever(judge: Judge, args: tuple[str, ...]) -> None:
    judge._taken.get(args[0], {}).clear()


def _dec_stops_at_zero(judge: Judge, args: tuple[str, ...]) -> None:
    Judge._dec(judge, args)
    judge._counters[args[0]] = max(judge._counters[args[0]], 0)


@pytest.mark.parametrize(
    ("verb", "wrong"),
    [
        ("free", _free_for_all),
        ("retire", _retire_all),
        ("alloc", _alloc_keeps_content),
        ("launch", _launch_is_no_progress),
        ("arrive", _arrive_forgets_nothing),
        ("get", _get_leaves_it),
        ("give", _give_whatever),
        ("dec", _dec_stops_at_zero),
    ],
)
def test_a_wrong_judge_would_be_noticed(verb: str, wrong: Callable[[Judge, tuple[str, ...]], None]) -> None:
    """A judge that keeps its books a little wrong differs from the brute force on some seed."""
    for seed in range(COUNT):
        sequence = random_commands(seed)
        checker = Judge()
        checker._do[verb] = partial(wrong, checker)
        if [(v.at, v.invariant) for c in sequence for v in checker.feed(c)] != broken(sequence):
            return
    pytest.fail("no seed shows the difference")
