"""Nothing that is accepted, or less certain, hides what stands behind it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from tapedelay.formats.litmus import parse
from tapedelay.formats.tape import Tape
from tapedelay.replayer.check import Baseline, Report, check_tape, judge
from tapedelay.replayer.check.command import check

from .brute_force import BruteForce
from .random_tapes import BYTES, random_tape

BEHIND = """
1 | kernel | q0 | | M0[0:64]:name=a
2 | kernel | q0 | | M0[0:4]:name=b
3 | host | H | M0[0:64] |
"""
OF_ONE_OP = """
1 | kernel | q0 | | M0[0:64]:name=a, M0[0:4]:name=b
3 | host | H | M0[0:64] |
"""
FREED = """
1 | kernel | q0 | | M0[0:64]:name=a
2 | kernel | q0 | | M0[0:64]:name=b
3 | free | H | | | M0
"""
DEADLOCK = """
1 | semwait | q0 | | | s
2 | kernel | q0 | | M0
3 | host | H | M0 |
"""


def tape(text: str) -> Tape:
    return parse(text).tape()


def everything(judged: Tape) -> frozenset[str]:
    report = check_tape(judged, Baseline(everything=True))
    return frozenset(f.signature for f in report.findings)


def open_ones(report: Report) -> set[str]:
    return {f.signature for f in report.findings if not f.accepted}


@pytest.mark.parametrize("text", [BEHIND, OF_ONE_OP, FREED])
def test_what_is_accepted_hides_nothing(text: str) -> None:
    judged = tape(text)
    kinds = everything(judged)
    assert len(kinds) == 2
    assert check_tape(judged, Baseline(kinds)).exit_code == 0
    for kind in kinds:
        report = check_tape(judged, Baseline(kinds - {kind}))
        assert open_ones(report) == {kind}
        assert report.exit_code == 1


def test_random_tapes_hide_nothing_behind_a_baseline() -> None:
    many = 0
    for seed in range(200):
        judged = random_tape(random.Random(seed).randbytes(BYTES))
        if BruteForce(judged).refused():
            continue
        kinds = everything(judged)
        assert kinds >= {f.signature for f in check_tape(judged).findings}
        report = check_tape(judged, Baseline(kinds))
        assert not open_ones(report)
        assert report.stale == []
        for kind in kinds:
            assert open_ones(check_tape(judged, Baseline(kinds - {kind}))) == {kind}, seed
        many += len(kinds) > 3
    assert many > 25


def test_a_baseline_that_is_written_holds(tmp_path: Path) -> None:
    path, accepted = tmp_path / "a.litmus", tmp_path / "accepted.json"
    path.write_text(BEHIND)
    run = CliRunner().invoke(check, [str(path), "--write-baseline", str(accepted)], standalone_mode=False)
    assert run.return_value == 0, run.output
    run = CliRunner().invoke(check, [str(path), "--baseline", str(accepted)], standalone_mode=False)
    assert run.return_value == 0, run.output


def test_an_accepted_deadlock_is_not_clean() -> None:
    judged = tape(DEADLOCK)
    assert check_tape(judged).exit_code == 1
    report = check_tape(judged, Baseline(everything(judged)))
    assert not open_ones(report)
    assert (report.verdict, report.exit_code) == ("cannot judge", 4)


def test_the_pass_ends_after_so_many_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "MAX_PAIRS", 10)
    rows = [f"{i} | kernel | q{i % 2} | | M0" for i in range(100)]
    judged = tape("\n".join(rows))
    report = check_tape(judged)
    assert 10 <= report.count("race") < 12
    assert report.exit_code == 1
    assert any(c.blocks and "only the first" in c.detail for c in report.conditions)
    assert check_tape(judged, Baseline(everything=True)).exit_code == 4
    monkeypatch.undo()
    assert not check_tape(judged).conditions


def test_what_is_more_certain_than_all_later_ones_is_told_as_well() -> None:
    judged = tape(
        """
        1 | kernel | q0 | | M0:name=a
        2 | kernel | q0 | | M0:name=b
        3 | kernel | q0 | | M0:inferred:name=c
        4 | host | H | M0 |
        """
    )
    found = [(f.verdict, f.first, f.second) for f in check_tape(judged).findings]
    assert found == [("race", 1, 3), ("possible", 2, 3)]


def test_common_bytes_with_gaps_are_told_as_such() -> None:
    text = (
        "1 | kernel | s0 | | M0[0:64], M0[128:192] |\n"
        "2 | kernel | s1 | M0[0:256] | |\n"
        "3 | kernel | s2 | M0[16:32] | |\n"
    )
    found = check_tape(parse(text, name="gaps").tape("buggy")).findings
    assert [(f.second, f.begin, f.end, f.hull) for f in found] == [(1, 0, 192, True), (2, 16, 32, False)]


def test_a_baseline_holds_when_another_run_counts_its_queues_otherwise() -> None:
    text = """
        device cpu host
        device gpu gpu
        host H cpu
        queue TAPE0.2 gpu
        buffer M.7 64 device=gpu
        1 | kernel | TAPE0.2 | | M.7 |
        2 | host | H | M.7 | |
    """
    tape = parse(text, name="one").tape("buggy")
    other = parse(text.replace("TAPE0.2", "TAPE0.31").replace("M.7", "M.8"), name="two").tape("buggy")
    unlike = parse(text.replace("TAPE0.2", "TAPE1.2"), name="three").tape("buggy")
    accepted = Baseline(frozenset(f.signature for f in check_tape(tape).findings))
    assert check_tape(tape).exit_code == 1
    assert check_tape(tape, accepted).exit_code == 0
    assert check_tape(other, accepted).exit_code == 0
    assert check_tape(other, accepted).stale == []
    assert check_tape(unlike, accepted).exit_code == 1
