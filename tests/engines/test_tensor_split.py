"""``--split-mode tensor``: ggml's meta device over two test devices, its work attributed to both."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapedelay.formats.read import open_tape
from tapedelay.recorder.demo.commands import prompt_program, record_arguments, record_program


@pytest.mark.parametrize("build", ["racy", "fixed", "newest"])
def test_the_work_of_the_meta_device_is_attributed(
    build: str, smollm2: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    environment = request.getfixturevalue(build)
    program = prompt_program(smollm2, "--prompt", "The sea is", "--n-predict", "4", "--split-mode", "tensor")
    recording = record_program(record_arguments(tmp_path / "a.tape", program, devices=2), environment)
    tape = open_tape(recording.tape)
    devices = tape.table("devices").to_pylist()
    queues = tape.table("queues").to_pylist()
    ops = {op["op"]: op for op in tape.table("ops").to_pylist()}

    def device(op: dict[str, int]) -> dict[str, str]:
        found: dict[str, str] = devices[queues[op["queue"]]["device"]]
        return found

    children = [op for op in ops.values() if op["kind"] == "compute" and op["parent"] is not None]
    names = [device(op)["name"] for op in children]
    assert set(names) == {"TAPE0", "TAPE1"}
    assert names.count("TAPE0") == names.count("TAPE1") >= 4
    assert {device(ops[op["parent"]])["kind"] for op in children} == {"meta"}
    assert all(op["access_set"] for op in children)
    # the meta device orders nothing: what is clean is so by what its children and the host do
    assert {devices[q["device"]]["kind"] for q in queues if not q["in_order"]} == {"meta"}
    assert recording.check() == (0, [])
