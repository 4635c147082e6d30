"""Every sequence of the corpus: both variants break exactly what the file states."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tapedelay.formats.cli import run
from tapedelay.formats.sequence import INVARIANTS, parse, print_sequence, read
from tapedelay.replayer.sequence import judge

CORPUS = Path(__file__).parents[2] / "corpus"
PUBLISHED = sorted((CORPUS / "seq").glob("*.litmus"))
OWN = sorted((CORPUS / "seq-own").glob("*.litmus"))
FILES = PUBLISHED + OWN


def test_corpus_is_complete() -> None:
    assert len(PUBLISHED) == 20
    assert len(OWN) >= 20


def test_each_invariant_is_broken_and_kept() -> None:
    """Of our own models some break each invariant in one variant and nothing in the other."""
    for invariant in INVARIANTS:
        both = [
            f
            for f in OWN
            if any(c.invariant == invariant for c in read(f).stated("buggy") or ())
            and read(f).stated("fixed") == ()
        ]
        assert len(both) >= 2, invariant


@pytest.mark.parametrize("variant", ["buggy", "fixed"])
@pytest.mark.parametrize("file", FILES, ids=[f.stem for f in FILES])
def test_verdicts_are_exact(file: Path, variant: str) -> None:
    sequence = read(file)
    found = judge(sequence.commands(variant))
    assert tuple(v.claim() for v in found) == sequence.stated(variant)
    assert all(v.words and v.what for v in found)


@pytest.mark.parametrize("file", FILES, ids=[f.stem for f in FILES])
def test_files_say_where_they_are_from_and_print_alike(file: Path) -> None:
    sequence = read(file)
    assert sequence.notes["id"] == file.stem
    assert sequence.notes["title"]
    expected = "own" if file in OWN else r"\S+#\d+|DeepInfer \S+, \S+"
    assert re.fullmatch(expected, sequence.notes["source"])
    assert parse(print_sequence(sequence), name=file.name) == sequence


@pytest.mark.parametrize("file", FILES, ids=[f.stem for f in FILES])
def test_check_agrees(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sequence = read(file)
    for variant in ("buggy", "fixed"):
        assert run(["check", f"{file}:{variant}", "--expect"]) == 0
        assert run(["check", str(file), "--variant", variant]) == (1 if sequence.stated(variant) else 0)
    assert "verdict lines: hold" in capsys.readouterr().out
