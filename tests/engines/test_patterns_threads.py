"""Every pattern on threads, with random delays."""

from __future__ import annotations

import os

import pytest

from tapedelay.replayer.backends.threads import ThreadsBackend
from tapedelay.replayer.patterns import FAMILIES, patterns

from ..replayer.pattern_cases import selection
from ..replayer.real_time import differences

SOAK = os.environ.get("TAPEDELAY_SOAK") == "1"


@pytest.mark.parametrize("family", FAMILIES)
def test_right_patterns_stay_right_and_broken_ones_show(family: str) -> None:
    made = list(patterns(family, full=True)) if SOAK else list(selection(family))
    assert differences(ThreadsBackend(), made, plans=20 if SOAK else 10) == []
