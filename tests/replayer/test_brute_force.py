"""`check` against a second checker that shares nothing with it, on thousands of random tiny tapes."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tapedelay.formats.errors import InvalidTape
from tapedelay.formats.tape import Tape
from tapedelay.replayer.check import check_tape, judge
from tapedelay.replayer.check.faults import FAULTS

from . import brute_force
from .brute_force import BruteForce, Found
from .random_tapes import BYTES, random_tape, tapes

pytestmark = pytest.mark.counted
SOAK = bool(os.environ.get("TAPEDELAY_SOAK"))
_SETTINGS: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}


def checked(tape: Tape) -> Found:
    """Return what `check` finds, in the shape of the brute force."""
    found = Found()
    for f in check_tape(tape).findings:
        key = (f.ops[0].op, f.ops[-1].op, f.fault, f.buffer)
        if f.kind == "deadlock":
            found.deadlocks.append(tuple(o.op for o in f.ops))
        elif f.kind == "race":
            assert key not in found.races, "a pair is reported twice"
            assert f.begin is not None
            assert f.end is not None
            found.races[key] = (f.verdict, f.begin, f.end)
        elif found.lifetimes.get(key) not in ("lifetime", "unknown"):
            found.lifetimes[key] = f.verdict
    found.deadlocks.sort()
    return found


def agree(tape: Tape) -> Found:
    """Compare the two checkers and return what they found."""
    other = BruteForce(tape)
    if other.refused():
        with pytest.raises(InvalidTape, match="part of itself"):
            check_tape(tape)
        return Found()
    expected, got = other.run(), checked(tape)
    assert got.races == expected.races
    assert got.lifetimes == expected.lifetimes
    assert got.deadlocks == expected.deadlocks
    return got


def seeded(seed: int) -> Tape:
    return random_tape(random.Random(seed).randbytes(BYTES))


@given(tape=tapes())
@settings(max_examples=400, **_SETTINGS)
def test_pairs_are_those_of_the_brute_force(tape: Tape) -> None:
    agree(tape)


def test_pairs_are_the_same_with_tables_of_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    for size in ("BLOCK", "SETS", "TRIED", "EVERY"):
        monkeypatch.setattr(judge, size, 1)
    seen: Counter[str] = Counter()
    for seed in range(1500):
        tape = seeded(seed)
        found = agree(tape)
        seen.update(v for v, _, _ in found.races.values())
        seen.update(key[2] for key in found.races)
        seen.update(key[2] for key in found.lifetimes)
        seen.update(f"lifetime {v}" for v in found.lifetimes.values())
        seen["deadlock"] += bool(found.deadlocks)
        seen["nothing"] += not (found.races or found.lifetimes or found.deadlocks)
        seen.update(set(tape.table("ops")["kind"].to_pylist()))
    # The comparison would be worth little on tapes where nothing happens.
    for what, least in {
        "race": 300, "possible": 300, "unknown": 50, "RAW": 100, "WAR": 50, "WAW": 100, "deadlock": 150,
        "nothing": 200, "lifetime lifetime": 100, "lifetime possible": 50, "lifetime unknown": 3,
        **dict.fromkeys(FAULTS[3:], 10),
        **dict.fromkeys(("host", "copy", "sync", "alloc", "free", "destroy", "semsig", "semwait"), 150),
        **dict.fromkeys(("kernel", "record", "wait", "wait_any", "coll"), 150),
    }.items():  # fmt: skip
        assert seen[what] >= least, (what, seen)


@pytest.mark.soak
@given(tape=tapes())
@settings(max_examples=30_000 if SOAK else 10, **{**_SETTINGS, "derandomize": False})
def test_pairs_are_those_of_the_brute_force_soak(tape: Tape) -> None:
    agree(tape)


# Each takes one rule away from the brute force; the comparison has to notice, or the tapes do not show it.


def _no_records(self: BruteForce, i: int, sync: int) -> list[int]:
    """Drop record -> wait."""
    return []


def _oldest_record(original: Callable[..., list[int]]) -> Callable[..., list[int]]:
    return lambda self, i, sync: original(self, i, sync)[::-1]


def _no_semaphores(original: Callable[..., list[int]]) -> Callable[..., list[int]]:
    return lambda self, i: [] if self.ops[i]["kind"] == "semwait" else original(self, i)


def _all_in_order(original: Callable[..., bool]) -> Callable[..., bool]:
    return lambda self, a, b: self.ops[a]["queue"] == self.ops[b]["queue"] or original(self, a, b)


def _no_joint_nodes(original: Callable[..., Any]) -> Callable[..., Any]:
    def direct(self: BruteForce) -> Any:
        self.group = self.groups = list(range(self.n))
        of = [None if o["parent"] is None else self.row_of[o["parent"]] for o in self.ops]
        self.parents = {i: set() if p is None or p == i else {p} for i, p in enumerate(of)}
        return original(self)

    return direct


def _no_blocking_copies(original: Callable[..., bool]) -> Callable[..., bool]:
    return lambda self, i: self.ops[i]["kind"] != "copy" and original(self, i)


def _any_is_all(original: Callable[..., list[int]]) -> Callable[..., list[int]]:
    return lambda self, i: [*original(self, i), *self.any_of.pop(self.group[i], ())]


def _hosts_only(original: Callable[..., Any]) -> Callable[..., Any]:
    def assumed(self: BruteForce) -> Any:
        self.waits_seen = {q: w for q, w in self.waits_seen.items() if self.host(q)}
        return original(self)

    return assumed


def _all_whole(original: Callable[..., None]) -> Callable[..., None]:
    return lambda self, found, end, uses, name, whole, faults: original(
        self, found, end, uses, name, True, faults
    )


def _without_order(original: Callable[..., None]) -> Callable[..., None]:
    def ends(self: Any, *arguments: Any) -> None:
        self.comes_before = lambda *_: False
        original(self, *arguments)
        del self.comes_before

    return ends


MUTATIONS: dict[str, tuple[Any, str, Any]] = {
    "event edges dropped": (BruteForce, "records_before", _no_records),
    "oldest record instead of newest": (
        BruteForce,
        "records_before",
        _oldest_record(BruteForce.records_before),
    ),
    "semaphores dropped": (BruteForce, "sources", _no_semaphores(BruteForce.sources)),
    "out-of-order queues taken for ordered": (BruteForce, "orders", _all_in_order(BruteForce.orders)),
    "collectives not joined": (BruteForce, "direct", _no_joint_nodes(BruteForce.direct)),
    "blocking copies not blocking": (
        BruteForce,
        "blocks_issuer",
        _no_blocking_copies(BruteForce.blocks_issuer),
    ),
    "wait for any waits for all": (BruteForce, "sources", _any_is_all(BruteForce.sources)),
    "no optimistic pass": (BruteForce, "assumed", lambda self: set()),
    "waits of device queues taken for seen": (BruteForce, "assumed", _hosts_only(BruteForce.assumed)),
    "a later pair hides a more certain one": (brute_force, "surer", lambda one, other: one or other),
    "children race with their parent": (
        BruteForce,
        "kin",
        lambda self, a, b: self.group[a] == self.group[b],
    ),
    "sub-allocations freed in flight": (BruteForce, "ends", _all_whole(BruteForce.ends)),
    "uses before the end are faults": (BruteForce, "ends", _without_order(BruteForce.ends)),
}


@pytest.mark.parametrize("name", list(MUTATIONS))
def test_a_broken_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, broken = MUTATIONS[name]
    monkeypatch.setattr(owner, attribute, broken)
    for seed in range(900, 4000):  # where all are noticed soon
        try:
            agree(seeded(seed))
        except AssertionError:
            return
    pytest.fail("thousands of tapes agree although a rule is missing")
