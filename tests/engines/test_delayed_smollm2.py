"""A real model on the newest build: one delay on one queue is always wrong where the profile has the hole.

The hole is that of `test_smollm2.py`: the next ubatch overwrites the embeddings whose copy is pending. Under
the profiles of real backends the same delay changes nothing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tapedelay.recorder.demo.commands import prompt_program, tapedelay
from tapedelay.recorder.demo.demo import KNOWN, STORY
from tapedelay.replayer.engine_runs import EngineRuns, explain, run_engine_twice

SOAK = os.environ.get("TAPEDELAY_SOAK") == "1"
RUNS = 10 if SOAK else 3
# The device's queue waits twice for the host in the trial decode with which the engine starts, and twice in
# each ubatch. Behind the sixth wait stands the copy of the second ubatch's embeddings; the CPU goes on to the
# third, and on a busy machine may take long to get there. Under cuda-like the copy is the host's own.
PLAN = "6th wait on TAPE0 +500ms before_start"


def answer(printed: bytes) -> dict[str, Any]:
    said = json.loads(printed)
    return {key: said[key] for key in ("tokens", "logprobs")}


def runs(profile: str, model: Path, environment: dict[str, str], folder: Path) -> EngineRuns:
    return run_engine_twice(
        prompt_program(model, "--prompt-file", str(STORY), "--ubatch", "32", "--n-predict", "8"),
        plan=PLAN,
        devices=2,
        profile=profile,
        env=environment,
        pick=answer,
        repeat=RUNS,
        every=True,
        folder=folder,
    )


def findings(tape: Path | None) -> list[dict[str, Any]]:
    assert tape is not None
    done = tapedelay("check", "--json", "--baseline", KNOWN, tape)
    return [f for f in done.json()["findings"] if not f["accepted"]]


def test_wrong_every_time_where_copies_take_host_memory_and_devices(
    newest: dict[str, str], smollm2: Path, tmp_path: Path
) -> None:
    result = runs("full-async", smollm2, newest, tmp_path)
    assert len(result.wrong) == len(result.runs) == RUNS, explain(result)
    assert result.verdict == "differs"
    assert result.same_wrong
    for run in result.runs:
        assert run.delays[0]["count"] == 1
        first = findings(run.tape)[0]
        assert (first["verdict"], first["fault"]) == ("race", "WAR")
        copy, compute = first["ops"]
        assert (copy["kind"], copy["name"]) == ("copy", "embd")
        assert (compute["kind"], compute["device"], compute["tensor"]) == ("compute", "CPU", "embd")


@pytest.mark.parametrize("profile", ["vulkan-like", "cuda-like"])
def test_right_every_time_under_what_real_backends_do(
    profile: str, newest: dict[str, str], smollm2: Path, tmp_path: Path
) -> None:
    result = runs(profile, smollm2, newest, tmp_path)
    assert result.verdict == "equal", explain(result)
    for run in result.runs:
        assert run.delays[0]["count"] == 1
        assert findings(run.tape) == []
