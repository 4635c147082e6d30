"""A replay written as a tape is exported as any other, with its own times."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tapedelay.formats.cli import run
from tapedelay.formats.load import load_tape
from tapedelay.replayer.export.command import export

from ...formats.exporters.conftest import Query

B01 = Path(__file__).resolve().parents[3] / "tests" / "corpus" / "ops" / "B01.litmus"


@pytest.fixture
def replayed(tmp_path: Path) -> Path:
    """The race of B01 under the delay that shows it, as a tape."""
    out = tmp_path / "out.tape"
    assert run(["replay", str(B01), "--delays", "first copy on vk0 +5us", "--out", str(out)]) == 1
    return out


def test_a_timeline_of_the_replay(query: Query, replayed: Path, tmp_path: Path) -> None:
    trace = tmp_path / "x.pftrace"
    done = CliRunner().invoke(export, [str(replayed), "--format", "perfetto", "-o", str(trace)])
    assert done.exit_code == 0, done.output
    assert "no times" not in done.stdout
    errors, slices, flows = query(
        trace.read_bytes(),
        "select * from stats where value and name not like '%duration%'",
        "select name, ts, dur from slice",
        "select a.name as source, b.name as target from flow f"
        " join slice a on f.slice_out = a.id join slice b on f.slice_in = b.id",
    )
    assert errors == []
    at = {s["name"]: s["ts"] for s in slices}
    assert at["second: 5 host M0"] < at["first: 2 copy D0"]  # the wrong way round: what the delay did
    shown = {(f["source"], f["target"]) for f in flows}
    assert ("second: 5 host M0", "first: 2 copy D0") in shown
    recorded = load_tape(replayed).table("ops").to_pylist()
    start = {o["label"]: o["issue_ns"] + o["start_after_issue_ns"] for o in recorded}
    assert at["first: 2 copy D0"] - at["second: 5 host M0"] == start["2"] - start["5"]


def test_a_page_of_the_replay(replayed: Path) -> None:
    page = CliRunner().invoke(export, [str(replayed), "--format", "html"]).stdout
    assert page.count('class="link"') == 1
    assert "<th>started</th>" in page
