"""transformers' real scheduler driven at random: recorded, judged, and every recording rerun exactly."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tapedelay.formats.read import open_tape
from tapedelay.formats.requests.read import read_inputs, read_schedulers
from tapedelay.formats.tape import Tape
from tapedelay.formats.validate import validate
from tapedelay.replayer.rerun.from_tape import recording_of

from .scheduler_engines import PROGRAMS, program, record, tool
from .test_transformers import SHOWN, STALL, UPDATED

SOAK = bool(os.environ.get("TAPEDELAY_SOAK"))
SEEDS = (1, 400) if SOAK else (1, 16)
FAILURES = {"", "stall", "KeyError"}
"""How runs end: all is served, or what 5.19 does wrong when it cancels."""


class Recorded(NamedTuple):
    path: Path
    tape: Tape
    told: list[dict[str, Any]]
    """What the program says of each run."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    path = tmp_path_factory.mktemp("random") / "random.tape"
    done = record(path, "transformers", PROGRAMS / "transformers_core.py", *SEEDS)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("[")))
    return Recorded(path, open_tape(path), told)


def test_every_run_is_recorded_as_it_was(recorded: Recorded) -> None:
    assert len(read_schedulers(recorded.tape)) == len(recorded.told) == SEEDS[1] - SEEDS[0] + 1
    assert validate(recorded.tape) == []
    kinds: dict[int, Counter[str]] = {n: Counter() for n in range(len(recorded.told))}
    seen: Counter[str] = Counter()
    for given in read_inputs(recorded.tape):
        kinds[given.scheduler][given.kind] += 1
        seen.update(getattr(e, "kind", getattr(e, "action", "")) for e in given.events)
    for run, counts in zip(recorded.told, kinds.values(), strict=True):
        assert counts["submit"] == run["requests"], run
        assert counts["step"] >= run["steps"], run  # those that schedule nothing are inputs too
        assert counts["output"] <= run["steps"], run
    assert {run["failed"] for run in recorded.told} <= FAILURES
    assert seen["preempt"] > 20
    assert seen["share"] > 20
    assert sum(counts["abort"] for counts in kinds.values()) > 20
    assert sum(counts["cache_reset"] for counts in kinds.values()) > 2
    for key in ("asynchronous", "sliding", "allow_block_sharing"):
        assert {run[key] for run in recorded.told} == {False, True}, key


def test_what_check_finds_is_what_the_engine_does_wrong(recorded: Recorded) -> None:
    done = tool("check", recorded.path, "--json")
    report = json.loads(done.stdout)
    wrong: dict[int, set[str]] = {}
    for number, scheduler in enumerate(report["schedulers"]):
        for kind in scheduler["kinds"]:
            wrong.setdefault(number, set()).add(kind["first"]["invariant"])
    assert done.returncode == (1 if wrong else 0), done.stderr
    for number, invariants in wrong.items():
        run = recorded.told[number]
        # I5: those that were cancelled would have let new requests in again; I8: updated after the cancel
        expected = {"I5", "I8"} if run["asynchronous"] else {"I5"}
        assert run["cancelled"], run
        assert invariants <= expected, (run, invariants)


def last_output(recorded: list[dict[str, Any]]) -> int:
    return max(i for i, entry in enumerate(recorded) if entry["kind"] == "output")


def test_every_decision_is_the_recorded_one_when_rerun(recorded: Recorded, tmp_path: Path) -> None:
    runs: dict[str, dict[str, Any]] = {}
    for number, run in enumerate(recorded.told):
        recording = recording_of(recorded.tape, scheduler=number)
        runs[str(run["seed"])] = {
            "scenario": recording.scenario.as_dict(),
            "recorded": [r.as_dict() for r in recording.recorded],
        }
    file = tmp_path / "runs.json"
    file.write_text(json.dumps(runs))
    done = program("transformers", "exact.py", "transformers", file)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert len(told) == len(recorded.told)
    for run in recorded.told:
        rerun = told[str(run["seed"])]
        divergence = rerun["divergence"]
        if run["failed"] == "KeyError":  # the engine raises in the rerun as well, at that output
            assert (divergence["given"], divergence["differences"]) == ("output", []), run
            assert "KeyError" in divergence["words"], run
            assert divergence["index"] == last_output(runs[str(run["seed"])]["recorded"]), run
        else:
            assert divergence is None, run
        kinds = {" ".join(kind) for kind in rerun["kinds"]}
        assert kinds <= {STALL, UPDATED, SHOWN}, run
        assert not kinds or run["cancelled"], run
        assert (UPDATED in kinds) == (run["failed"] == "KeyError"), run
