"""Hooks that fail inside of DeepInfer and transformers: said once, and the engine's answers are its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .scheduler_engines import PROGRAMS, program, record, tool

FAULT = "scheduler is not recorded any more (MemoryError: a hook that fails)"
FORKED = "scheduler is not recorded any more (a request was forked)"
ENGINES = {"deepinfer": "DeepInfer's", "transformers": "transformers'"}
METHODS = {"deepinfer": 10, "transformers": 13}
"""How many of the engine's methods are hooked."""
NOT_CALLED = {
    "deepinfer": {"Scheduler.abort_sequence failed", "Scheduler.fork_seq before"},
    "transformers": {
        "ContinuousBatchProcessor.reset failed",
        "ContinuousBatchProcessor.fail_all_requests failed",
        "OffloadingManager.offload_requests failed",
        "Scheduler.clear_cancelled_requests failed",
    },
}
"""Methods that are never made to raise here, and what ends a recording on purpose (below)."""


@pytest.mark.parametrize("engine", ENGINES)
def test_every_hook_may_fail_at_any_call(engine: str, tmp_path: Path) -> None:
    done = program(engine, f"{engine}_broken.py", tmp_path)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.strip().splitlines()[-1])
    plain, whole = found.pop(""), found.pop("whole")
    assert plain["told"]
    assert whole["told"] == plain["told"]
    assert (plain["stderr"], whole["stderr"]) == ("", "")
    counts = whole["counts"]
    assert len({place.rpartition(" ")[0] for place in counts}) == METHODS[engine]
    assert {place for place, count in counts.items() if not count} == NOT_CALLED[engine]
    forked = found.pop("fork", None)
    assert {place.rpartition(" ")[0] for place in found} == counts.keys() - NOT_CALLED[engine]
    for place, run in found.items():
        assert run["told"] == plain["told"], f"{place}: {run['stderr']}"
        assert run["stderr"].startswith(f"tapedelay: {ENGINES[engine]} {FAULT}; the engine goes on"), place
        assert run["stderr"].count("\n") == run["refused"] == 1, place
    if forked is not None:
        assert forked["told"] == plain["told"]
        assert forked["stderr"].count(FORKED) == forked["stderr"].count("\n") == forked["refused"] == 1


IN_A_RECORDING = {
    "deepinfer": ("deepinfer.watch", "Watch", "scheduled"),
    "transformers": ("transformers.hook", "Recording", "scheduled"),
}
PROGRAM = """
import sys
sys.path.insert(0, {programs!r})
import {engine}_broken as program
from broken_hooks import failing
from tapedelay.recorder.engines.{module} import {cls}
{cls}.{name} = failing({cls}.{name}, {nth})
program.serve()
"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("nth", "code"), [(1_000_000, 0), (5, 5)], ids=["none fails", "one fails"])
def test_record_says_that_a_recording_is_not_whole(engine: str, nth: int, code: int, tmp_path: Path) -> None:
    module, cls, name = IN_A_RECORDING[engine]
    text = PROGRAM.format(programs=str(PROGRAMS), engine=engine, module=module, cls=cls, name=name, nth=nth)
    tape = tmp_path / "run.tape"
    done = record(tape, engine, "-c", text)
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stderr.count(f"tapedelay: {ENGINES[engine]} {FAULT}") == bool(code)
    assert (f"ERROR: {ENGINES[engine]} {FAULT}" in done.stderr) == bool(code)
    schedulers = json.loads(tool("check", tape, "--json").stdout)["schedulers"]
    assert len(schedulers) == 2, "the other one is recorded whole"
