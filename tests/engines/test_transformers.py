"""transformers' continuous batching: recorded with a real model, rerun exactly, cancelled at every step."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.read import open_tape
from tapedelay.formats.requests.read import read_inputs, read_schedulers
from tapedelay.formats.schema import TABLES
from tapedelay.replayer.rerun.from_tape import recording_of

from .scheduler_engines import PROGRAMS, program, record, tool

RUNS = ("fifo", "prefill_first", "unshared", "window", "sessions")
SOAK = bool(os.environ.get("TAPEDELAY_SOAK"))
EVERY = 1 if SOAK else 6
STALL = "I5 no progress: new requests are blocked until one ends, and none runs"
UPDATED = "raised KeyError in mark_complete_blocks during output"
SHOWN = "I8 shown after the abort"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tape of five schedulers, each with a model of its own."""
    tape = tmp_path_factory.mktemp("transformers") / "served.tape"
    done = record(tape, "transformers", PROGRAMS / "transformers_serve.py", *RUNS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [f"served: {name}" in done.stdout for name in RUNS] == [True] * len(RUNS), done.stdout
    return tape


@pytest.fixture(scope="module")
def reruns(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `transformers_reruns.py` says of the tape."""
    tape = open_tape(recorded)
    runs = {}
    for number, name in enumerate(RUNS):
        recording = recording_of(tape, scheduler=number)
        runs[name] = {
            "scenario": recording.scenario.as_dict(),
            "recorded": [r.as_dict() for r in recording.recorded],
        }
    changed = json.loads(json.dumps(runs["fifo"]))
    changed["scenario"]["config"]["num_sectors"] += 1
    runs["changed"] = changed
    file = tmp_path_factory.mktemp("reruns") / "runs.json"
    file.write_text(json.dumps({"runs": runs, "sweep": ["fifo"], "every": EVERY}))
    done = program("transformers", "transformers_reruns.py", file)
    assert done.returncode == 0, done.stderr[-3000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def test_a_recording_has_what_reached_each_scheduler(recorded: Path) -> None:
    tape = open_tape(recorded)
    schedulers = read_schedulers(tape)
    assert [s.engine for s in schedulers] == ["transformers"] * len(RUNS)
    assert [s.config["cannot_judge"] for s in schedulers] == [""] * len(RUNS)
    assert schedulers[1].config["scheduler"] == "prefill_first"
    assert schedulers[3].config["sliding_layers"] == 2
    assert [p.name for p in schedulers[3].pools] == ["window", "kv"]
    kinds: dict[int, list[str]] = {n: [] for n in range(len(RUNS))}
    preempted = dict.fromkeys(range(len(RUNS)), 0)
    for given in read_inputs(tape):
        kinds[given.scheduler].append(given.kind)
        preempted[given.scheduler] += sum(getattr(e, "kind", "") == "preempt" for e in given.events)
    for number, name in enumerate(RUNS):
        assert kinds[number].count("submit") == (8 if name == "sessions" else 10)
        assert kinds[number].count("output") >= 30
    assert "abort" in kinds[0]
    assert "cache_reset" in kinds[4]
    assert preempted[0]
    assert schedulers[0].prefixes, "equal prompts have units in common"
    assert not schedulers[2].prefixes, "without sharing nobody knows"


def test_a_recording_is_clean_to_check(recorded: Path) -> None:
    done = tool("check", recorded, "--json")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_recording_has_no_request_ids(recorded: Path) -> None:
    tape = open_tape(recorded)
    for name in TABLES:
        assert "PRIVATE" not in str(tape.table(name).to_pylist()), name
    assert b"PRIVATE" not in (recorded / "manifest.json").read_bytes()


def test_requests_with_several_answers_end_the_recording_and_nothing_else(tmp_path: Path) -> None:
    tape = tmp_path / "served.tape"
    done = record(tape, "transformers", PROGRAMS / "transformers_branches.py")
    assert "answers: 6" in done.stdout, "the engine goes on"
    why = "not recorded any more (requests with several return sequences are not recorded)"
    assert done.stderr.count(f"tapedelay: transformers' scheduler is {why}") == 1
    assert f"ERROR: transformers' scheduler is {why}" in done.stderr
    assert done.returncode == 5, done.stderr
    assert [s.engine for s in read_schedulers(open_tape(tape))] == ["transformers"], "the one before"


def test_strict_reruns_are_as_recorded(reruns: dict[str, Any]) -> None:
    for name in RUNS:
        assert reruns["strict"][name]["divergence"] is None, name
        assert reruns["strict"][name]["kinds"] == [], name
        assert reruns["strict"][name]["steps"] >= 30, name


def test_another_cache_is_another_run(reruns: dict[str, Any]) -> None:
    assert reruns["strict"]["changed"]["divergence"] is not None


def test_cancelling_at_every_step_finds_the_stall_of_5_19(reruns: dict[str, Any]) -> None:
    # Preempted requests, and all later ones, wait for ever when those are cancelled who ran on.
    swept = reruns["cancelled"]["fifo sync"]
    if not reruns["version"].startswith("5.19."):
        pytest.skip(f"transformers {reruns['version']}: what it does when it cancels is known of 5.19 only")
    assert set(swept["found"]) == {STALL}
    assert swept["found"][STALL]["requests"] <= 3
    assert swept["runs"] >= 30


def test_cancelling_with_a_batch_in_flight_updates_what_is_gone(reruns: dict[str, Any]) -> None:
    if not reruns["version"].startswith("5.19."):
        pytest.skip(f"transformers {reruns['version']}: what it does when it cancels is known of 5.19 only")
    found = reruns["cancelled"]["fifo async"]["found"]
    assert UPDATED in found
    assert set(found) <= {UPDATED, SHOWN, STALL}
    assert found[UPDATED]["requests"] <= 3


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_the_repaired_scheduler_is_clean(reruns: dict[str, Any], mode: str) -> None:
    swept = reruns["cancelled"][f"fifo {mode} repaired"]
    assert swept["found"] == {}
    assert swept["undrained"] == 0
    assert swept["runs"] >= 30


def test_planted_faults_are_found_and_reduced(reruns: dict[str, Any]) -> None:
    assert len(reruns["planted"]) == 5
    for name, told in reruns["planted"].items():
        assert told["requests"] <= 3, name
        assert told["seconds"] < 60, name
        assert re.search(r"^> submit R\d", told["case"], re.MULTILINE), name


def test_the_adapter_keeps_its_promises(reruns: dict[str, Any]) -> None:
    assert reruns["kit"] == []
