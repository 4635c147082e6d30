"""vLLM's real scheduler rerun from recordings: exactly, with planted faults, and perturbed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.sequence import read
from tapedelay.formats.tape import Tape
from tapedelay.replayer.rerun.from_tape import Recording, recording_of
from tapedelay.replayer.sequence import judge

from ..replayer.rerun.cells import COMPARED, beginning, changes, is_input, not_compared, recorded_as
from .scheduler_engines import engine_python, environment, tool
from .vllm_recordings import KINDS, Recorded

PROGRAMS = Path(__file__).parent / "programs"
CASES = Path(__file__).parent / "vllm_cases"
HASH_SEEDS = ("0", "1", "2", "3", "4")
STEPS_MIN = 350
FAULT_S = 60.0

PLANTED = {
    "preempted-not-dequeued": "priority",
    "kept-on-abort": "sync",
    "stale-output": "async",
    "freed-twice": "async",
    "counter-kept": "sessions",
}
"""Each fault, and the recording that is perturbed to find it."""

SESSION_LOST = ("I5", "a session that waits for a chunk stands in no queue")
NO_QUEUE = ("I5", "an unfinished request stands in no queue")
HISTORY_LOST = ("I6", "a request has lost tokens of its prompt")
MISCOUNTED = ("I7", "the count of unfinished requests says less than there are")
DEADLOCK = ("I5", "no progress: only requests that wait hold blocks, and vLLM preempts none of those")
TRUE_FAULTS = {
    SESSION_LOST,
    NO_QUEUE,
    HISTORY_LOST,
    MISCOUNTED,
    DEADLOCK,
    ("I5", "no progress: a request stands in no queue"),
}
"""What is wrong with 0.32.0 itself: see the cases, each of which a repair makes clean.

All are about streaming sessions: one that is preempted while the output that ends its turn is in flight
leaves every queue and loses its history; several that wait and hold blocks never give them up for each other.
"""


@pytest.fixture(scope="module")
def python() -> str:
    return engine_python("vllm")


def runs_of(tape: Tape, names: Mapping[str, int]) -> dict[str, Any]:
    """Return recorded schedulers as `vllm_reruns.py` takes them."""
    runs = {}
    for name, number in names.items():
        runs[name] = run_of(recording_of(tape, scheduler=number))
    return runs


def run_of(recording: Recording) -> dict[str, Any]:
    return {
        "scenario": recording.scenario.as_dict(),
        "recorded": [r.as_dict() for r in recording.recorded],
    }


def started(python: str, file: Path, *work: str, hash_seed: str = "0") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, str(PROGRAMS / "vllm_reruns.py"), str(file), *work],
        env=environment(PYTHONHASHSEED=hash_seed),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told(process: subprocess.Popen[str]) -> dict[str, Any]:
    try:
        out, err = process.communicate(timeout=1200)
    finally:
        process.kill()
    assert process.returncode == 0, err[-3000:]
    made: dict[str, Any] = json.loads(out.splitlines()[-1])
    return made


@pytest.fixture(scope="module")
def file(vllm_runs: Recorded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recordings, and one that is not what happened."""
    runs = runs_of(vllm_runs.tape, {name: n for n, name in enumerate(KINDS)})
    changed = json.loads(json.dumps(runs["sync"]))
    changed["scenario"]["config"]["num_blocks"] -= 1
    made = tmp_path_factory.mktemp("vllm-reruns") / "runs.json"
    made.write_text(json.dumps({"runs": {**runs, "changed": changed}, "planted": PLANTED}))
    return made


@pytest.fixture(scope="module")
def strict(python: str, file: Path) -> dict[str, dict[str, Any]]:
    """Strict reruns by the seed of Python's hashes, two processes at once."""
    made: dict[str, dict[str, Any]] = {}
    seeds = list(HASH_SEEDS)
    while seeds:
        pair, seeds = seeds[:2], seeds[2:]
        processes = {seed: started(python, file, "strict", hash_seed=seed) for seed in pair}
        made |= {seed: told(process)["strict"] for seed, process in processes.items()}
    return made


@pytest.mark.parametrize("name", KINDS)
def test_strict_reruns_are_as_recorded_whatever_the_seed_of_hashes(
    strict: dict[str, dict[str, Any]], name: str
) -> None:
    assert list(strict) == list(HASH_SEEDS)
    for seed, runs in strict.items():
        assert runs[name]["divergence"] is None, (seed, runs[name]["divergence"])
        assert runs[name]["steps"] >= STEPS_MIN
        assert {tuple(k) for k in runs[name]["kinds"]} <= TRUE_FAULTS, (seed, runs[name]["kinds"])
        if not name.startswith("sessions"):
            assert runs[name]["kinds"] == []


def test_a_smaller_pool_is_another_run(strict: dict[str, dict[str, Any]]) -> None:
    assert all(runs["changed"]["divergence"] is not None for runs in strict.values())


def test_recordings_have_preemptions_and_batch_aborts(file: Path) -> None:
    runs = json.loads(file.read_text())["runs"]
    for name in ("sync", "async", "priority"):
        rows = [row for entry in runs[name]["recorded"] for row in entry["events"]]
        assert sum(row[:2] == ["d", "preempt"] for row in rows) >= 5, name
        inputs = runs[name]["scenario"]["inputs"]
        assert any(i["kind"] == "abort" and len(i["requests"]) > 1 for i in inputs), name


