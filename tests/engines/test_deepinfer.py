"""DeepInfer's real scheduler: recorded, rerun as it was, perturbed; what is wrong with it, what is not."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import tapedelay as package_of
from tapedelay.formats.read import open_tape

from .deepinfer_patches import SWITCH, patched
from .scheduler_engines import PROGRAMS, engine_python, record, tool

PROGRAM = PROGRAMS / "deepinfer_engine.py"
SOAK = bool(os.environ.get("TAPEDELAY_SOAK"))
RUNS = 3000 if SOAK else 260
"""Perturbed runs of each campaign; the kinds below are found by the first 150."""
CLEAN = (
    "chunked",
    "chunked-states",
    "chunked-overlap",
    "beside",
    "beside-states",
    "beside-overlap",
    "images",
)
DISTURBED = ("disturbed", "disturbed-states", "disturbed-overlap")

LEAK = "held when idle, owner aborted in"
QUEUED = "I5 no progress: the request at the head of the queue waits for blocks that one behind it holds"
FULL = "I5 no progress: the cache is fuller than the watermark for prompts, and nothing runs"


@pytest.fixture(scope="session")
def python() -> str:
    return engine_python("deepinfer")


@pytest.fixture(scope="session")
def built(python: str) -> Path:
    """What ``make engine-deepinfer`` left."""
    code = "import deepinfer; print(deepinfer.__file__)"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return Path(found.stdout.strip()).parents[2]


@pytest.fixture(scope="session")
def repaired(built: Path) -> Path:
    return patched(built)


@pytest.fixture(scope="session")
def tapes(python: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, Any]]]:
    """The tape of each configuration, and what the program said."""
    folder = tmp_path_factory.mktemp("deepinfer")
    made = {}
    for name in (*CLEAN, *DISTURBED):
        tape = folder / f"{name}.tape"
        done = record(tape, "deepinfer", PROGRAM, name)
        assert done.returncode == 0, done.stdout + done.stderr
        made[name] = tape, json.loads(done.stdout)
    return made


Tapes = dict[str, tuple[Path, dict[str, Any]]]


@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_run_is_recorded_whole_and_judged_clean(tapes: Tapes, name: str) -> None:
    tape, said = tapes[name]
    assert (said["preempted"], said["aborted"]) == (0, 0)
    assert said["free"] == said["start"]
    inputs = open_tape(tape).table("inputs").to_pylist()
    kinds = [i["kind"] for i in inputs]
    assert kinds.count("step") == kinds.count("output") == said["steps"]
    assert kinds.count("submit") == len(said["lengths"])
    assert kinds.count("set_schedulable") == (2 if name == "images" else 0)
    assert tool("check", tape).returncode == 0


@pytest.mark.parametrize("name", DISTURBED)
def test_a_disturbed_run_is_recorded_with_what_disturbed_it(tapes: Tapes, name: str) -> None:
    tape, said = tapes[name]
    opened = open_tape(tape)
    decisions = [d["kind"] for d in opened.table("decisions").to_pylist()]
    kinds = [i["kind"] for i in opened.table("inputs").to_pylist()]
    assert said["steps"] >= 350
    assert decisions.count("preempt") == said["preempted"] > 50
    assert kinds.count("abort") >= said["aborted"] > 20
    assert any(i["decode_only"] for i in opened.table("inputs").to_pylist())
    assert tool("check", tape).returncode == 0


@pytest.mark.parametrize("name", [*CLEAN, *DISTURBED])
def test_every_decision_is_the_recorded_one_when_rerun(python: str, tapes: Tapes, name: str) -> None:
    done = tool("rerun", tapes[name][0], "--strict", "--json", "--python", python)
    assert done.returncode == 0, done.stdout + done.stderr
    strict = json.loads(done.stdout)["strict"]
    assert strict["divergence"] is None
    assert strict["steps"] == tapes[name][1]["steps"]


def test_another_configuration_diverges_when_rerun(python: str, tapes: Tapes, tmp_path: Path) -> None:
    source = tapes["beside"][0]
    code = """
import sys
from tapedelay.formats.read import open_tape
from tapedelay.replayer.rerun.deepinfer import DeepInferDriver
from tapedelay.replayer.rerun.drive import run
from tapedelay.replayer.rerun.from_tape import recording_of
from tapedelay.replayer.rerun.strict import compare
recording = recording_of(open_tape(sys.argv[1]))
scenario = recording.scenario
for budget in (4, 8):
    changed = scenario.but(config={**scenario.config, "max_num_batched_tokens": budget})
    print(compare(recording.recorded, run(changed, DeepInferDriver(), drain=False, check=False)))
