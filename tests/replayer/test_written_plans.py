"""Plans that a search writes say what keeps an engine from following them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapedelay.formats.cli import run
from tapedelay.formats.delays import Pattern, read_plan
from tapedelay.formats.load import load_tape
from tapedelay.formats.window import window_of_ops
from tapedelay.formats.write import write_tape

BAD = Path(__file__).resolve().parents[2] / "traces" / "ggml-26040-bad.tape.zip"
ELSEWHERE = "# counted in a window: in a whole run it means another op\n"
BY_ID = "# an op id is of this tape alone: `record` cannot take it\n"


@pytest.mark.parametrize("first", [None, 70])
def test_what_counts_in_a_window_is_marked(tmp_path: Path, first: int | None) -> None:
    tape, file = tmp_path / "run.tape", tmp_path / "found.delays"
    write_tape(load_tape(BAD) if first is None else window_of_ops(load_tape(BAD), first, 141), tape)
    assert run(["replay", str(tape), "--search", "--write-plan", str(file)]) == 1
    (line,) = read_plan(file).lines
    assert isinstance(line.anchor, Pattern)
    assert (ELSEWHERE in file.read_text()) == (first is not None)


def test_an_op_id_is_marked(tmp_path: Path) -> None:
    """The second of two declared ops has nothing before it that a pattern could count."""
    tape, file = tmp_path / "a.litmus", tmp_path / "found.delays"
    tape.write_text(
        "1 | copy | vk0 |  | D0[0:8] | | origin=declared\n2 | host | H | D0[0:8] |  | | origin=declared\n"
    )
    assert run(["replay", str(tape), "--search", "--write-plan", str(file)]) == 1
    (line,) = read_plan(file).lines
    assert (BY_ID in file.read_text()) == isinstance(line.anchor, int)
    assert isinstance(line.anchor, int)
