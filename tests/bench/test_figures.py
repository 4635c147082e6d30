"""What the benchmarks say at the end: nothing that was not measured counts as held."""

from __future__ import annotations

import pytest
from figures import Figures


def test_what_holds_what_misses_and_what_was_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    figures = Figures()
    figures.show("fast", 5, "ops/s", least=4)
    figures.show("small", 5, "bytes", most=5)
    assert figures.summary() == "budgets that hold: 2 of 2 measured"
    figures.show("plain", 7, "s")
    figures.show("slow", 3, "ops/s", least=4)
    figures.show("large", 6, "bytes", most=5)
    figures.absent("peer", "not installed")
    assert figures.summary().splitlines() == [
        "budgets that hold: 2 of 4 measured",
        "over budget: slow, large",
        "not measured: 1 row: peer",
    ]
    figures.judge("script", held=True)
    figures.absent("engine", "no engine")
    assert figures.summary().splitlines()[0] == "budgets that hold: 3 of 5 measured"
    assert figures.summary().splitlines()[-1] == "not measured: 2 rows: peer, engine"
    out = capsys.readouterr().out
    assert out.count("pass") == 2
    assert out.count("MISS") == 2
    assert out.count("not measured") == 2
