"""`check` against a second checker that shares nothing with it, on thousands of random tiny tapes."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tapedelay.formats.edges import columns, declared, resolver, semaphores
from tapedelay.formats.errors import InvalidTape
from tapedelay.formats.tape import Tape
from tapedelay.replayer.check import check_tape, clocks, judge, lifetime, races, ranges, thinning

from .brute_force import BruteForce, Found
from .random_tapes import BYTES, random_tape, tapes

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
@settings(max_examples=1500, **_SETTINGS)
def test_pairs_are_those_of_the_brute_force(tape: Tape) -> None:
    agree(tape)


@pytest.fixture(params=[1, 2])
def tiny_tables(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Let accesses leave the table of recent ones soon, and hold few chains of loose ops for possible."""
    monkeypatch.setattr(races, "_RECENT", request.param)
    monkeypatch.setattr(races, "_PARTS", request.param)
    monkeypatch.setattr(clocks, "_TRIED", request.param)


@pytest.mark.usefixtures("tiny_tables")
def test_pairs_are_the_same_from_the_map_of_older_accesses() -> None:
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
        **dict.fromkeys(lifetime.FAULTS, 10),
        **dict.fromkeys(("host", "copy", "sync", "alloc", "free", "destroy", "semsig", "semwait"), 150),
        **dict.fromkeys(("kernel", "record", "wait", "wait_any", "coll"), 150),
    }.items():  # fmt: skip
        assert seen[what] >= least, (what, seen)


@pytest.mark.soak
@given(tape=tapes())
@settings(max_examples=30_000 if SOAK else 10, **{**_SETTINGS, "derandomize": False})
def test_pairs_are_those_of_the_brute_force_soak(tape: Tape) -> None:
    agree(tape)


# Each takes one rule away from the checker; the comparison has to notice.


def _no_event_edges(self: Any, row: int, newest: dict[int, int]) -> None:
    """Drop record -> wait."""


def _oldest_record(original: Callable[..., None]) -> Callable[..., None]:
    def wait(self: Any, row: int, newest: dict[int, int]) -> None:
        ops = self.ops
        first = {s: r for r in range(row - 1, -1, -1) if ops.kind[r] == "record" for s in [ops.sync[r]]}
        original(self, row, first)

    return wait


def _all_in_order(original: Callable[..., None]) -> Callable[..., None]:
    def init(self: Any, tape: Tape) -> None:
        original(self, tape)
        self.in_order = [True] * self.rows

    return init


def _no_joint_nodes(original: Callable[..., None]) -> Callable[..., None]:
    def units(self: Any) -> None:
        original(self)
        self.members = {}
        self.unit = list(range(self.ops.rows))

    return units


def _union(self: Any, records: tuple[int, ...]) -> list[int]:
    found: list[int] = []
    for r in records:
        clocks._join(found, self._ended.get(r, []))
    return found


def _hosts_only(contract: Any, unseen: set[int]) -> clocks.Assumed:
    return clocks.assumptions(contract, {q for q in unseen if contract.queues.host[q]})


def _latest_only(self: Any) -> Iterator[tuple[Any, int, Any]]:
    for key, best in self._best.items():
        certainty = max((c for c in range(3) if best[c]), key=lambda c: best[c][0])
        yield key, certainty, best[certainty][1]


MUTATIONS: dict[str, tuple[Any, str, Any]] = {
    "event edges dropped": (resolver.Resolver, "_wait", _no_event_edges),
    "oldest record instead of newest": (resolver.Resolver, "_wait", _oldest_record(resolver.Resolver._wait)),
    "semaphores dropped": (resolver, "pair_semaphores", lambda ops: semaphores.Signals()),
    "out-of-order queues taken for ordered": (
        columns.Queues,
        "__init__",
        _all_in_order(columns.Queues.__init__),
    ),
    "collectives not joined": (resolver.Resolver, "_units", _no_joint_nodes(resolver.Resolver._units)),
    "blocking copies not blocking": (declared.Declared, "blocking_sets", lambda self: {}),
    "wait for any waits for all": (clocks.Clocks, "_shared", _union),
    "no optimistic pass": (judge, "assumptions", lambda contract, unseen: None),
    "waits of device queues taken for seen": (judge, "assumptions", _hosts_only),
    "a later pair hides a more certain one": (thinning.Thinned, "__iter__", _latest_only),
    "children race with their parent": (races.Races, "_kin", lambda self, row, unit: False),
    "sub-allocations freed in flight": (ranges.Buffers, "is_whole", lambda self, buffer: True),
    "only definite lifetimes": (lifetime.Lifetimes, "_before", lambda self, row, clock: False),
}


@pytest.mark.parametrize("name", list(MUTATIONS))
def test_a_broken_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, broken = MUTATIONS[name]
    monkeypatch.setattr(owner, attribute, broken)
    for seed in range(4000):
        try:
            agree(seeded(seed))
        except (AssertionError, KeyError, IndexError):
            return
    pytest.fail("thousands of tapes agree although a rule is missing")