def test_a_real_model_is_rerun_as_recorded_in_process_and_in_a_core_apart(
    python: str, vllm_llm: Recorded, vllm_apart: Recorded, tmp_path: Path
) -> None:
    made = tmp_path / "runs.json"
    runs = runs_of(vllm_llm.tape, {"llm": 0}) | runs_of(vllm_apart.tape, {"apart": 0})
    made.write_text(json.dumps({"runs": runs, "planted": {}}))
    reruns = told(started(python, made, "strict", hash_seed="3"))["strict"]
    assert sorted(reruns) == ["apart", "llm"]
    for run in reruns.values():
        assert run["divergence"] is None
        assert run["kinds"] == []
        assert run["steps"] >= STEPS_MIN


@pytest.fixture(scope="module")
def found(python: str, file: Path) -> dict[str, Any]:
    return told(started(python, file, "planted"))["planted"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found_and_reduced(found: dict[str, Any], fault: str) -> None:
    assert fault in found, "not found"
    entry = found[fault]
    assert entry["seconds"] < FAULT_S
    assert entry["requests"] <= 3
    assert entry["without"] == [], "the same inputs are clean without the fault"
    assert "\n> submit R" in entry["case"]


@pytest.fixture(scope="module")
def cases(python: str, file: Path) -> dict[str, Any]:
    return told(started(python, file, "cases", "kit", "groups"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("session-lost", SESSION_LOST), ("session-history", HISTORY_LOST), ("sessions-deadlock", DEADLOCK)],
)
def test_true_faults_replay_from_their_files_and_a_repair_makes_them_clean(
    cases: dict[str, Any], name: str, kind: tuple[str, str]
) -> None:
    entry = cases["cases"][name]
    assert list(kind) in entry["as it is"]["kinds"]
    assert entry["repaired"] == {"kinds": [], "drained": True}


def test_a_case_is_a_sequence_that_check_judges() -> None:
    sequence = read(CASES / "sessions-deadlock.litmus")
    assert [v.invariant for v in judge(sequence.commands("buggy"))] == ["I5"]


def test_the_adapter_keeps_its_promises(cases: dict[str, Any]) -> None:
    assert cases["kit"] == []


def test_every_group_takes_blocks_of_its_own(cases: dict[str, Any]) -> None:
    assert cases["groups"] == [True, False, True]


@pytest.fixture(scope="module")
def cells(python: str, vllm_runs: Recorded, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Strict reruns of the beginning of a recording, one value of which is another one, by column."""
    scheduler = KINDS.index("sessions-priority")
    tape = beginning(vllm_runs.tape, scheduler, 240)
    first = tape.table("resources").column("input")[0].as_py()
    runs = {"as it is": run_of(recording_of(tape, scheduler=scheduler))}
    given: dict[str, list[str]] = {}
    done: dict[str, list[str]] = {}
    for changed in changes(tape, 1, 1):
        recording = None if not_compared(changed, first) else recorded_as(changed, scheduler)
        if recording is not None:
            runs[changed.text()] = run_of(recording)
            columns = given if is_input(changed) else done
            columns.setdefault(f"{changed.table}.{changed.column}", []).append(changed.text())
    runs["chunks arrive at once"] = run_of(recording_of(vllm_runs.tape, scheduler=scheduler))
    for given_to_it in runs["chunks arrive at once"]["scenario"]["inputs"]:
        given_to_it.update({"arrive_ns": 0} if "arrive_ns" in given_to_it else {})
    made = tmp_path_factory.mktemp("vllm-cells") / "runs.json"
    made.write_text(json.dumps({"runs": runs, "planted": {}}))
    reruns = told(started(python, made, "strict"))["strict"]
    return {"reruns": reruns, "given": given, "done": done}


def test_every_value_of_what_it_did_is_compared(cells: dict[str, Any]) -> None:
    assert cells["reruns"]["as it is"]["divergence"] is None
    assert {column.split(".")[0] for column in cells["done"]} == set(COMPARED) - {"inputs"}
    for texts in cells["done"].values():
        assert [t for t in texts if cells["reruns"][t]["divergence"] is None] == []


def test_other_inputs_and_answers_are_seen_where_they_make_a_difference(cells: dict[str, Any]) -> None:
    for column in ("inputs.kind", "inputs.request", "inputs.value", "inputs.tokens", "answers.word"):
        assert any(cells["reruns"][t]["divergence"] for t in cells["given"][column]), column


def test_arrivals_of_chunks_decide(cells: dict[str, Any]) -> None:
    assert cells["reruns"]["chunks arrive at once"]["divergence"] is not None


def campaign(python: str, tape: Path, scheduler: int, budget: str) -> dict[str, Any]:
    words = ["--scheduler", scheduler, "--budget", budget, "--python", python]
    done = tool("rerun", tape, "--perturbed", "--json", *words)
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
    made: dict[str, Any] = json.loads(done.stdout)
    assert made["exit_code"] == done.returncode
    return made


def kinds_of(made: Mapping[str, Any]) -> set[tuple[str, str]]:
    return {(f["invariant"], f["what"]) for f in made["perturbed"]["found"]}


def test_perturbed_it_shows_only_what_is_wrong_with_it(python: str, vllm_runs: Recorded) -> None:
    made = campaign(python, vllm_runs.path, KINDS.index("async"), "120 runs")
    assert kinds_of(made) <= TRUE_FAULTS
    assert made["perturbed"]["planted"]["found"] is not None, "the machinery bites"


@pytest.mark.soak
@pytest.mark.parametrize("name", KINDS)
def test_five_minutes_of_perturbations_show_only_what_is_wrong_with_it(
    python: str, vllm_runs: Recorded, name: str
) -> None:
    made = campaign(python, vllm_runs.path, KINDS.index(name), "60s")
    assert kinds_of(made) <= TRUE_FAULTS, [f["words"] for f in made["perturbed"]["found"]]
    assert made["perturbed"]["planted"]["found"] is not None, "the machinery bites"
