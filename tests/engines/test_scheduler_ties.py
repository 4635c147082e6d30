"""One tape holds a request scheduler and the device ops of its steps, and a step names the first of them."""

from __future__ import annotations

import sys
from pathlib import Path

from tapedelay.formats.load import load_tape
from tapedelay.recorder.demo.commands import PROGRAMS, tapedelay

from .programs.scheduled_prompts import STEPS

PROGRAM = Path(__file__).parent / "programs" / "scheduled_prompts.py"


def test_each_step_names_the_first_op_that_it_caused(
    newest: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    done = tapedelay(
        "record", "--no-telemetry", "--devices", "1", "-o", tmp_path / "run.tape", "--",
        sys.executable, str(PROGRAM), str(PROGRAMS), str(tiny_model), environment=newest,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert f"and {3 * STEPS + 2} inputs of 1 request scheduler of halves in" in done.err
    tape = load_tape(tmp_path / "run.tape")
    inputs = tape.table("inputs").to_pylist()
    issued = {r["op"]: r["issue_ns"] for r in tape.table("ops").to_pylist() if r["issue_ns"] is not None}
    steps = [r for r in inputs if r["kind"] == "step"]
    outputs = {r["step"]: r for r in inputs if r["kind"] == "output"}
    assert [r["op"] is not None for r in steps] == [True] * STEPS + [False]
    for step in steps[:STEPS]:
        begin, end = step["at_ns"], outputs[step["step"]]["at_ns"]
        inside = [op for op, at in issued.items() if begin <= at < end]
        assert step["op"] == min(inside)
        kinds = {r["kind"] for r in tape.table("ops").to_pylist() if r["op"] in set(inside)}
        assert "compute" in kinds, "the step was computed between schedule and output"
    assert len({r["op"] for r in steps}) == STEPS + 1
    assert len(tape.manifest.processes) == 1, "scheduler and ops are of one process"
    shown = tapedelay("info", tmp_path / "run.tape").out
    assert "engine     ggml" in shown
    assert "scheduler 0, halves 1: 4 requests, " in shown
