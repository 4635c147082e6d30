"""Delays of what the CPU backend computes, and of an RPC device that is registered after the plugin."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tapedelay.formats.errors import InfrastructureError
from tapedelay.formats.read import open_tape
from tapedelay.formats.schema import TABLES
from tapedelay.recorder.demo import engines
from tapedelay.recorder.demo.commands import PROGRAMS, Recording, record_arguments, record_program

HERE = Path(__file__).parent
MS = 1_000_000
NO_GPU = {"VK_DRIVER_FILES": os.devnull}  # the build has a Vulkan backend, too


def record(tape: Path, command: list[str], *plan: str, devices: int = 0) -> Recording:
    first, *rest = record_arguments(tape, command, devices=devices)
    delays = [word for line in plan for word in ("--delays", line)]
    return record_program([first, "--no-telemetry", *delays, *rest], NO_GPU)


def rows(recording: Recording, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = open_tape(recording.tape).table(table).to_pylist()
    return found


@pytest.fixture(scope="module")
def command(tiny_model: Path) -> list[str]:
    """A prompt through a build that has the CPU's backend and RPC."""
    try:
        libraries = engines.rpc_libraries()
    except InfrastructureError as error:
        pytest.skip(f"llama.cpp with RPC: {error.found}")
    script = str(PROGRAMS / "llama_library.py")
    options = ("--prompt-tokens", "20", "--n-predict", "2")
    return [sys.executable, script, "--libraries", str(libraries), "--model", str(tiny_model), *options]


def answer(command: list[str]) -> dict[str, Any]:
    env = {**os.environ, **NO_GPU}
    done = subprocess.run(command, env=env, capture_output=True, timeout=120, check=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


# --- the CPU


def test_before_issue_on_the_cpu(command: list[str], tmp_path: Path) -> None:
    every, second = "every compute on CPU +3ms before_issue", "2nd compute on host0 +40ms before_issue"
    recording = record(tmp_path / "a.tape", command, every, second, devices=1)
    assert recording.answer["logits_sha256"] == answer(command)["logits_sha256"]
    ops = rows(recording, "ops")
    queues = {q["queue"]: q["name"] for q in rows(recording, "queues")}
    mine = [op for op in ops if queues[op["queue"]] == "host0"]
    computes = [op["op"] for op in mine if op["kind"] == "compute"]
    assert len(computes) == 2
    lines = json.loads((recording.tape / "manifest.json").read_text())["delays"]
    assert [line["count"] for line in lines] == [2, 1]
    delays = rows(recording, "delays")
    assert sorted((d["op"], d["line"], d["asked_ns"]) for d in delays) == [
        (computes[0], 1, 3 * MS),
        (computes[1], 1, 3 * MS),
        (computes[1], 2, 40 * MS),
    ]
    for delay in delays:
        assert delay["place"] == "before_issue"
        assert not delay["filler"]
        assert delay["true_ns"] >= delay["asked_ns"]
        # The time is there: between what the thread did before and the issue.
        before = max(
            op["issue_ns"] + (op["start_after_issue_ns"] or 0) + (op["duration_ns"] or 0)
            for op in mine
            if op["op"] < delay["op"]
        )
        assert ops[delay["op"]]["issue_ns"] - before >= delay["true_ns"]


# --- RPC


@pytest.fixture(scope="module")
def server(command: list[str]) -> Iterator[str]:
    """The address of a server in a process of its own."""
    libraries = command[command.index("--libraries") + 1]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(HERE / "programs" / "rpc_server.py"), libraries, str(port)],
        env={**os.environ, **NO_GPU},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(300):
            assert process.poll() is None, "the server ended"
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_a_device_registered_after_the_plugin_is_recorded_and_held_up(
    command: list[str], server: str, tmp_path: Path
) -> None:
    served = [*command, "--rpc", server]
    expected = answer(served)
    assert expected["devices"] == ["CPU", "RPC0"]
    plan = ("every compute on RPC0 +20ms", "every copy of RPC0#* +2ms before_issue")
    recording = record(tmp_path / "a.tape", served, *plan)
    assert recording.answer["devices"] == ["CPU", "RPC0"]
    assert recording.answer["logits_sha256"] == expected["logits_sha256"]
    queues = {q["queue"]: q["name"] for q in rows(recording, "queues")}
    ops = rows(recording, "ops")
    on = Counter((queues[op["queue"]], op["kind"]) for op in ops)
    assert on["RPC0", "compute"] == 2
    assert on["host0", "compute"] == 2
    held = Counter((d["line"], d["filler"], queues[ops[d["op"]]["queue"]]) for d in rows(recording, "delays"))
    copies = held.pop((2, False, "host0"))
    assert copies >= 2
    assert held == {(1, True, "RPC0"): 2}
    assert recording.check() == (0, [])


def test_the_servers_address_stays_behind(command: list[str], server: str, tmp_path: Path) -> None:
    recording = record(tmp_path / "a.tape", [*command, "--rpc", server])
    tape = open_tape(recording.tape)
    texts = [(recording.tape / "manifest.json").read_text()]
    texts += [str(tape.table(name).to_pylist()) for name in TABLES]
    assert "RPC0" in "".join(texts)
    for text in texts:
        assert "127.0.0.1" not in text
        assert f":{server.rpartition(':')[2]}" not in text
