"""The fixture `tapedelay_engine` on a real engine, under xdist: each way to be red has its own text."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest.importorskip("xdist", reason="pytest-xdist is not installed")
PLUGIN = "tapedelay.replayer.pytest_plugin"
LOADED = [] if any(p.value == PLUGIN for p in entry_points(group="pytest11")) else ["-p", PLUGIN]

ENGINE = """
import os, time
import numpy as np

DELAYED = "TAPEDELAY_DELAYS" in os.environ

def answer(layers=99, fails="", sleeps=0, clock=False):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.n_gpu_layers = "model.gguf", layers
    params.n_ctx, params.n_parallel, params.fit_params, params.warmup = 1024, 1, False, False
    request = {"prompt": [11, 12, 13], "max_tokens": 2, "temperature": 0, "logprobs": 1}
    reply = xllamacpp.Server(params).handle_completions(request)
    if DELAYED and fails:
        raise RuntimeError(fails)
    if DELAYED:
        time.sleep(sleeps)
    found = reply["choices"][0]["logprobs"]["content"]
    logits = np.array([t["logprob"] for t in found], np.float32)
    return {"tokens": [t["id"] for t in found], "logits": logits, "at": time.time_ns() if clock else 0}
"""
TESTS = """
import json, sys
from engine import answer

PLAN = "every copy on TAPE0 +1ms"

def test_good(tapedelay_engine):
    result = tapedelay_engine(answer, plan=PLAN)
    assert result.verdict == "equal" and tapedelay_engine.result is result
    assert result.reference.value["logits"].dtype == "float32" and len(result.runs) == 1
    again = tapedelay_engine("engine.py:answer", plan=[PLAN, "seed=5 max=1ms every compute"], repeat=2)
    assert again.verdict == "equal" and len(again.runs) == 2
    assert all(run.plan.is_file() for run in again.runs)
    assert again.runs[0].tape != result.runs[0].tape and result.runs[0].tape.exists()

def test_command(tapedelay_engine):
    code = "import engine, sys; open(sys.argv[1], 'w').write(str(engine.answer()['tokens']))"
    tapedelay_engine([sys.executable, "-c", code, "{value}"], plan=PLAN, env={"PYTHONDONTWRITEBYTECODE": "1"})

def test_unmatched(tapedelay_engine):
    tapedelay_engine(answer, plan=[PLAN, "first copy of nothing on TAPE0 +1ms"])

def test_unmatched_allowed(tapedelay_engine):
    tapedelay_engine(answer, plan=[PLAN, "first copy of nothing on TAPE0 +1ms"], allow_unmatched=True)

def test_vacuous(tapedelay_engine):
    tapedelay_engine(answer, arguments=[0], plan=PLAN)

def test_fails(tapedelay_engine):
    tapedelay_engine(answer, arguments={"fails": "assertion in the engine"}, plan=PLAN)

def test_hangs(tapedelay_engine):
    tapedelay_engine(answer, arguments={"sleeps": 600}, plan=PLAN, timeout_s=25)

def test_unsteady(tapedelay_engine):
    tapedelay_engine(answer, arguments={"clock": True}, plan=PLAN)

def test_compare(tapedelay_engine):
    same = lambda a, b: a["tokens"] == b["tokens"]
    tapedelay_engine(answer, arguments={"clock": True}, plan=PLAN, compare=same)

def test_control(tapedelay_engine):
    tapedelay_engine(answer, plan=PLAN, expect="wrong")
"""
SAID = {
    "test_unmatched": [
        "expected: equal; got: unmatched",
        "the plan did not apply",
        "`first copy of nothing on TAPE0 +1ms before_start`: never matched",
        "next: correct them by the names that `tapedelay info --dump tapes/",
        "run-1.tape` prints, or say allow_unmatched=True",
    ],
    "test_vacuous": [
        "no work ran on the device: a right answer would mean nothing",
        "on synchronous devices: no compute was recorded on TAPE0",
    ],
    "test_fails": [
        "got: failed",
        "the program failed under the plan: RuntimeError: assertion in the engine (expected a value)",
        "    RuntimeError: assertion in the engine",
        "check on its recording: run-1.tape: ",
    ],
    "test_hangs": [
        "got: timeout",
        "the program did not end under the plan (expected an end within 25 s)",
        "check on its recording: run-1.tape: ",
    ],
    "test_unsteady": [
        "got: unsteady",
        "the program gives another value every time, on synchronous devices too: no word on races",
        "  ['at']: 1",
        "in the first synchronous run, 1",
        "  give pick= a function that takes out of it the part that counts",
    ],
    "test_control": [
        "expected: wrong; got: equal",
        "the program gives the same value under the plan as on synchronous devices",
    ],
}


def test_each_way_to_be_red(newest: dict[str, str], tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").symlink_to(tiny_model)
    (tmp_path / "engine.py").write_text(ENGINE)
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-n", "2", "-rA", "-p", "no:cacheprovider", *LOADED]
    done = subprocess.run(
        [*command, "--basetemp=tapes"],
        cwd=tmp_path,
        env={**os.environ, **newest},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    text = done.stdout
    assert f"{len(SAID)} failed, 4 passed" in text, text + done.stderr
    parts = re.split(r"^_+ (test_\w+) _+$", text, flags=re.M)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert sections.keys() == SAID.keys()
    for name, lines in SAID.items():
        missing = [line for line in lines if line not in sections[name]]
        assert missing == [], (name, missing, sections[name])
        assert "pytest_plugin.py" not in sections[name]
        assert "Traceback (most recent call last)" not in sections[name].split("it wrote:")[0]
        if name != "test_control":
            assert "to run it again: tapedelay record -o again.tape --force " in sections[name]
