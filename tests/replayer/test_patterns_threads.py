"""Patterns on threads, a few of each family; `tests/engines/test_patterns_threads.py` runs all."""

from __future__ import annotations

import pytest

from tapedelay.replayer.backends.threads import ThreadsBackend
from tapedelay.replayer.patterns import FAMILIES

from .pattern_cases import selection
from .real_time import differences


@pytest.mark.parametrize("family", FAMILIES)
def test_right_patterns_stay_right_and_broken_ones_show(family: str) -> None:
    made = selection(family)
    chosen = [p for p in made if p.clean][::4] + [p for p in made if not p.clean][::4]
    assert len(chosen) > 3
    assert differences(ThreadsBackend(), chosen, plans=2) == []
