"""`search` shows every finding of every broken pattern, and finds nothing to search in a right one."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tapedelay.replayer.patterns import FAMILIES, Pattern, patterns
from tapedelay.replayer.patterns.dags import random_dag
from tapedelay.replayer.replay import search

from .pattern_cases import selection


def differences(made: Iterable[Pattern]) -> list[str]:
    """Return the patterns in which search does not show what the pattern states."""
    bad = []
    for p in made:
        found = search(p.tape, every=True)
        stated = sum(v.kind != "clean" for v in p.verdicts)
        if [a.state for a in found.attempts] != ["confirmed"] * stated or found.exit_code != int(not p.clean):
            bad.append(f"{p.name}: {[(a.finding.line(), a.state, a.reason) for a in found.attempts]}")
    return bad


@pytest.mark.parametrize("family", FAMILIES)
def test_every_finding_is_shown(family: str) -> None:
    made = selection(family)
    assert differences([p for p in made if p.clean][:2] + [p for p in made if not p.clean][::6]) == []


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES)
def test_every_finding_of_every_variant_is_shown(family: str) -> None:
    assert differences(patterns(family, full=True)) == []


def test_a_removed_link_of_a_random_graph_is_shown_if_and_only_if_it_was_needed() -> None:
    for seed in range(2):
        dag = random_dag(seed, ops=10, queues=4, slots=4 if seed else None)
        assert {bool(dag.broken(link)) for link in dag.links} == {False, True}
        assert differences(dag.pattern("event", link) for link in dag.links) == []
