"""Delays on the queue of a real asynchronous backend: ggml's Vulkan backend on lavapipe.

Upstream bug #26040 there: a copy to the device is late, the CPU computes over its source. Logits are compared
to the last bit, within one build.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.errors import InfrastructureError
from tapedelay.formats.read import open_tape
from tapedelay.recorder.demo import engines
from tapedelay.recorder.demo.commands import PROGRAMS, Recording, record_arguments, record_program

SOAK = os.environ.get("TAPEDELAY_SOAK") == "1"
WRONG_RUNS = 10 if SOAK else 2
RIGHT_RUNS = 10 if SOAK else 1
DELAY_NS = 500_000_000
# Long: in the first step the host loads shaders for a quarter of a second before it computes over the source.
PLAN = "every copy of model.input_embed on Vulkan0 +500ms"
CPU_SPLITS = (
    'first compute of "cache_r_l0 (reshaped)*" on host0 +500ms before_issue',
    "every compute of conv_states-0 on host0 +100ms before_issue",
)
NO_ASYNC = {"GGML_VK_DISABLE_ASYNC": "1"}


def program(build: engines.NpmBuild, model: Path, *options: str) -> list[str]:
    try:
        libraries = engines.npm_libraries(build)
    except InfrastructureError as error:
        pytest.skip(f"{build.package} {build.version}: {error.found}")
    script = PROGRAMS / "llama_library.py"
    options = ("--prompt-tokens", "20", "--n-predict", "2", *options)
    return [sys.executable, str(script), "--libraries", str(libraries), "--model", str(model), *options]


def record(tape: Path, command: list[str], environment: dict[str, str], *plan: str) -> Recording:
    first, *rest = record_arguments(tape, command, devices=0, profile=None)
    delays = [word for line in plan for word in ("--delays", line)]
    return record_program([first, "--no-telemetry", *delays, *rest], environment)


def logits(answer: dict[str, Any]) -> str:
    digest: str = answer["logits_sha256"]
    return digest


def right(build: engines.NpmBuild, model: Path, environment: dict[str, str]) -> dict[str, Any]:
    """What the build answers without asynchronous copies, and without us."""
    command = program(build, model, "--kv-host")
    env = {**os.environ, **environment, **NO_ASYNC}
    done = subprocess.run(command, env=env, capture_output=True, timeout=300, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="module")
def racy_answer(vulkan: dict[str, str], tiny_model: Path) -> dict[str, Any]:
    return right(engines.VULKAN_RACY, tiny_model, vulkan)


@contextmanager
def other_core_loaded() -> Iterator[None]:
    last = max(os.sched_getaffinity(0))
    burn = f"import os; os.sched_setaffinity(0, {{{last}}})\nwhile os.getppid() == {os.getpid()}: pass"
    process = subprocess.Popen([sys.executable, "-c", burn])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def pair(findings: list[dict[str, Any]]) -> dict[str, Any]:
    """The finding of the bug."""
    return next(f for f in findings if "input_embed" in str(f) and "conv_states" in str(f))


def rows(recording: Recording, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = open_tape(recording.tape).table(table).to_pylist()
    return found


@pytest.fixture(scope="module")
def wrong(
    vulkan: dict[str, str], tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[Recording]:
    """Recordings of the build before the fix under the plan: on a quiet machine, then on a loaded one."""
    folder = tmp_path_factory.mktemp("wrong")
    command = program(engines.VULKAN_RACY, tiny_model, "--kv-host")
    quiet = [record(folder / f"{n}.tape", command, vulkan, PLAN) for n in range(WRONG_RUNS)]
    with other_core_loaded():
        loaded = [record(folder / f"loaded{n}.tape", command, vulkan, PLAN) for n in range(RIGHT_RUNS)]
    return [*quiet, *loaded]


def test_one_delay_makes_the_same_wrong_logits_every_time(
    wrong: list[Recording], racy_answer: dict[str, Any]
) -> None:
    assert {logits(r.answer) for r in wrong} == {logits(wrong[0].answer)}
    assert logits(wrong[0].answer) != logits(racy_answer)
    assert wrong[0].tokens != racy_answer["tokens"]


def test_it_is_applied_on_the_devices_side_and_measured(wrong: list[Recording]) -> None:
    for recording in wrong:
        (line,) = json.loads((recording.tape / "manifest.json").read_text())["delays"]
        assert line["count"] == 2
        delays = rows(recording, "delays")
        assert [(d["place"], d["filler"], d["asked_ns"]) for d in delays] == [
            ("before_start", True, DELAY_NS)
        ] * 2
        assert all(abs(d["true_ns"] - DELAY_NS) < DELAY_NS / 100 for d in delays)
        ops = rows(recording, "ops")
        assert [ops[d["op"]]["name"] for d in delays] == ["model.input_embed"] * 2
        assert "matrix products of" in recording.info()


def test_nothing_of_it_is_taken_for_the_engines_work(
    wrong: list[Recording], vulkan: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    plain = record(tmp_path / "a.tape", program(engines.VULKAN_RACY, tiny_model, "--kv-host"), vulkan)
    for table in ("ops", "buffers", "devices", "queues"):
        kinds = [Counter(r.get("kind") for r in rows(recording, table)) for recording in (plain, wrong[0])]
        assert kinds[0] == kinds[1]


def test_check_names_the_pair_and_what_hides_it(wrong: list[Recording]) -> None:
    code, findings = wrong[0].check()
    assert code == 1
    finding = pair(findings)
    hiding = json.dumps(finding["hidden_by"])
    assert "GGML_VK_DISABLE_ASYNC" in hiding
    assert "on host0" in hiding
    assert "before_issue" in hiding


def test_the_build_after_the_fix_is_right_under_the_same_plan(
    vulkan: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    expected = logits(right(engines.VULKAN_FIXED, tiny_model, vulkan))
    command = program(engines.VULKAN_FIXED, tiny_model, "--kv-host")
    for number in range(RIGHT_RUNS):
        recording = record(tmp_path / f"{number}.tape", command, vulkan, PLAN)
        assert logits(recording.answer) == expected
        assert [d["filler"] for d in rows(recording, "delays")] == [True, True]
        assert recording.check() == (0, [])


def test_a_delay_of_the_cpu_split_hides_it(
    racy_answer: dict[str, Any], vulkan: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    command = program(engines.VULKAN_RACY, tiny_model, "--kv-host")
    for number in range(RIGHT_RUNS):
        recording = record(tmp_path / f"{number}.tape", command, vulkan, *CPU_SPLITS)
        assert logits(recording.answer) == logits(racy_answer)
        assert [(d["place"], d["filler"]) for d in rows(recording, "delays")] == [("before_issue", False)] * 2
        code, findings = recording.check()
        assert code == 1
        assert pair(findings)["verdict"] == "race"  # hidden, not mended


def test_a_switch_hides_it_under_the_plan(
    racy_answer: dict[str, Any], vulkan: dict[str, str], tiny_model: Path, tmp_path: Path
) -> None:
    command = program(engines.VULKAN_RACY, tiny_model, "--kv-host")
    for number in range(RIGHT_RUNS):
        recording = record(tmp_path / f"{number}.tape", command, {**vulkan, **NO_ASYNC}, PLAN)
        assert logits(recording.answer) == logits(racy_answer)


# --- two devices


def test_two_devices_are_told_apart(two_vulkans: dict[str, str], tiny_model: Path, tmp_path: Path) -> None:
    command = program(engines.VULKAN_FIXED, tiny_model)
    recording = record(tmp_path / "a.tape", command, two_vulkans, "every compute on Vulkan1 +20ms")
    assert recording.answer["devices"] == ["Vulkan0", "Vulkan1", "CPU"]
    queues = {q["queue"]: q["name"] for q in rows(recording, "queues")}
    devices = {d["device"]: d["name"] for d in rows(recording, "devices")}
    owners = {q["queue"]: devices[q["device"]] for q in rows(recording, "queues")}
    ops = rows(recording, "ops")
    on = Counter((queues[op["queue"]], op["kind"]) for op in ops)
    for name in ("Vulkan0", "Vulkan1"):
        assert on[name, "compute"] == 2
        assert on[name, "record"] == 2
        assert on[name, "wait"] >= 2
    for op in ops:
        if op["kind"] == "wait" and op["sync_of"] is not None:
            recorded = ops[op["sync_of"]]
            assert recorded["kind"] == "record"
            assert recorded["sync"] == op["sync"]
            if queues[op["queue"]] != "host0":
                assert recorded["queue"] == op["queue"]
    # An event belongs to one device, and only that device's queue records it.
    assert len({(op["sync"], op["queue"]) for op in ops if op["kind"] == "record"}) == len(
        {op["sync"] for op in ops if op["kind"] == "record"}
    )
    delayed = [ops[d["op"]] for d in rows(recording, "delays")]
    assert [(op["kind"], owners[op["queue"]]) for op in delayed] == [("compute", "Vulkan1")] * 2
    said = recording.info()
    assert "on Vulkan1 are matrix products" in said
    assert "on Vulkan0 are" not in said  # no line is aimed at it: it was not measured
    assert recording.check() == (0, [])
