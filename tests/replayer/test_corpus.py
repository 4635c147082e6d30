"""Every litmus file of the corpus: both variants give exactly the verdicts that the file states."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapedelay.formats.litmus import Litmus, Verdict, read
from tapedelay.formats.validate import require_valid
from tapedelay.replayer.check import check_tape
from tapedelay.replayer.check.stated import compare, matches

CORPUS = Path(__file__).parent.parent / "corpus"
FILES = sorted(f for d in ("ops", "own") for f in (CORPUS / d).glob("*.litmus"))
CASES = [(f, v) for f in FILES for v in ("buggy", "fixed")]


def test_corpus_is_complete() -> None:
    assert len([f for f in FILES if f.parent.name == "ops"]) == 32
    assert len([f for f in FILES if f.parent.name == "own"]) >= 36


@pytest.mark.parametrize(("file", "variant"), CASES, ids=[f"{f.stem}-{v}" for f, v in CASES])
def test_verdicts_are_exact(file: Path, variant: str) -> None:
    litmus = read(file)
    tape = litmus.tape(variant)
    require_valid(tape)
    report = check_tape(tape)
    stated = litmus.verdicts(variant)
    agreed = compare(stated, report)
    assert agreed is not None
    assert agreed.hold, agreed.text()
    assert stated, "the file states no verdict"
    if any(v.kind == "unknown" and not v.first for v in stated):
        assert report.findings == []
        assert report.exit_code == 4
        return
    claims = [v for v in stated if v.kind != "clean"]
    lines = report.verdict_lines()
    assert len(claims) == len(report.findings), lines
    for claim in claims:
        assert len([f for f in report.findings if matches(claim, f)]) == 1, (claim.text(), lines)
    if not claims:
        assert report.exit_code == 0, lines
    elif all(c.kind == "unknown" for c in claims):
        assert report.exit_code == 4
    else:
        assert report.exit_code == 1


@pytest.mark.parametrize("file", FILES, ids=[f.stem for f in FILES])
def test_every_model_says_where_it_is_from(file: Path) -> None:
    litmus = read(file)
    assert litmus.notes["id"] == file.stem
    expected = "#" if file.parent.name == "ops" else "own"
    assert expected in litmus.notes["source"]


def test_a_wrong_verdict_would_be_noticed() -> None:
    litmus: Litmus = read(CORPUS / "ops" / "B01.litmus")
    (finding,) = check_tape(litmus.tape()).findings
    (claim,) = litmus.verdicts()
    assert matches(claim, finding)
    assert matches(Verdict("race", "2", "5", "WAR", "M0", 1024, 2048), finding)
    for wrong in (
        Verdict("possible", "2", "5", "WAR", "M0"),
        Verdict("race", "1", "5", "WAR", "M0"),
        Verdict("race", "2", "5", "RAW", "M0"),
        Verdict("race", "2", "5", "WAR", "D0"),
        Verdict("race", "2", "5", "WAR", "M0", 1024, 2049),
    ):
        assert not matches(wrong, finding)
