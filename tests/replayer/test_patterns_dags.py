"""A random graph without one of its links is caught if, and only if, the link was needed."""

from __future__ import annotations

from collections import Counter

import pytest

from tapedelay.replayer.check import check_tape
from tapedelay.replayer.patterns import Pattern
from tapedelay.replayer.patterns.dags import MEANS, Dag, random_dag

from .brute_force import BruteForce

SHAPES = [(6, 2, None), (8, 3, None), (9, 4, 3), (10, 5, None), (10, 3, 4), (12, 8, None), (12, 6, 5)]
"""Ops, queues, slots."""


def graphs(count: int) -> list[Dag]:
    return [
        random_dag(seed, ops=ops, queues=queues, slots=slots)
        for seed in range(count)
        for ops, queues, slots in SHAPES
    ]


def checked(p: Pattern) -> set[tuple[str, str, str]]:
    """Return the pairs that `check` finds."""
    return {(f.labels[0], f.labels[1], f.hazard) for f in check_tape(p.tape).findings}


def brute(p: Pattern) -> set[tuple[str, str, str]]:
    """Return the pairs that the brute force finds."""
    label = {op: name for name, op in p.litmus.labels().items()}
    found = BruteForce(p.tape, 100).run()
    assert not found.lifetimes
    assert not found.deadlocks
    return {(label[a], label[b], hazard) for a, b, hazard, _ in found.races}


def stated(p: Pattern) -> set[tuple[str, str, str]]:
    """Return the pairs that the pattern states."""
    return {(v.first, v.second, v.hazard) for v in p.verdicts if v.kind != "clean"}


@pytest.mark.parametrize("count", [5, pytest.param(60, marks=pytest.mark.soak)])
def test_a_removed_link_is_caught_if_and_only_if_it_was_needed(count: int) -> None:
    counts: Counter[bool] = Counter()
    for dag in graphs(count):
        assert checked(dag.pattern("edge")) == set()
        for link in dag.links:
            p = dag.pattern("edge", link)
            expected = brute(p)
            assert checked(p) == expected == stated(p), p.name
            counts[bool(expected)] += 1
    assert min(counts.values()) > 40, counts


@pytest.mark.parametrize("count", [3, pytest.param(12, marks=pytest.mark.soak)])
@pytest.mark.parametrize("means", MEANS)
def test_it_does_not_matter_how_links_are_written(means: str, count: int) -> None:
    for seed in range(count):
        dag = random_dag(seed, ops=7, queues=3)
        assert checked(dag.pattern(means)) == set()
        for link in dag.links:
            p = dag.pattern(means, link)
            assert checked(p) == brute(p) == stated(p), p.name


def test_a_link_is_needed_if_nothing_else_orders_two_that_conflict() -> None:
    """The same by reachability alone: the removed link is on every path between two conflicting ops."""
    for dag in graphs(4):
        for link in dag.links:
            masks = dag.before(link)
            conflicts = [
                (u, v)
                for v, later in enumerate(dag.nodes)
                for u, earlier in enumerate(dag.nodes[:v])
                if earlier.writes in (*later.reads, later.writes) or later.writes in earlier.reads
            ]
            unordered = [(u, v) for u, v in conflicts if not masks[v] >> u & 1]
            assert bool(unordered) == bool(dag.broken(link))
            assert all(dag.before()[v] >> u & 1 for u, v in conflicts)


def test_equal_seeds_give_equal_graphs() -> None:
    assert random_dag(5, ops=20, queues=8) == random_dag(5, ops=20, queues=8)
    assert random_dag(5, ops=20, queues=8) != random_dag(6, ops=20, queues=8)