"""
    if importlib.util.find_spec("deepinfer") is None:
        pytest.skip("the tests' own Python has no deepinfer: its interpreter may lack pyarrow")
    done = subprocess.run([python, "-c", code, str(source)], capture_output=True, text=True, timeout=120)
    same, changed = done.stdout.splitlines()
    assert same == "None"
    assert "scheduled" in changed


def campaign(
    python: str, tape: Path, folder: Path | None = None, environment: dict[str, str] | None = None
) -> dict[str, dict[str, Any]]:
    """Return what a campaign finds, by kind."""
    writing = [] if folder is None else ["--write", folder]
    done = tool(
        "rerun", tape, "--perturbed", "--budget", f"{RUNS}runs", "--seed", 7, "--jobs", 1, "--json",
        "--python", python, *writing, **(environment or {}),
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    said = json.loads(done.stdout)["perturbed"]
    assert not said["troubles"], said["troubles"]
    assert said["planted"]["found"], "the planted fault was not found"
    assert said["runs"] >= RUNS - 8  # those with the planted fault are part of the budget
    found = {f"{f['invariant']} {f['what']}": f for f in said["found"]}
    assert done.returncode == (1 if found else 0)
    return found


def leaks(found: dict[str, Any]) -> set[str]:
    return {kind for kind in found if LEAK in kind}


@pytest.mark.parametrize("name", CLEAN)
def test_what_upstream_has_broken_is_found_from_a_clean_recording_and_nothing_that_it_has_not(
    python: str, tapes: Tapes, name: str, tmp_path: Path
) -> None:
    found = campaign(python, tapes[name][0], tmp_path)
    assert f"I3 kv {LEAK} prefill" in found
    assert (f"I3 state {LEAK} prefill" in found) == ("states" in name or name == "chunked-overlap")
    if name.startswith("beside"):
        assert QUEUED in found
    # Aborts before the first chunk leak nothing, but for requests whose units were handed out up front;
    # nothing is freed twice; a request behind one that waits for its images is no stall.
    explained = leaks(found) | ({QUEUED, FULL} & set(found))
    assert set(found) == explained
    if name != "images":
        assert {kind.rsplit(" ", 1)[1] for kind in leaks(found)} == {"prefill"}
    for kind, finding in found.items():
        assert finding["reduced"]["minimal"], kind
        assert finding["reduced"]["requests"] <= 3, kind
    cases = sorted(tmp_path.glob("*.litmus"))
    assert len(cases) == len(found)
    for case in cases[:2]:
        again = tool("rerun", case, "--python", python)
        assert again.returncode == 1, again.stdout + again.stderr
        assert tool("check", case).returncode == 1


@pytest.mark.parametrize(
    ("repairs", "gone"),
    [("abort", {LEAK}), ("preempted", {QUEUED}), ("abort preempted", {LEAK, QUEUED, FULL})],
)
def test_a_repair_makes_its_kind_come_out_clean(
    python: str, tapes: Tapes, repaired: Path, repairs: str, gone: set[str]
) -> None:
    found = campaign(python, tapes["beside-states"][0], environment=with_repairs(repaired, repairs))
    assert not {kind for kind in found if any(g in kind for g in gone)}
    kept = {f"I3 kv {LEAK} prefill", f"I3 state {LEAK} prefill", QUEUED}
    assert {kind for kind in kept if not any(g in kind for g in gone)} <= set(found)


def with_repairs(repaired: Path, names: str) -> dict[str, str]:
    return {"PYTHONPATH": f"{repaired}{os.pathsep}{os.environ.get('PYTHONPATH', '')}", SWITCH: names}


CONFIG = {
    "block_size": 4,
    "num_blocks": 17,
    "max_num_batched_tokens": 8,
    "max_num_seqs": 2,
    "max_model_len": 64,
    "prefill_attempt_interval": 2,
    "prefill_any_attempt_interval": 3,
}
CASE = f"""seq
engine deepinfer 0.1.0
config {json.dumps(CONFIG)}
pool kv units=17 reserved=1 tokens=4
"""
# What upstream has no test for, by hand; each is read in scheduler.hpp.
BY_HAND = {
    # The blocks of a whole prompt are handed out with its first chunk: too full for the second.
    "a prompt that fills the cache": ("watermark", FULL, "> submit R0 prompt=60 max=3\narrive R0"),
    # It was never scheduled, so that nobody frees what was handed out before it was added.
    "an abort before the images are ready": (
        "abort",
        f"I3 kv {LEAK} blocked",
        "> submit R0 prompt=12 max=3 blocked reserved\narrive R0\nalloc R0 kv1 kv2 kv3\n> abort R0\nabort R0",
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_what_upstream_does_not_know_is_broken_and_repaired(
    python: str, repaired: Path, tmp_path: Path, name: str
) -> None:
    repair, kind, inputs = BY_HAND[name]
    case = tmp_path / "case.litmus"
    case.write_text(f"{CASE}{inputs}\n> drain\n")
    found = tool("rerun", case, "--json", "--python", python)
    assert found.returncode == 1, found.stdout + found.stderr
    assert [f"{v['invariant']} {v['what']}" for v in json.loads(found.stdout)["violations"]] == [kind]
    clean = tool("rerun", case, "--json", "--python", python, **with_repairs(repaired, repair))
    assert clean.returncode == 0, clean.stdout + clean.stderr


@pytest.mark.parametrize("overlap", [False, True])
def test_the_adapter_keeps_the_protocol_where_the_scheduler_is_repaired(
    python: str, repaired: Path, tmp_path: Path, overlap: bool
) -> None:
    file = tmp_path / "config.json"
    roomy = {"num_blocks": 65, "num_states": 9, "max_num_batched_tokens": 16, "max_num_seqs": 4}
    file.write_text(json.dumps({**CONFIG, **roomy, "max_model_len": 128, "zero_overhead": overlap}))
    env = with_repairs(repaired, "abort preempted watermark")
    package = str(Path(next(iter(package_of.__path__))).parent)
    env["PYTHONPATH"] += os.pathsep + package
    done = subprocess.run(
        [python, "-m", "tapedelay.replayer.rerun.conformance", "deepinfer", "--config", str(file)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_neither_text_nor_tokens_are_in_a_tape(tapes: Tapes) -> None:
    tape = open_tape(tapes["chunked-states"][0])
    for table in (
        "schedulers",
        "requests",
        "prefixes",
        "inputs",
        "answers",
        "decisions",
        "blocks",
        "resources",
    ):
        rows = tape.table(table).to_pylist()
        assert "confidential" not in json.dumps(rows, default=str)
        for row in rows:
            values = [v for k, v in row.items() if not k.endswith("_ns")]
            assert 31_337 not in values, (table, row)
