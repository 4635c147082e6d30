"""The verdict that a pattern states by how it was made is what `check` finds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import pytest

from tapedelay.formats.validate import require_valid
from tapedelay.replayer.check import check_tape
from tapedelay.replayer.check.stated import compare
from tapedelay.replayer.patterns import FAMILIES, Pattern, patterns
from tapedelay.replayer.patterns.chains import linked_list, state_chain
from tapedelay.replayer.patterns.script import WAYS

from .pattern_cases import selection


def differences(made: Iterable[Pattern]) -> list[str]:
    """Return the patterns on which check and statement differ."""
    bad = []
    for p in made:
        require_valid(p.tape)
        agreed = compare(p.verdicts, check_tape(p.tape))
        if agreed is None or not agreed.hold:
            bad.append(f"{p.name}: {agreed.text() if agreed else 'states nothing'}")
    return bad


@pytest.mark.parametrize("family", FAMILIES)
def test_check_finds_what_the_pattern_states(family: str) -> None:
    made = list(selection(family))
    assert len(made) > 20
    assert any(p.clean for p in made)
    assert any(not p.clean for p in made)
    assert differences(made) == []


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES)
def test_check_finds_what_every_variant_states(family: str) -> None:
    assert differences(list(patterns(family, full=True))) == []


def test_names_are_unique_and_begin_with_the_family() -> None:
    for family in FAMILIES:
        names = [p.name for p in patterns(family)]
        assert len(set(names)) == len(names)
        assert {p.family for p in patterns(family)} == {family}


def test_every_fault_has_an_op_whose_delay_shows_it() -> None:
    for p in selection():
        assert bool(p.late) == (not p.clean and not p.deadlock), p.name
        if p.late:
            assert p.late in {v.first for v in p.verdicts}, p.name
            assert len(p.delays(1000)) == 1 + bool(p.then)
        else:
            assert len(p.delays(1000)) == 0


def test_every_way_to_break_a_link_occurs_in_the_selection() -> None:
    variants = [p.name for p in patterns()]
    for way in (*WAYS, "stale"):
        assert any(n.endswith(f"-{way}") for n in variants), way


def test_a_selection_is_part_of_everything() -> None:
    for family in ("graphs", "events", "waits"):
        assert {p.name for p in patterns(family)} < {p.name for p in patterns(family, full=True)}


@pytest.mark.parametrize(("length", "queues"), [(1, 2), (2, 2), (300, 5)])
def test_lists_of_any_length(length: int, queues: int) -> None:
    s = linked_list(length, queues)
    last = [s.broken(s.links[-1], "missing")] if s.links else []
    assert differences([s.clean(), *last]) == []
    assert len(s.clean().tape.table("ops")) == length + 2 * (length - 1)


def test_an_unordered_state_is_unordered_with_all_that_no_queue_puts_behind_it() -> None:
    s = state_chain(7, 4)
    broken = s.broken(s.links[2], "missing")
    assert [(v.first, v.second) for v in broken.verdicts] == [
        ("n2", "n3"), ("n1", "n3"), ("n0", "n3"), ("n2", "n4"), ("n1", "n4"), ("n2", "n5"),
    ]  # fmt: skip


def test_a_wrong_statement_would_be_noticed() -> None:
    for p in selection("graphs")[:20]:
        rows = p.text.rsplit("\n", 2)[0]
        wrong = "clean" if not p.clean else "race: fork0 x left0 RAW A0"
        if not p.clean or "fork0" in rows:
            text = f"{rows}\n{wrong}\n"
            assert differences([dataclasses.replace(p, text=text)]) != [], p.name
