"""From a replay into a real engine: what a replay writes out is applied there, line by line."""

from __future__ import annotations

import json
from pathlib import Path

from tapedelay.formats.delays import Anchors, Pattern, match_plan, read_plan
from tapedelay.formats.load import load_tape
from tapedelay.recorder.demo.commands import prompt_program, tapedelay

OPTIONS = ("--prompt-tokens", "40", "--ubatch", "32", "--kv-host", "--n-predict", "2")


def test_a_random_run_of_a_replay_is_run_by_the_engine(
    racy: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    tape, late, plan = tmp_path / "a.tape", tmp_path / "late.tape", tmp_path / "lucky.delays"
    program = prompt_program(tiny_model, *OPTIONS)
    assert tapedelay("record", "-o", tape, "--devices", "1", "--", *program, environment=racy).code == 0
    done = tapedelay("replay", tape, "--delays", "seed=1 max=800us", "--write-plan", plan)
    assert done.code in (0, 1), done.err
    written = read_plan(plan)
    counting = [n for n in written.lines if isinstance(n.anchor, Pattern)]
    assert len(counting) > 0.9 * len(written.lines)
    words = ("--devices", "1", "--delays", plan, "--json")
    refused = tapedelay("record", "-o", late, *words, "--", *program, environment=racy)
    assert refused.code == 2
    assert "--allow-unmatched" in refused.out + refused.err
    done = tapedelay("record", "-o", late, "--allow-unmatched", *words, "--", *program, environment=racy)
    assert done.code == 0, done.err
    assert f"{len(written.lines) - len(counting)} lines of the plan left out" in done.err
    said = json.loads(done.out.strip().splitlines()[-1])
    assert [d["count"] for d in said["delays"]] == [1] * len(counting)
    # the same ops on the new tape as on the old one
    anchors = Anchors(load_tape(late))
    rows = match_plan(written, load_tape(tape)).delays.row
    counted = {int(anchors.rows(n.anchor)[0]) for n in counting if isinstance(n.anchor, Pattern)}
    assert counted <= set(rows.tolist())


def test_synchronous_by_the_environment(racy: dict[str, str], tiny_model: Path, tmp_path: Path) -> None:
    """`TAPEDELAY_SYNC=1 tapedelay record`, as `check` prints it, hides the race that --sync hides."""
    program = prompt_program(tiny_model, *OPTIONS)
    environment = {**racy, "TAPEDELAY_SYNC": "1"}
    tape = tmp_path / "a.tape"
    done = tapedelay("record", "-o", tape, "--devices", "1", "--", *program, environment=environment)
    assert done.code == 0, done.err
    assert load_tape(tape).manifest.switches["TAPEDELAY_SYNC"] == "on"
    assert tapedelay("check", tape).code == 0
