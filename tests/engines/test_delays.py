"""Delays of a plan in a real engine: lines apply to what they name, and a random run comes back exactly."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.delays import PLACES, Anchors, match_plan, read_plan
from tapedelay.formats.load import load_tape
from tapedelay.formats.tape import Tape
from tapedelay.recorder.demo.commands import prompt_program, tapedelay

OPTIONS = ("--prompt-tokens", "150", "--ubatch", "32", "--kv-host", "--n-predict", "4")


def run(
    tape: Path, model: Path, environment: dict[str, str], *words: str, code: int = 0
) -> tuple[dict[str, Any], dict[str, Any], Tape]:
    """Return the program's answer, what ``record`` says, and the tape."""
    program = prompt_program(model, *OPTIONS)
    done = tapedelay(
        "record", "-o", tape, "--devices", "1", "--json", *words, "--", *program, environment=environment
    )
    assert done.code == code, done.err
    answer, said = map(json.loads, done.out.strip().splitlines()[-2:])
    return answer, said, load_tape(tape)


def held_up(tape: Tape) -> dict[tuple[int, str], int]:
    out: Counter[tuple[int, str]] = Counter()
    for r in tape.table("delays").to_pylist():
        out[r["op"], r["place"]] += r["asked_ns"]
    return {k: v for k, v in out.items() if v}


def test_aimed_lines_apply_as_often_as_they_say(
    racy: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    lines = (
        "every copy of model.input_embed on TAPE0 +200us",
        "3rd copy on TAPE0 +1ms after_end",
        "first compute on host0 +300us before_issue",
        "2nd compute on CPU +1 +100us",
        "every sync on host0 +10us after_end",
        "first compute touching conv_states* +100us",
    )
    words = [w for line in lines for w in ("--delays", line)]
    answer, said, tape = run(tmp_path / "a.tape", tiny_model, racy, *words)
    ops = tape.table("ops").to_pylist()
    queues = tape.table("queues").column("name").to_pylist()
    copies = [o["op"] for o in ops if o["kind"] == "copy" and queues[o["queue"]] == "TAPE0"]
    embeds = [o for o in ops if o["op"] in copies and o["name"] == "model.input_embed"]
    syncs = [o for o in ops if o["kind"] == "sync" and queues[o["queue"]] == "host0"]
    expected = [len(embeds), 1, 1, 1, len(syncs), 1]
    assert embeds
    assert [d["count"] for d in said["delays"]] == expected
    rows = tape.table("delays").to_pylist()
    assert [r["op"] for r in rows if r["line"] == 2] == [copies[2]]
    assert all(r["true_ns"] >= r["asked_ns"] for r in rows)
    assert answer["tokens"]


def test_a_line_that_names_nothing_is_an_error(
    racy: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    _, said, _ = run(tmp_path / "a.tape", tiny_model, racy, "--delays", "every copy on TAPE7 +1ms", code=2)
    assert "never matched" in said["faults"][0]["found"]


@pytest.mark.parametrize("seed", [1])
def test_a_random_run_comes_back_from_its_written_out_plan(
    seed: int, racy: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "exact.delays"
    words = ("--delays", f"seed={seed} max=800us", "--write-plan", str(plan))
    _, _, first = run(tmp_path / "a.tape", tiny_model, racy, *words)
    assert len(held_up(first)) > 300
    exact, anchors = read_plan(plan), Anchors(first)
    delays = match_plan(exact, anchors).delays
    on_tape = {
        (int(anchors.op_ids[row]), PLACES[place]): ns
        for row, place, ns in zip(delays.row.tolist(), delays.place.tolist(), delays.ns.tolist(), strict=True)
    }
    assert on_tape == held_up(first)
    _, said, again = run(tmp_path / "b.tape", tiny_model, racy, "--delays", str(plan))
    assert held_up(again) == held_up(first)
    assert all(d["count"] == 1 for d in said["delays"])
